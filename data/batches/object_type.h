// How the images of a data set are labelled: boxes with masks, or one class each. Set when the data set is opened.
#pragma once
#include <stdbool.h>
#include <stdio.h>
#include "base/scratch.h"
#include "data/batches/augment.h"
#include "nn/batch.h"

struct Dataset; // data/batches/dataset.h

// A usable image and its destination slot in a batch, whose info has its size, its key and whether it is flipped.
typedef struct Placing {
  Batch *batch;
  int position, image, canvas_h, canvas_w;
  Resize resize;          // for this image in this epoch
  const Augment *augment; // NULL: not in this epoch
  bool masks;             // whether masks are wanted
  Scratch *scratch;       // for temporary memory; is reset
} Placing;

typedef struct ObjectType {
  // Images are mapped to the canvas (Batch.affine), fill it, and may be augmented; otherwise they are resized to fit,
  // to info's rh and rw.
  bool mapped;
  int no_label; // of a slot without an image
  // Writes the image's position on the canvas, and its objects. Masks go to the slot's words, counted from its first;
  // returns the number of words.
  int64_t (*write)(const struct Dataset *d, const Placing *p);
  // Prints the training data, what was left out, and the canvases: a few lines.
  void (*print)(const struct Dataset *d, FILE *out);
} ObjectType;
