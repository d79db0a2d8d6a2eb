// The doctor's examination as one JSON object.
#pragma once
#include "data/survey/checkup.h"

char *checkup_json(const Checkup *c, const CheckupOptions *o); // caller frees
