// Speed: the timing report of inference. Start-up (opening the model, the first batch) is separate from the rate after
// it, and the table of latencies leaves out the warm-up.
#pragma once
#include <stdint.h>
#include "data/batches/canvas.h"

// WARM_UP: the first batches of a shape, which are queued kernel by kernel and then recorded, before later ones are
// replayed. SPEED_SHAPES: canvases, and one for images with a handle of their own.
enum { WARM_UP = 2, SPEED_SHAPES = MAX_CANVASES + 1 };

typedef struct Speed {
  int ranks;                    // number of ranks, each of which warms up
  const char *results;          // a batch's results: "masks", "classes"
  double begun;                 // now_seconds()
  double opening, reopening;    // seconds spent opening the model: before the first batch, and later
  double first, last;           // now_seconds() when the first batch and the last were done; 0: none yet
  int64_t images_first, images; // images of the first batch; of all batches
  double decoders;              // images per second that the decoders would yield, decoders_yield; 0: unknown
  int seen[SPEED_SHAPES];       // batches of each shape
  double *ms;                   // [n] latencies after the warm-up, in milliseconds
  int n, left_out;
  size_t room; // capacity of ms
} Speed;

void speed_begin(Speed *s, int ranks, const char *results); // borrowed
void speed_opened(Speed *s, double seconds); // records the time of opening the model; may be called repeatedly
// Records that a batch of a shape is done, and the time since its pixels were handed over.
void speed_batch(Speed *s, int shape, int images, double seconds);
// Prints start-up, rate and latencies of batches of `batch` images, `under_way` of them at a time; nothing if no batch
// was done.
void speed_print(Speed *s, int batch, int under_way);
void speed_free(Speed *s);
