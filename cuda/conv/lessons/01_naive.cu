// Lesson 01, naive. Idea: a thread for every element of C, which adds up its products one after the other.
// Removes nothing: it is the definition.
// Adds to the lesson before: there is none.
// Limit: a product asks memory for both of its operands, two bytes at a time; neighbouring threads read rows of B that
// lie K apart, a cache line each.
#include "cuda/conv/lessons/lesson.cuh"

enum { THREADS = 256 };

static __global__ void forward_kernel(const __grid_constant__ LessonGemm g) {
  size_t thread = (size_t)blockIdx.x * THREADS + threadIdx.x;
  int row = (int)(thread / g.n), column = (int)(thread % g.n);
  RowOfA from = row_of_a(g, row);
  float acc = 0;
  for (int first = 0; first < g.k; first += g.w.ldc) { // of a tap
    const bf16 *a = a_at(g, from, first), *b = b_at(g, first, column);
    for (int c = 0; a && b && c < g.w.ldc; c++) acc += to_float(a[c]) * to_float(b[c]);
  }
  c_store<1>(g, row, column, &acc);
}

static void forward(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *w, const Dest *y) {
  for (int i = 0; i < pairs && !dev->measuring; i++) {
    LessonGemm g = lesson_gemm(conv, &x[i], w, &y[i]);
    int blocks = blocks_for((size_t)g.m * g.n, THREADS);
    if (blocks) forward_kernel<<<blocks, THREADS, 0, stream_of(dev)>>>(g);
    LAUNCH_CHECK();
  }
}

extern "C" const Rung lesson_naive = {"01_naive", lesson_supports, forward};
