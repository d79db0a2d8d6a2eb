// Extras: what is left of an image besides results and overlay: a label map, crops.
#pragma once
#include "data/pictures/crops.h"
#include "data/pictures/labels.h"
#include "inference/options.h"

typedef struct Extras {
  const Labels *maps; // NULL: none are asked for
  const Crops *cuts;  // NULL: none are asked for
  Labels labels;
  Crops crops;
  int failed; // pictures that could not be written
} Extras;

// Makes the folders that the options name. The classes are not copied. False with a message.
bool extras_open(Extras *e, const InferOptions *o, const ResultClasses *classes, Err *err);
// Label map and crops of an image, with detections as well as an overlay shows them. What cannot be written is said and
// counted. `name`: of no other image. The image's pixels are only looked at for crops.
void extras_write(Extras *e, const char *name, const Image *image, const CocoResult *found, int n);
void extras_close(Extras *e);
