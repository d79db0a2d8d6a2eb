// A handle's model on its device. Only the handle's thread calls these functions.
#pragma once
#include "engine/engine.h"
#include "include/maskrcnn.h"
#include "lib/canvases.h"
#include "lib/result_type.h"

typedef struct Opened {
  Engine engine;
  const ResultType *result_type; // the model's
  CanvasSet canvases;
  int64_t max_pixels;
  int top;                    // classes of an image that results name, at most
  maskrcnn_description about; // its pointers' targets are the following, and the engine's
  maskrcnn_size about_canvas[MAX_CANVASES];
  int64_t *ids;
  const char **names;
  char resize_rule[64];
} Opened;

// Loads the weights and opens an engine for inference. False with what is wrong, and `status` says whose fault it is;
// follow with opened_close in any case.
bool opened_open(Opened *o, const maskrcnn_options *options, maskrcnn_status *status, Err *err);
void opened_close(Opened *o);

// Returns the index of the canvas for an image, and the image's size on it, for classifiers also the map to it;
// -1, with a message, if it cannot be used.
int opened_canvas(const Opened *o, const maskrcnn_image *image, ImageInfo *size, Err *err);
// The factor by which an image is scaled down as it is copied; the size above is the scaled-down one.
int opened_shrink(const Opened *o, const maskrcnn_image *image);
