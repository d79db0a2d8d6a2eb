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

// The memory that detections cross to the host in, for engine/task.h.
void detect_plan(Engine *e);
bool detect_allocate(Engine *e, Err *err);
void detect_close(Engine *e);

// Those of the batch that engine_infer was given last, masks pasted at `threshold`. Free with detections_free.
void engine_detections(Engine *e, const Batch *batch, float threshold, Detections *out);
void detections_free(Detections *d);
