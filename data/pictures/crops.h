// Crops: a PNG for each detection, cut out of the image along its box. IMAGE-0001-CLASS.png is named after the image,
// the detection's position in its results and the class. The names sort like the results and are unique if the images'
// names are, because CLASS contains no dash.
#pragma once
#include "data/coco/results.h"
#include "data/pictures/pictures.h"

typedef struct Crops {
  Pictures pictures;
  ResultClasses classes;
  bool alpha;
} Crops;

// Makes the folder. False if it cannot be made, or, on rank 0, if it is not empty, because crops of two runs would mix.
// alpha: pixels outside the mask are transparent. The classes are not copied.
bool crops_open(Crops *c, const char *folder, bool alpha, const ResultClasses *classes, int rank, Err *err);
// Writes the crops of an image's detections with a score of at least `least`; `name` is the image's. A box is rounded
// outwards to whole pixels and clipped to the image; a detection outside it has no crop. Stops at the first error, as
// described at pictures_write.
bool crops_write(const Crops *c, const char *name, const Image *image, const CocoResult *found, int n, double least,
                 Err *err);
void crops_close(Crops *c);
