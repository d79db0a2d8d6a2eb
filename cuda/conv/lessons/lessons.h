// The lessons: forward in bf16 in steps of one idea each, from thirty lines to what rung 05 is built of. A lesson is a
// rung to learn from and to measure: tests and `bench ladder` know this list; no program computes with it.
#pragma once
#include "nn/rung.h"

#ifdef __cplusplus
extern "C" {
#endif

// In the order of the files: NN_<name>.cu exports lesson_<name>, a Rung named "NN_<name>".
// clang-format off
#define EACH_LESSON(X)                                                                                                 \
  X(naive)                                                                                                             \
  X(smem_tile)                                                                                                         \
  X(register_tile)                                                                                                     \
  X(vector_loads)                                                                                                      \
  X(cp_async)                                                                                                          \
  X(split_k)                                                                                                           \
  X(wmma)                                                                                                              \
  X(mma_sync)                                                                                                          \
  X(swizzle)                                                                                                           \
  X(wgmma)                                                                                                             \
  X(tma)                                                                                                               \
  X(warp_specialised)                                                                                                  \
  X(persistent)                                                                                                        \
  X(cluster)
// clang-format on

#define DECLARE_LESSON(name) extern const Rung lesson_##name;
EACH_LESSON(DECLARE_LESSON)
extern const Rung *const conv_lessons[]; // in this order; NULL at the end

#ifdef __cplusplus
}
#endif
