// Loads batches into host memory: threads decode images ahead of the consumer and lay them out with their boxes and
// masks. A batch is a pure function of (data set, options, step), whatever the number of threads.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "data/batches/augment.h"
#include "data/batches/dataset.h"
#include "nn/batch.h"

// The allocator for batches: with page-locked memory a device can copy them asynchronously.
typedef struct HostMemory {
  void *(*alloc)(void *context, size_t bytes); // NULL if out of memory
  void (*free)(void *context, void *p);
  void *context;
} HostMemory;

typedef struct LoaderOptions {
  int batch;       // images per rank and step
  int rank, world; // of this process: sampler_batch
  uint64_t seed;
  bool train;            // shuffled, augmented, endless; otherwise each image once, by canvas, in the data set's order
  int threads;           // decoder threads; 0 = one per core
  int prefetch;          // batches ahead, ≥ 1
  int held;              // number of most recent batches from loader_next that stay valid; 0 = 1
  bool masks;            // rasterise instance bitmaps (training)
  Augment augment;       // in training
  int64_t augment_after; // epochs without augmentation at the beginning
  bool strict; // a bad image is an error; otherwise it is reported once per program, counted, and in training replaced
  int64_t first_step; // resume
  int64_t end_step;   // training: no batch of this step or a later one is loaded; 0: endless
  HostMemory memory;  // all zero: malloc
} LoaderOptions;

// Bytes that loader_open allocates from HostMemory for `prefetch` batches ahead and `held` batches of this size.
size_t loader_ring_bytes(const BatchSize *room, int prefetch, int held);
// Approximate memory of the decoder threads themselves after decoding the largest image, whose pixels take so many
// bytes.
size_t loader_scratch_bytes(int threads, int64_t image_bytes);

// An image is bad if its file cannot be decoded or its size differs from the annotations. Its replacement has the same
// canvas and is drawn with the seed. In evaluation the slot stays empty, so that no image counts twice. An image whose
// file disappeared after the set was opened is bad once the set's patience is over.
typedef struct Loader Loader;

// The data set must outlive the loader. NULL if threads cannot be started or memory runs out.
Loader *loader_open(const Dataset *d, const LoaderOptions *options, Err *err);
// The next batch; valid until the `held`-th call after this one. NULL with an empty message at the end; NULL with a
// message if an image is bad under `strict`, if in training no image of the batch can be read, if memory runs out, or
// if storage fails, which does not make an image bad.
const Batch *loader_next(Loader *l, Err *err);
// Waits until all prefetched batches are ready and the decoder threads sleep, for timing what follows.
void loader_settle(Loader *l);
int64_t loader_steps_per_epoch(const Loader *l); // evaluation: number of steps, the same on every rank
int loader_bad_images(const Loader *l);          // distinct images so far
int loader_threads(const LoaderOptions *o);      // the number of threads that will be started

// Time spent by decoder threads: files, pixels, boxes and masks, closing the gaps between images.
typedef enum LoaderStage { LOADER_READ, LOADER_DECODE, LOADER_MASKS, LOADER_COPY, LOADER_STAGES } LoaderStage;
extern const char *const loader_stage_names[LOADER_STAGES];
// Seconds so far, summed over the threads.
void loader_seconds(Loader *l, double seconds[LOADER_STAGES]);

// Stops the threads, even in the middle of a batch, and frees everything.
void loader_close(Loader *l);
