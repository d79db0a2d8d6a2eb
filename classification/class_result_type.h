// The library's result type for classes.
#pragma once
#include "lib/result_type.h"

extern const ResultType result_classes;
