// Exercise 15 of docs/course/reductions.md: two parts of a set of numbers, each known by its moments alone, become one.
// With δ = b.mean - a.mean and n = a.n + b.n:
//   mean = a.mean + δ · b.n / n
//   m2   = a.m2 + b.m2 + δ² · a.n · b.n / n
// Either part may be empty, and both.
#include "docs/course/exercises/exercises.h"

PartMoments moments_merge(PartMoments a, PartMoments b) {
  PartMoments all = {a.n + b.n, 0, 0};
  // ---- your code ----
  // ---- end of your code ----
  return all;
}
