// Exercise 15 of docs/course/reductions.md: merges two parts of a set of numbers, of which only the moments are known.
// With δ = b.mean - a.mean and n = a.n + b.n:
//   mean = a.mean + δ · b.n / n
//   m2   = a.m2 + b.m2 + δ² · a.n · b.n / n
// Either part, or both, may be empty.
#include "docs/course/exercises/exercises.h"

PartMoments moments_merge(PartMoments a, PartMoments b) {
  PartMoments all = {a.n + b.n, 0, 0};
  // ---- your code ----
  // ---- end of your code ----
  return all;
}
