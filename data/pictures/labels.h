// Label maps: a grey PNG for each image whose pixels identify the detection they belong to, 0 for none. Either
//
//   instances  16 bits: a detection's position in the image's results, from 1
//   classes    its category_id: 8 bits if all ids of the model fit, else 16, for all maps of a run
//
// Where masks overlap, the first detection, which has the highest score, is on top.
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

// Makes the folder. False if it cannot be made, or for classes whose ids are not valid labels: below 1 or above 65535.
bool labels_open(Labels *l, const char *folder, LabelValues values, const ResultClasses *classes, int rank, Err *err);
// Writes FOLDER/NAME.png for an image of h × w pixels with the masks of detections with a score of at least `least`, in
// the order of their results. Errors as in pictures_write.
bool labels_write(const Labels *l, const char *name, int h, int w, const CocoResult *found, int n, double least,
                  Err *err);
void labels_close(Labels *l);
