// bench ladder: its problems, and the table and bars at the end: bf16 forward of a few problems by every lesson of
// cuda/conv/lessons/, the rungs on tensor cores and cuDNN.
#pragma once
#include <stdio.h>
#include <string.h>
#include "cuda/common.cuh"
#include "cuda/conv/lessons/lessons.h"
#include "lab/conv_layers.h"

// A layer that fills the GPU, a matrix product, and a layer with too few tiles to fill it.
static const char *const climbed_layers[] = {"p2.3x3", "p5.3x3"};
static const ConvCase climbed_gemm = {"gemm.8192", ON_MAP, 16, 8192, 8192, 1, 1, 0, 1, 0}; // 32 images of 16 × 16

enum { MAX_CLIMBERS = 32, MAX_CLIMBED = 4 };

// TFLOP/s, fractions of cuDNN's speed and of the chip's peak; 0: not measured.
typedef struct Climb {
  const char *layer[MAX_CLIMBED], *who[MAX_CLIMBERS];
  int layers, count;
  double tflops[MAX_CLIMBERS][MAX_CLIMBED], of_cudnn[MAX_CLIMBERS][MAX_CLIMBED], of_peak[MAX_CLIMBERS][MAX_CLIMBED];
} Climb;

static int climb_slot(const char *names[], int *count, int limit, const char *name) {
  for (int i = 0; i < *count; i++)
    if (!strcmp(names[i], name)) return i;
  CHECK(*count < limit);
  names[*count] = name;
  return (*count)++;
}
static void climb_add(Climb *c, const char *layer, const char *who, double tflops, double of_cudnn, double of_peak) {
  int i = climb_slot(c->who, &c->count, MAX_CLIMBERS, who), j = climb_slot(c->layer, &c->layers, MAX_CLIMBED, layer);
  c->tflops[i][j] = tflops;
  c->of_cudnn[i][j] = of_cudnn;
  c->of_peak[i][j] = of_peak;
}

static void print_share(double share) {
  if (share > 0)
    printf(" %6.1f%%", 100 * share);
  else
    printf(" %7s", "-"); // NaN, too
}
static void print_climb(const Climb *c) {
  printf("\n%-24s", "forward, bf16");
  for (int j = 0; j < c->layers; j++) printf("%26s", c->layer[j]);
  printf("\n%-24s", "");
  for (int j = 0; j < c->layers; j++) printf("%10s %7s %7s", "TFLOP/s", "cuDNN", "peak");
  for (int i = 0; i < c->count; i++) {
    printf("\n%-24s", c->who[i]);
    for (int j = 0; j < c->layers; j++) {
      if (c->tflops[i][j] > 0)
        printf(" %9.1f", c->tflops[i][j]);
      else
        printf(" %9s", "-");
      print_share(c->of_cudnn[i][j]);
      print_share(c->of_peak[i][j]);
    }
  }
  printf("\n");
}

// Draws each problem's results as bars, in proportion to the fraction of the peak.
static void draw_climb(const Climb *c) {
  enum { COLUMNS = 60 };
  for (int j = 0; j < c->layers; j++) {
    printf("\n%-20s 0%%%*s of the peak\n", c->layer[j], COLUMNS + 1, "100%");
    for (int i = 0; i < c->count; i++) {
      const double share = c->of_peak[i][j];
      if (!(share > 0)) continue;
      char bar[COLUMNS + 1] = {};
      memset(bar, '#', (size_t)MIN(COLUMNS * share + 0.5, COLUMNS));
      printf("%-20s |%-*s| %.1f%%\n", c->who[i], COLUMNS, bar, 100 * share);
    }
  }
}
