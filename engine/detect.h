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
  Rle mask;     // of the decoded image's size; without runs from a model without masks
} Detection;
typedef struct Detections {
  Detection *items;
  int n;
} Detections;

// The results of a batch of the pipeline. They stay in the engine's memory until BATCHES_UNDER_WAY more batches have
// been started; masks that are needed longer must be copied.
typedef struct BatchDetections {
  const Batch *batch;
  Detections detections;
  int counter[MAX_COUNTERS]; // the model's
  double started;            // when the batch was started: now_seconds()
} BatchDetections;

// Inference as a pipeline: a batch is copied to the device while the one before is computed, and its detections are
// made while the next one is computed. Nothing is allocated, except for masks without room for their runs (MaskRuns),
// whose runs are made on the host.
//
// Starts a batch of the inference shapes. At most BATCHES_UNDER_WAY may be started and not yet handed out, and the
// batch must not change until its results are.
void engine_start_detection(Engine *e, const Batch *batch);
// Hands out the results of the oldest batch. False if there is none, or if it is not done and `wait` is false.
bool engine_next_detections(Engine *e, bool wait, BatchDetections *out);
int engine_detecting(const Engine *e); // number of batches started and not handed out
// After a device failure: forgets all batches; the engine can then only be closed.
void engine_drop(Engine *e);

// The detections of the last batch given to engine_infer, with masks pasted at `threshold`; the pipeline must be empty,
// and its next slot is used. Waits. Free with detections_free.
void engine_detections(Engine *e, const Batch *batch, float threshold, Detections *out);
void detections_free(Detections *d);

// Host memory for the detections of a batch.
typedef struct DetectorSlot {
  char *block; // page-locked; contains the following
  DetectionRows rows;
  int *counter;     // [MAX_COUNTERS]
  ImageInfo *info;  // [groups] images of the batch
  Detection *items; // [rows]
  int n;
  const Batch *batch;
  double started;
  void *mark; // reached when the rows have arrived
} DetectorSlot;

// Engine.results.
typedef struct Detector {
  size_t groups, rows; // images of a batch, and its capacity for detections
  int size;            // a mask has size × size probabilities; 0: the model has no masks
  MaskRuns runs;       // parts of `scratch`; not used without masks
  char *scratch;
  DetectorSlot slot[BATCHES_UNDER_WAY]; // batch s uses slot s % BATCHES_UNDER_WAY
  int64_t started, handed_out;          // batches
} Detector;

extern const Outputs outputs_detections, outputs_boxes; // with and without masks
