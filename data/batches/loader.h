// From a data set to batches in host memory: threads decode images ahead of the consumer and lay them out with their
// boxes and masks. A batch is a pure function of (data set, options, step), whatever the number of threads.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "data/batches/augment.h"
#include "data/batches/dataset.h"
#include "nn/batch.h"

// Where batches live: page-locked memory lets a device copy them while the host goes on.
typedef struct HostMemory {
  void *(*alloc)(void *context, size_t bytes); // NULL when there is not enough
  void (*free)(void *context, void *p);
  void *context;
} HostMemory;

typedef struct LoaderOptions {
  int batch;       // images per rank and step
  int rank, world; // who takes which: sampler_batch
  uint64_t seed;
  bool train;  // shuffled, flipped, sizes drawn, endless; otherwise each image once, by canvas, in the data set's order
  float flip;  // probability
  int threads; // decoder threads; 0 = one per core
  int prefetch;    // batches ahead, ≥ 1
  int held;        // batches that stay valid, those that loader_next returned last; 0 = 1
  bool masks;      // rasterise instance bitmaps (training)
  Augment augment; // sets of classes, in training: how images are turned, and cut; flip, too, is theirs
  int64_t augment_from, augment_until; // epochs in which they are, from the first to below the second; 0: to the end
  bool strict; // a bad image is an error; otherwise it is reported once a program, counted, and in training replaced
  int64_t first_step; // resume
  HostMemory memory;  // all zero: the C library's
} LoaderOptions;

// Bytes of HostMemory that loader_open takes for batches with so much room, `prefetch` of them ahead and `held`.
size_t loader_ring_bytes(const BatchSize *room, int prefetch, int held);
// About what decoder threads take by themselves once they have met the largest image, of so many bytes as pixels.
size_t loader_scratch_bytes(int threads, int64_t image_bytes);

// An image is bad when its file cannot be decoded or has another size than the annotations say. The replacement comes
// from the same canvas, keyed by the seed. In evaluation the place stays empty, so that no image counts twice. An image
// whose file is gone since the set was opened is bad once the set's patience is over.
typedef struct Loader Loader;

// The data set must outlive the loader. NULL when threads cannot be started, or memory is out.
Loader *loader_open(const Dataset *d, const LoaderOptions *options, Err *err);
// The next batch; valid until the call that asks for the `held`-th after it. NULL with an empty message at the end of
// an evaluation, NULL with a message when an image is bad under `strict` or, in training, no image of the batch can be
// read, or memory is out, or no file can be read any more: that makes no image a bad one.
const Batch *loader_next(Loader *l, Err *err);
// Waits until every batch ahead is there, so that the decoder threads sleep: for who times what comes after it.
void loader_settle(Loader *l);
int64_t loader_steps_per_epoch(const Loader *l); // evaluation: steps in all, of every rank as many
int loader_bad_images(const Loader *l);          // different ones met so far
int loader_threads(const LoaderOptions *o);      // how many there will be

// Where decoder threads spend their time: files, pixels, boxes and masks, closing the gaps between images.
typedef enum LoaderStage { LOADER_READ, LOADER_DECODE, LOADER_MASKS, LOADER_COPY, LOADER_STAGES } LoaderStage;
extern const char *const loader_stage_names[LOADER_STAGES];
// So far, summed over the threads.
void loader_seconds(Loader *l, double seconds[LOADER_STAGES]);

// Stops the threads, wherever they are, and frees everything.
void loader_close(Loader *l);
