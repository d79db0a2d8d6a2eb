// What the images of a data set are labelled with: boxes with masks, or a class each. Whoever opens a data set says.
#pragma once
#include <stdbool.h>
#include <stdio.h>
#include "base/scratch.h"
#include "data/batches/augment.h"
#include "nn/batch.h"

struct Dataset; // data/batches/dataset.h

// A usable image on its way to its place in a batch, whose info knows its size, its key and whether it is mirrored.
typedef struct Placing {
  Batch *batch;
  int position, image, canvas_h, canvas_w;
  Resize resize;          // of this image in this epoch
  const Augment *augment; // NULL: not in this epoch
  bool masks;             // are wanted
  Scratch *scratch;       // is reset
} Placing;

typedef struct ObjectType {
  // Images come to the canvas by a map (Batch.affine), which fills it, and may be augmented; else they are resized to
  // fit, by info's rh and rw.
  bool mapped;
  int no_label; // of a place without an image
  // Writes where the image comes to lie on the canvas, and its objects. Masks go to the words of the place, counted
  // from its first; returns how many.
  int64_t (*write)(const struct Dataset *d, const Placing *p);
  // What there is to train on, what was left out, and the canvases: a few lines.
  void (*print)(const struct Dataset *d, FILE *out);
} ObjectType;
