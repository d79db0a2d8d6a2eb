// Detections on the host: what TASK_DETECTION's results are made into.
#pragma once
#include "data/formats/rle.h"
#include "engine/engine.h"

typedef struct Detection {
  int image; // place in the batch
  int label; // 1 … classes-1
  float score;
  float box[4]; // x1 y1 x2 y2, pixels of the decoded image
  Rle mask;     // decoded image's size; owned
} Detection;
typedef struct Detections {
  Detection *items;
  int n;
} Detections;

// What detections cross to the host in: Engine.results.
typedef struct Detector {
  size_t groups, rows;   // of a batch: images, and detections they have room for
  size_t mask_bytes;     // room for masks, of one at least: those of a batch that are more are pasted a part at a time
  uint32_t *device_bits; // on the device
  uint32_t *bits;        // page-locked, and the rest, too: as they are on the device
  int *count, *index;    // [groups] [rows]
  void *box, *score;     // [rows, 4] [rows] reals
} Detector;

// For engine/task.h.
void detect_plan(Engine *e);
bool detect_allocate(Engine *e, Err *err);
void detect_close(Engine *e);

// Those of the batch that engine_infer was given last, masks pasted at `threshold`. Free with detections_free.
void engine_detections(Engine *e, const Batch *batch, float threshold, Detections *out);
void detections_free(Detections *d);
