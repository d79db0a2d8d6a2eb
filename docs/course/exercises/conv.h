// What exercises 1 to 14 ask for, those of docs/course/conv/; exercises.h says how they are built and checked.
#pragma once
#include <stdbool.h>
#include <stdint.h>

// ---- 8 to 14: tensor cores by their own instructions, and Hopper ----------------------------------------------------
