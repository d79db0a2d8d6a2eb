// A split of a data set: what a detector finds in it, and its scores as COCO computes them.
#pragma once
#include "data/coco/coco.h"
#include "data/coco/cocoeval.h"
#include "engine/detect.h"

extern const struct Task task_detection; // evaluation/detection_task.c

// Who finds detections: what an evaluation needs of a network.
typedef struct Finder {
  void *context;
  // A pipeline in which at most `ahead` batches are started and not handed out. A batch stays as it is until it is
  // handed out; what was found in it lasts until `ahead` more have been started.
  void (*find)(void *context, const Batch *batch);
  bool (*found)(void *context, Found *out); // the oldest; waits; false when there is none
  int ahead;
  // What is asked of batches:
  int images, prefetch; // as LoaderOptions'
  HostMemory memory;    // for as many as are held and prefetched
  // What detections are:
  const Category *category; // [labels]
  double box_extra;         // as ModelConfig's
} Finder;
Finder finder_of(Engine *e);

// Who watches an evaluation; may be NULL, and so may each function. "In order": of the batches of one rank, whoever
// computes them.
typedef struct Visitor {
  void *context;
  // On rank 0, in order: what was found in image i of the data set.
  void (*image)(void *context, const Dataset *d, int i, const CocoResult *found, int n);
  // On rank 0, in order: what a batch took from decoded images to masks, behind those under way before it.
  void (*took)(void *context, double seconds);
  // On the rank that computed it: a batch, after rank 0 was told of its images, and of `before` that come before them.
  void (*batch)(void *context, const Dataset *d, const Batch *batch, const Detections *found, int64_t before);
  bool (*stopped)(void); // asked before each batch, on every rank
} Visitor;

typedef struct Scores {
  EvalSummary bbox, segm;
} Scores;

// What a model found in a data set. Images that cannot be read are left out of it, objects and all.
typedef struct Evaluation {
  CocoResults found; // in the file's ids, boxes x y w h in original pixels, masks cut at 0.5
  bool *read;        // [num_images] of the data set: which of them it is about
  int images;        // how many these are
  int left_out;      // of the split's, because they could not be read
  Scores scores;     // the task's, once it has scored
} Evaluation;

// Runs inference over the whole data set, whose shapes the engine was opened with, shared out over the engine's ranks:
// results are the same whatever their number, and stand on rank 0; the others have an empty evaluation. Free with
// evaluation_free, whatever is returned, which is the same on all ranks: false with a message when an image stops a
// loader or none can be read, false with an empty one when a visitor said that it is to stop.
bool evaluate_run(Engine *e, const Dataset *d, int threads, const Visitor *visitor, Evaluation *out, Err *err);
// The same by any finder, whose shapes must hold the data set's images; comm: the ranks, each with a finder.
bool evaluate_with(const Finder *finder, Comm *comm, const Dataset *d, int threads, const Visitor *visitor,
                   Evaluation *out, Err *err);
void evaluation_free(Evaluation *v);

// A detection in an image of that id as result files have it; its mask is borrowed.
CocoResult evaluate_result(const Finder *f, int64_t image_id, const Detection *d);

// The ground truth of the images that were read: a shallow copy whose `images` are the caller's to free.
Coco evaluate_view(const Dataset *d, const Evaluation *v);
// Against that.
bool evaluate_score(const Dataset *d, const Evaluation *v, Scores *out, Err *err);
void scores_free(Scores *s);
// Every category of the data set must be one of a model's n; false with a message that names the first that is not.
bool evaluate_categories(const Category *category, int n, const Dataset *d, Err *err);
