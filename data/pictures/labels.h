// Label maps: a PNG for each image, gray, whose pixels say which detection they belong to, 0 for none. Either
//
//   instances  16 bits: a detection's place in the image's results, from 1 on
//   classes    its category_id: 8 bits where all ids of the model fit, else 16; all maps of a run have the same
//
// Where masks overlap, the detection that comes first, the one with the best score, is in front.
#pragma once
#include "data/coco/results.h"
#include "data/pictures/pictures.h"

typedef enum LabelValues { LABELS_INSTANCES, LABELS_CLASSES } LabelValues;
extern const char *const label_values[]; // for base/cli.h

typedef struct Labels {
  Pictures pictures;
  LabelValues values;
  int sample_bytes;
} Labels;

// Makes the folder. False when it cannot be made, or when classes are asked for whose ids are no labels: below 1 or
// above 65535.
bool labels_open(Labels *l, const char *folder, LabelValues values, const ResultClasses *classes, int rank, Err *err);
// FOLDER/NAME.png of an image of h × w pixels with the masks of detections of at least the score `least`, in the order
// of their results. Errors as of pictures_write.
bool labels_write(const Labels *l, const char *name, int h, int w, const CocoResult *found, int n, double least,
                  Err *err);
void labels_close(Labels *l);
