// The command line of ./train.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "data/batches/canvas.h"

typedef struct TrainOptions {
  const char *data, *train_split, *val_split, *model, *out, *weights, *device, *conv, *trace;
  int stop_after, gpus, batch, epochs, warmup, size, max_size, trainable_layers, eval_every, checkpoint_every, limit,
      val_limit;
  int threads, canvases, benchmark, benchmark_loader, schedule, norm, recipe, amp;
  int64_t iters, seed;
  float lr, momentum, weight_decay, clip, flip;
  bool resume, reset_heads, strict, tf32, profile, plan, keep_empty, full_masks, exif;
  Sizes sizes; // none: one size
  // model: NULL = that of weights
  char *resolved; // all of them, one a line, to be shown; owned
} TrainOptions;

extern const char *const schedule_names[]; // of TrainOptions.schedule: "step", "cosine"

// Parses or ends the program: --help exits 0, a mistake prints one line and exits 2.
TrainOptions train_options(int argc, char **argv);
