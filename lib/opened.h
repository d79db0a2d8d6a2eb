// A handle's model on its device. Only the handle's thread calls these functions.
#pragma once
#include "engine/engine.h"
#include "include/maskrcnn.h"
#include "lib/canvases.h"
#include "lib/result_type.h"

enum { OPENED_NOTE = 1024 };

typedef struct Opened {
  Engine engine;
  const ResultType *result_type; // the model's
  CanvasSet canvases;
  int64_t max_pixels;
  bool gpu, upright;          // encoded images are rotated by their EXIF orientation
  int copiers;                // threads that copy and decode, at most
  int top;                    // classes of an image that results name, at most
  maskrcnn_description about; // its pointers' targets are the following, and the engine's
  maskrcnn_size about_canvas[MAX_CANVASES];
  int64_t *ids;
  const char **names;
  char resize_rule[64];
} Opened;

// Loads the weights and opens an engine for inference; `plan`: only plans its memory, which opened_memory then tells,
// also after MASKRCNN_NO_MEMORY. *note: how the weights were read, or ""; NULL: not wanted. False with what is wrong,
// and `status` says whose fault it is; follow with opened_close in any case.
bool opened_open(Opened *o, const maskrcnn_options *options, bool plan, char note[OPENED_NOTE], maskrcnn_status *status,
                 Err *err);
void opened_close(Opened *o);
// Bytes that it takes, of the GPU and of the host.
void opened_memory(const Opened *o, size_t *device, size_t *host);

// Returns the index of the canvas for an image of h × w pixels, scaled down, and its size on it, for classifiers also
// the map to it; -1, with a message, if none holds it.
int opened_canvas(const Opened *o, int h, int w, ImageInfo *size, Err *err);
// The factor by which an image of h × w pixels is scaled down as it is copied.
int opened_shrink(const Opened *o, int h, int w);
