// For engine/engine.c: what engine/step.c needs of it when an engine is opened and closed.
#pragma once
#include "engine/engine.h"

bool slots_allocate(Engine *e); // false when there is not enough memory
void slots_free(Engine *e);
void measure_update(Engine *e); // workspace of what a step does outside its graph
