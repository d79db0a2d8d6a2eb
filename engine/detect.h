// Detections on the host. The device run-length encodes the masks and writes all results into page-locked memory at the
// end of each batch, without the host's involvement (ops mask_runs and detections_write).
#pragma once
#include "data/coco/rle.h"
#include "engine/engine.h"
#include "engine/outputs.h"
#include "nn/ops.h"

typedef struct Detection {
  int image; // index in the batch
  int label; // 1 … classes-1
  float score;
  float box[4]; // x1 y1 x2 y2, pixels of the decoded image
  Rle mask;     // decoded image's size
} Detection;
typedef struct Detections {
  Detection *items;
  int n;
} Detections;

// What came of a batch of the pipeline. It all lies in the engine, until BATCHES_UNDER_WAY more have been started after
// the batch: who keeps a mask for longer copies it.
typedef struct BatchDetections {
  const Batch *batch;
  Detections detections;
  int counter[MAX_COUNTERS]; // the model's
  double started;            // when the batch was: now_seconds()
} BatchDetections;

// Inference as a pipeline: a batch crosses while the one before is computed, its detections are made while the next one
// is; nothing is allocated on the way, except for a mask that finds no room (MaskRuns) and is pasted on the host.
//
// Starts a batch of the inference shapes, of which at most BATCHES_UNDER_WAY may be started and not handed out. It must
// stay as it is until it is.
void engine_start_detection(Engine *e, const Batch *batch);
// The oldest batch not handed out yet. False when there is none, or when it is not done and `wait` is false.
bool engine_next_detections(Engine *e, bool wait, BatchDetections *out);
int engine_detecting(const Engine *e); // how many batches are started and not handed out
void engine_drop(Engine *e);           // forgets them, of a device that has failed: the engine can be closed, no more

// Of the batch that engine_infer was given last, masks pasted at `threshold`, while the pipeline is empty, in which it
// takes the next one's place. Waits. All is the caller's: free with detections_free.
void engine_detections(Engine *e, const Batch *batch, float threshold, Detections *out);
void detections_free(Detections *d);

// Where the detections of a batch come to the host.
typedef struct DetectorSlot {
  char *block; // page-locked; what the following are parts of
  FoundRows rows;
  int *counter;     // [MAX_COUNTERS]
  ImageInfo *info;  // [groups] of the batch
  Detection *items; // [rows]
  int n;
  const Batch *batch;
  double started;
  void *mark; // reached when the rows are there
} DetectorSlot;

// Engine.results.
typedef struct Detector {
  size_t groups, rows; // of a batch: images, and detections they have room for
  int size;            // of a mask: size × size probabilities
  MaskRuns runs;       // parts of `scratch`
  char *scratch;
  DetectorSlot slot[BATCHES_UNDER_WAY]; // batch s uses slot s % BATCHES_UNDER_WAY
  int64_t started, handed_out;          // batches
} Detector;

extern const Outputs outputs_detections;
