// Classes of images as the library's results.
#pragma once
#include "lib/result_type.h"

extern const ResultType result_classes;
