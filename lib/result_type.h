// Result types: how a handle turns a batch into results. One row for each maskrcnn_kind.
#pragma once
#include "engine/engine.h"
#include "include/maskrcnn.h"
#include "lib/staging.h"

typedef struct ResultType {
  maskrcnn_kind kind;
  // Checks the options for models of this type; false, with a message, if one does not apply.
  bool (*check)(const maskrcnn_options *o, Err *err);
  // Fills in the fields that depend on the type.
  void (*describe)(const ModelConfig *c, maskrcnn_description *d);
  int usual_canvases; // pixels of a usual image, as a multiple of the largest canvas's
  // Of models that see squares; otherwise NULL. shrink: the integer factor by which an image is scaled down while it is
  // copied. map: the affine map from the scaled-down image to the canvas (nn/batch.h).
  int (*shrink)(Size image, Size canvas);
  void (*map)(const ModelConfig *c, Size image, Size canvas, float map[6]);
  void (*begin)(Engine *e, const Batch *batch); // into the engine's pipeline
  // The oldest batch, which is `b`: a result for each of its images, of at most `top` classes, and the model's
  // counters. False when it is not done and `wait` is false.
  bool (*finish)(Engine *e, const StagedBatch *b, int top, bool wait, const maskrcnn_result **result, int *counter);
  void (*drop)(Engine *e); // forgets what is under way on a device that has failed
} ResultType;

extern const ResultType result_detections;
