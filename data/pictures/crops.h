// Crops: a PNG for each detection, cut out of the image along its box, called IMAGE-0001-CLASS.png after the image, the
// detection's place in its results and the class. These names sort as the results do, and no two are the same where
// the images' names differ: a class has no dash in them.
#pragma once
#include "data/coco/results.h"
#include "data/pictures/pictures.h"

typedef struct Crops {
  Pictures pictures;
  ResultClasses classes;
  bool alpha;
} Crops;

// Makes the folder. False when it cannot be made, or, on rank 0, when anything is in it: crops of two runs would mix.
// alpha: what is no part of the mask is transparent. The classes are not copied.
bool crops_open(Crops *c, const char *folder, bool alpha, const ResultClasses *classes, int rank, Err *err);
// The crops of detections of at least the score `least`, of an image called `name`. A box is rounded outwards to whole
// pixels and ends with the image; a detection outside of it has no crop. Errors as of pictures_write, at the first.
bool crops_write(const Crops *c, const char *name, const Image *image, const CocoResult *found, int n, double least,
                 Err *err);
void crops_close(Crops *c);
