// Chooses the images of a step's batch: a pure function of the seed and the step, so that a run can resume at any step
// without history. All images of a batch have the same canvas.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "data/batches/canvas.h"

typedef struct SamplerOptions {
  int batch; // images per rank and step
  int rank, world;
  uint64_t seed;
  bool train;          // shuffled and endless; otherwise each image once, by canvas, in ascending order
  const float *repeat; // [n] how often an epoch of training has each image on average, at least 1; NULL: once. Borrowed
} SamplerOptions;

typedef struct Sampler {
  SamplerOptions options;
  int n, canvases;
  int *member;                           // [n] images grouped by canvas, ascending within a group
  int first[MAX_CANVASES + 1];           // group c is member[first[c] … first[c + 1])
  int first_item[MAX_CANVASES + 1];      // of an epoch's items; the same, unless images are repeated
  int64_t first_batch[MAX_CANVASES + 1]; // index of the first batch of group c among all
  int64_t steps;                         // per epoch; evaluation: in total
  // The order of one epoch, cached until another epoch is asked for.
  int64_t epoch;
  int *order;                // [first_item[canvases]] image + n * copy, copies counted from 0; each group permuted
  int *batch;                // [first_batch[canvases]] order of the batches
  struct RankedItem *ranked; // scratch for sorting
} Sampler;

// canvas_of[n]: the canvas of each image, below `canvases`.
void sampler_open(Sampler *s, const uint8_t *canvas_of, int n, int canvases, const SamplerOptions *options);
void sampler_close(Sampler *s);

// Fills index[batch] with this rank's images and returns their canvas; copy[batch], which may be NULL, tells the copies
// of an image in an epoch apart. Training: a step has world · batch images, of which each rank gets a slice; every
// epoch has each image once, or as often as it is repeated, where a fraction is drawn by systematic sampling, so that
// all epochs are as long; the last batch of a canvas is filled up from the front of that canvas's permutation.
// Evaluation: the batches are those of a single rank, each whole, so that results do not depend on the number of ranks;
// they are assigned to the ranks in turn: step s of rank r is batch s · world + r. Slots past the last image, and all
// slots of batches past the last one, are -1; all ranks have the same number of steps; `step` is below s->steps.
int sampler_batch(Sampler *s, int64_t step, int *index, int *copy);
int64_t sampler_epoch(const Sampler *s, int64_t step); // evaluation: 0
