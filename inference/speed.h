// Speed: what a run of inference tells of its time. Start-up (opening the model, the first batch) stands apart from the
// rate after it, and a table of latencies leaves the warm-up out.
#pragma once
#include <stdint.h>
#include "data/batches/canvas.h"

// Batches of a shape that are queued kernel by kernel, and recorded, before they are replayed; shapes: canvases, and
// all that have one of their own.
enum { WARM_UP = 2, SPEED_SHAPES = MAX_CANVASES + 1 };

typedef struct Speed {
  int ranks;                    // that compute, each of which warms up
  const char *results;          // what comes of a batch: "masks", "classes"
  double begun;                 // now_seconds()
  double opening, reopening;    // seconds spent on opening the model: before the first batch, and after it
  double first, last;           // now_seconds() when the first batch and the last were done; 0: none yet
  int64_t images_first, images; // of the first batch; of all
  double decoders;              // images a second that decoders would yield, decoders_yield; 0: not known
  int seen[SPEED_SHAPES];       // batches of each shape
  double *ms;                   // [n] latencies after the warm-up, in milliseconds
  int n, left_out;
  size_t room; // of ms
} Speed;

void speed_begin(Speed *s, int ranks, const char *results); // borrowed
void speed_opened(Speed *s, double seconds);                // the model was opened, which took so long; may come again
// A batch of a shape is done, so long after its pixels were handed over.
void speed_batch(Speed *s, int shape, int images, double seconds);
// Start-up, rate and latencies of batches of `batch` images, `under_way` of them at a time, on standard output; nothing
// where no batch was done.
void speed_print(Speed *s, int batch, int under_way);
void speed_free(Speed *s);
