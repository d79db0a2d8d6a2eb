// Optional outputs for each image besides results and overlay: a label map, crops.
#pragma once
#include "data/pictures/crops.h"
#include "data/pictures/labels.h"
#include "inference/options.h"

typedef struct Extras {
  const Labels *maps; // NULL: not requested
  const Crops *cuts;  // NULL: not requested
  Labels labels;
  Crops crops;
  double shown_from; // least score of the detections in them
  int failed;        // pictures that could not be written
} Extras;

// Makes the folders named by the options. The classes are not copied. False with a message.
bool extras_open(Extras *e, const InferOptions *o, const ResultClasses *classes, Err *err);
// Writes an image's label map and crops, with the detections that an overlay shows. Reports and counts what cannot be
// written. `name`: unique to the image. Its pixels are only read for crops.
void extras_write(Extras *e, const char *name, const Image *image, const CocoResult *found, int n);
void extras_close(Extras *e);
