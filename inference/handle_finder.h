// The network as an evaluation's Finder, run through include/maskrcnn.h alone: for the canvases of a data set, so that
// batches of its loader are batches of the network.
#pragma once
#include "evaluation/evaluate.h"
#include "include/maskrcnn.h"
#include "inference/options.h"

typedef struct HandleFinder HandleFinder;

// On that device, for batches of --batch. NULL with a message, and err_exit says whose fault it is. Once it is open, a
// network that fails ends the program.
HandleFinder *handle_finder_open(const InferOptions *o, const char *device, const Dataset *d, Err *err);
// What is found names its classes by `category`, which it borrows; box_extra is ModelConfig's.
Finder handle_finder(HandleFinder *f, const Category *category, double box_extra);
// The same with whatever a model makes of images, which Finder.find has begun. Waits; false: no batch is under way.
// What is handed out lasts until as many batches as the finder is ahead have been begun after it.
typedef struct Taken {
  const Batch *batch;
  const maskrcnn_results *results; // of its images, without empty places
  const int *place;                // [results->n] in the batch
  double started;                  // when the batch was: now_seconds()
} Taken;
bool handle_finder_take(HandleFinder *f, Taken *out);
maskrcnn *handle_finder_handle(HandleFinder *f);
void handle_finder_close(HandleFinder *f);
