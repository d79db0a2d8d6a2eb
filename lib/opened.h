// A model on its device, as a handle keeps it; the handle's thread alone calls what is here.
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

// Where an image goes: its size and that on its canvas, whose place is returned; -1, with why: it cannot be used.
int opened_canvas(const Opened *o, const maskrcnn_image *image, ImageInfo *size, Err *err);
// By what both sides of an image that has a place are divided as it is copied: the size above is that of the quotient.
int opened_shrink(const Opened *o, const maskrcnn_image *image);
// What the canvas shows of an image of that size (nn/batch.h, affine), where the kind maps images; else nothing.
void opened_map(const Opened *o, const ImageInfo *size, float map[6]);
