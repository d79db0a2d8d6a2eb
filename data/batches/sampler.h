// Which images make up the batch of a step: a pure function of the seed and the step, so that a run resumed at any step
// needs no history. Every image of a batch has the same canvas.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "data/batches/canvas.h"

typedef struct SamplerOptions {
  int batch; // images per rank and step
  int rank, world;
  uint64_t seed;
  bool train; // shuffled and endless; otherwise each image once, by canvas, in ascending order
} SamplerOptions;

typedef struct Sampler {
  SamplerOptions options;
  int canvases;
  int *member;                           // images grouped by canvas, ascending within a group
  int first[MAX_CANVASES + 1];           // group c is member[first[c] … first[c + 1])
  int64_t first_batch[MAX_CANVASES + 1]; // batches of group c, counted over all groups
  int64_t steps;                         // per epoch; evaluation: in all
  // The order of one epoch, kept until another is asked for.
  int64_t epoch;
  int *order;                // as member, each group permuted
  int *batch;                // [first_batch[canvases]] the batches in the order in which they come
  struct RankedItem *ranked; // room to sort in
} Sampler;

// place[n]: the canvas of each image, below `canvases`.
void sampler_open(Sampler *s, const uint8_t *canvas_of, int n, int canvases, const SamplerOptions *options);
void sampler_close(Sampler *s);

// Fills index[batch] with this rank's images and returns their canvas. Training: world · batch images make a step, of
// which a rank has its slice; every epoch holds each image once; the last batch of a canvas is filled up from the front
// of that canvas's permutation. Evaluation: the batches are those of one rank, each whole, so that it is computed as
// one rank computes it; they go round the ranks in turn: step s of rank r is batch s · world + r. Places past the last
// image, and all of a batch past the last one, are -1; every rank has as many steps; `step` is below s->steps.
int sampler_batch(Sampler *s, int64_t step, int *index);
int64_t sampler_epoch(const Sampler *s, int64_t step); // evaluation: 0
