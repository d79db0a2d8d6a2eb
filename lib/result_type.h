// Kinds: what a handle makes of a batch, a row for each of include/maskrcnn.h's.
#pragma once
#include "engine/engine.h"
#include "include/maskrcnn.h"
#include "lib/staging.h"

typedef struct ResultType {
  maskrcnn_kind kind;
  // Whether the options are such as models of the kind have; false with what is wrong.
  bool (*check)(const maskrcnn_options *o, Err *err);
  // Fills in what is the kind's own.
  void (*describe)(const ModelConfig *c, maskrcnn_description *d);
  int usual_canvases; // pixels of a usual image, as a multiple of the largest canvas's
  // Of models that see squares; otherwise NULL. By what both sides of an image are divided while it is copied, and what
  // the canvas shows of the quotient: nn/batch.h, affine.
  int (*shrink)(Size image, Size canvas);
  void (*map)(const ModelConfig *c, Size image, Size canvas, float map[6]);
  void (*begin)(Engine *e, const Batch *batch); // into the engine's pipeline
  // The oldest batch, which is `b`: a result for each of its images, of at most `top` classes, and the model's
  // counters. False when it is not done and `wait` is false.
  bool (*finish)(Engine *e, const StagedBatch *b, int top, bool wait, const maskrcnn_result **result, int *counter);
  void (*drop)(Engine *e); // forgets what is under way on a device that has failed
} ResultType;

extern const ResultType result_detections;
