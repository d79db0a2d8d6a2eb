// How the images of a data set are labelled: boxes with masks, or one class each. Set when the data set is opened.
#pragma once
#include <stdbool.h>
#include <stdio.h>
#include "base/scratch.h"
#include "data/batches/augment.h"
#include "nn/batch.h"

struct Dataset; // data/batches/dataset.h

// A usable image and its destination slot in a batch, whose info has its size and its key, and whose bytes are decoded.
typedef struct ImageSlot {
  Batch *batch;
  int position, image, canvas_h, canvas_w;
  Resize resize;          // for this image in this epoch
  const Augment *augment; // NULL: not in this epoch
  int source;             // copy-paste: the image whose objects are pasted over it, and …
  const uint8_t *pasted;  // … its bytes; NULL: none is
  bool masks;             // write masks
  Scratch *scratch;       // for temporary memory; reset by the call
} ImageSlot;

typedef struct ObjectType {
  // Images are mapped to the canvas (ImageInfo.view) and fill it; otherwise they are resized to fit, to info's rh and
  // rw.
  bool mapped;
  int no_label; // label of a slot without an image
  // Writes how the image is shown on the canvas, and its objects. Masks go to the slot's words; offsets are relative to
  // its first word. Returns the number of words.
  int64_t (*write)(const struct Dataset *d, const ImageSlot *p);
  // Prints a few lines: the training data, what was left out, and the canvases.
  void (*print)(const struct Dataset *d, FILE *out);
} ObjectType;
