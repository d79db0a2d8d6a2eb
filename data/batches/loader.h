// From a data set to batches in host memory: threads decode images ahead of the consumer and lay them out with their
// boxes and masks. A batch is a pure function of (data set, options, step), whatever the number of threads.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/util.h"
#include "data/batches/dataset.h"
#include "nn/batch.h"

// A batch; `images` places of which `used` hold an image. An empty place has index -1, a zero ImageInfo and no objects;
// it can stand anywhere: past the end of an evaluation, or where a file could not be read and nothing may replace it.
// Arrays are owned by the loader. Rows past an image's count are zero.
typedef struct Batch {
  int canvas; // index into Dataset.canvas
  int images, used;
  int *index;      // [images] which image: index into Dataset.image, or -1
  ImageInfo *info; // [images]
  uint8_t *bytes;  // RGB of all images, without gaps
  int64_t num_bytes;
  int capacity;   // of objects per image
  float *box;     // [images·capacity, 4] canvas pixels
  int *label;     // [images·capacity]
  int *count;     // [images]
  Bitmap *bitmap; // [images·capacity]; all zero when masks are not asked for
  uint32_t *bits; // of all bitmaps, without gaps
  int64_t num_words;
  int64_t step;
  double wait_seconds; // how long the consumer waited for this batch
} Batch;

// Where batches live: page-locked memory lets a device copy them while the host goes on.
typedef struct HostMemory {
  void *(*alloc)(void *context, size_t bytes); // NULL when there is not enough
  void (*free)(void *context, void *p);
  void *context;
} HostMemory;

typedef struct LoaderOptions {
  int batch; // images per rank and step
  int rank, world;
  uint64_t seed;
  bool train;  // shuffled, flipped, sizes drawn, endless; otherwise each image once, by canvas, in the data set's order
  float flip;  // probability
  int threads; // decoder threads; 0 = one per core
  int prefetch; // batches ahead, ≥ 1
  bool masks;   // rasterise instance bitmaps (training)
  bool strict;  // a bad image is an error; otherwise it is reported once a program, counted, and in training replaced
  int64_t first_step; // resume
  HostMemory memory;  // all zero: the C library's
} LoaderOptions;

// An image is bad when its file cannot be decoded or has another size than the annotations say. The replacement comes
// from the same canvas, keyed by the seed. In evaluation the place stays empty, so that no image counts twice.
typedef struct Loader Loader;

// The data set must outlive the loader. NULL when threads cannot be started.
Loader *loader_open(const Dataset *d, const LoaderOptions *options, Err *err);
// The next batch; valid until the next call. NULL with an empty message at the end of an evaluation, NULL with a
// message when an image is bad under `strict` or, in training, no image of the batch can be read.
const Batch *loader_next(Loader *l, Err *err);
int64_t loader_steps_per_epoch(const Loader *l); // evaluation: steps in all
int loader_bad_images(const Loader *l);          // different ones met so far
int loader_threads(const LoaderOptions *o);      // how many there will be

// Where decoder threads spend their time: files, pixels, boxes and masks, closing the gaps between images.
typedef enum LoaderStage { LOADER_READ, LOADER_DECODE, LOADER_MASKS, LOADER_COPY, LOADER_STAGES } LoaderStage;
extern const char *const loader_stage_names[LOADER_STAGES];
// So far, summed over the threads.
void loader_seconds(Loader *l, double seconds[LOADER_STAGES]);

// Stops the threads, wherever they are, and frees everything.
void loader_close(Loader *l);
