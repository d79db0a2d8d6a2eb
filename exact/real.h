// The number type of arithmetic that the CPU reference and the CUDA kernels share, and its math functions: float, or
// double where the reference compiles a second time with -DREAL64.
#pragma once
#include <math.h>

#ifdef REAL64
typedef double real;
#define real_exp exp
#define real_log log
#define real_log1p log1p
#define real_sqrt sqrt
#define real_abs fabs
#define real_floor floor
#else
typedef float real;
#define real_exp expf
#define real_log logf
#define real_log1p log1pf
#define real_sqrt sqrtf
#define real_abs fabsf
#define real_floor floorf
#endif
