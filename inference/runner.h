// Runner: what a stream of images needs of a network: batches of images of one group in, results out.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "data/images/image.h"

typedef enum RunnerState {
  RUNNER_DONE,  // a batch, with its results
  RUNNER_BUSY,  // batches are under way
  RUNNER_EMPTY, // none is
  RUNNER_FAILS, // with a message: nothing more can be computed
} RunnerState;

typedef struct RunnerDone { // a batch that is done
  uint64_t tag;
  void *results; // NULL: none of its images can be computed, for a reason that is theirs alone
  Err why;       // that reason
  bool dropped;  // there are neither: the stream's visitor has said that it is to stop
} RunnerDone;

typedef struct Runner {
  void *context;
  int groups;                                // of images that can share a batch
  int under_way;                             // batches, at most; ≥ 1
  int (*group)(void *context, int h, int w); // of an image of so many pixels: 0 … groups - 1, by its size alone
  int (*batch)(void *context, int group);    // images of a batch of the group, at most; ≥ 1
  // Begins a batch of n images of the group, whose pixels are copied before it returns. False with a message: nothing
  // more can be computed.
  bool (*start)(void *context, int group, const Image *const *image, int n, uint64_t tag, Err *err);
  // A batch that is done, in any order; `wait`: until one is.
  RunnerState (*next)(void *context, bool wait, RunnerDone *done, Err *err);
  void (*release)(void *context, void *results);
} Runner;
