// The list of the lessons.
#include "cuda/conv/lessons/lessons.h"

#define LESSON_ROW(name) &lesson_##name,
extern "C" const Rung *const conv_lessons[] = {EACH_LESSON(LESSON_ROW) NULL};
