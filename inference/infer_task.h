// InferTask: how ./infer processes the results of one model type, detections or classes; the model's row points to its
// task. The pipeline is the same for all: images, batches in flight (inference/queue.h), results in order; it ends in a
// sink, whose functions are declared here.
#pragma once
#include "base/file_set.h"
#include "comm/job.h"
#include "evaluation/byte_buffer.h"
#include "include/maskrcnn.h"
#include "inference/decoders.h"
#include "inference/options.h"
#include "weights/checkpoint.h"

typedef struct InferRun { // constants of a run
  const InferOptions *o;
  const ModelConfig *config; // as trained, except for the options
  float scored_from;         // score that a detection must exceed for --eval: the model's own min_score
  const Category *category;  // the model's classes
  const Checkpoint *weights;
  Job *job;
  bool (*draw)(const char *folder, Err *err); // draws the page of the scores; NULL: none
} InferRun;

// Of 16-bit images: that of the weights, or of --range.
static inline SampleRange range_of_run(const InferRun *r) {
  return (SampleRange){r->config->range_low, r->config->range_high};
}

typedef struct InferImages { // describes the images for which a sink is opened
  int turned;                // of a data set, images with an EXIF orientation; -1: unknown
  const Dataset *set;        // of a data set; NULL: named images
  const char *const *file;   // [n] file names as given
  int n;                     // 0: unknown
  bool each_named;           // every image is named on the command line, none comes from a folder or a list
  FileSet inputs, outputs;   // files that the run reads; files that it writes, which a list must not name
} InferImages;

// Sink: receives a run's results. Each type's struct begins with this.
typedef struct Sink {
  const InferRun *run;
  InferImages *images;
  int rank;
  int done;   // number of images with results; on rank 0
  int failed; // pictures that could not be written
} Sink;

// All functions exit on failure, unless stated otherwise.
typedef struct InferTask {
  const char *results; // a batch's results, in tables: "masks", "classes"
  OwnFile own;         // its file of results, in the usual format
  // Called once the model is known: refuses options that do not apply to its type, and fills in what depends on the
  // model. The caller frees `json`.
  void (*fit)(InferOptions *o, const ModelConfig *config);
  Sink *(*open)(const InferRun *run);
  // Opens the data set of --data, and makes the run's folder unless `plan` does.
  void (*open_data)(Sink *s, Dataset *d);
  int (*top)(const InferRun *run, const Dataset *d); // number of classes per image in a handle's results; 0: all
  void (*plan)(Sink *s);                             // decides what will be written, without writing anything yet
  void (*begin)(Sink *s);                            // rank 0 opens the result file

  // For named images: whether the sink needs an image's pixels; NULL: never. Then the results of an image, in order, as
  // described at networks_result.
  bool (*looks)(const Sink *s);
  void (*take)(Sink *s, const Decoded *image, const void *results, int in_batch);

  // For a data set: `pack` packs the result of an image for rank 0; `take` receives it there, in order, and sets the
  // image's index; false if the data is malformed. Then `settle`, on the rank that computed it, draws over the image's
  // pixels, before which `before` images were read; NULL: nothing is drawn.
  void (*pack)(Sink *s, int image, const maskrcnn_result *result, ByteBuffer *to);
  bool (*unpack)(Sink *s, ByteReader *from, int *image);
  void (*draw)(Sink *s, int image, const Image *pixels, const maskrcnn_result *result, int64_t before);

  void (*commit)(Sink *s); // all images are done
  void (*keep)(Sink *s);   // the run ends early: reports which files are left, and where
  void (*abort)(Sink *s);  // no image was done, so nothing is left behind
  void (*score)(Sink *s);  // for a data set that is complete, on rank 0
  void (*close)(Sink *s);
} InferTask;
