// InferTask: what ./infer makes of the results of a kind of model, detections or classes: a row each, which the model's
// row points to. A run goes down the same road for all of them: images, batches under way (inference/queue.h),
// results in order; at its end stands a sink, whose functions are here.
#pragma once
#include "base/file_set.h"
#include "comm/job.h"
#include "evaluation/byte_buffer.h"
#include "include/maskrcnn.h"
#include "inference/decoders.h"
#include "inference/options.h"
#include "weights/checkpoint.h"

typedef struct InferRun { // what a run is of; constant
  const InferOptions *o;
  const ModelConfig *config; // as trained, but for the options
  float scored_from;         // the score that a detection has to exceed for --eval: the model's own min_score
  const Category *category;  // of the model's classes
  const Checkpoint *weights;
  Job *job;
  bool (*draw)(const char *folder, Err *err); // the page of the scores that are there; NULL: nobody does
} InferRun;

typedef struct InferImages { // that a sink is opened for
  const Dataset *set;        // a data set's; NULL: images that are named
  const char *const *file;   // [n] their files, as they are named
  int n;                     // 0: nobody knows, they come one by one
  bool each_named;           // rather than found in folders or a list
  FileSet inputs, outputs;   // files that the run reads, and writes: of the latter those that a list may not name
} InferImages;

// Sink: what becomes of a run's results. Its kind's struct begins with this.
typedef struct Sink {
  const InferRun *run;
  InferImages *images;
  int rank;
  int done;   // images whose results it has; on the first rank
  int failed; // pictures that could not be written
} Sink;

// All of these end the program where they fail, unless they say otherwise.
typedef struct InferTask {
  const char *results; // of a batch, in tables: "masks", "classes"
  // Once the model is known: refuses options that ask for what another kind does, and fills in what depends on the
  // model. `json` is the caller's to free.
  void (*fit)(InferOptions *o, const ModelConfig *config);
  Sink *(*open)(const InferRun *run);
  // The data set of --data, and the folder of the run, unless it takes `plan` to know that it can be taken.
  void (*open_data)(Sink *s, Dataset *d);
  int (*top)(const InferRun *run, const Dataset *d); // classes of an image that a handle's results name; 0: all
  void (*plan)(Sink *s);                             // what will be written; nothing of it is, yet
  void (*begin)(Sink *s);                            // the first rank's has the result file

  // Of images that are named: whether the sink will look at an image's pixels; NULL: at none. The results of an image,
  // in order, as networks_result has them.
  bool (*looks)(const Sink *s);
  void (*take)(Sink *s, const Decoded *image, const void *results, int in_batch);

  // Of a data set: packs the result of an image for the first rank; takes it there, in order, and tells which image it
  // is, false when it is something else. Then, on the rank that computed it, draws the image, before which `before`
  // images were read; NULL: nothing is drawn.
  void (*pack)(Sink *s, int image, const maskrcnn_result *result, ByteBuffer *to);
  bool (*unpack)(Sink *s, ByteReader *from, int *image);
  void (*draw)(Sink *s, int image, const Image *pixels, const maskrcnn_result *result, int64_t before);

  void (*commit)(Sink *s); // all images are done
  void (*keep)(Sink *s);   // they are not, and will not be: says what is left where
  void (*abort)(Sink *s);  // no image was done, and nothing is left
  void (*score)(Sink *s);  // of a data set that is complete, on the first rank
  void (*close)(Sink *s);
} InferTask;
