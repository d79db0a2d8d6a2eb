// Confusion: which classes a classifier or a detector takes for which, as text and as JSON.
#pragma once
#include <stdint.h>
#include <stdio.h>
#include "base/error.h"

typedef struct Confusion {
  int classes;
  const int64_t *count;    // [classes, classes] images: the row is the truth, the column what was predicted
  const char *const *name; // [classes] anything; NULL or "": the class's number stands for it. NULL: all are numbers
  // Of a detector (data/coco/cocoeval_confusion.h): objects are counted instead of images, and the last class is the
  // background, whose row has the detections of nothing, and whose column the objects that were not found.
  bool background;
  const char *rule; // of a detector: which detections count, and when they match; NULL: not said
} Confusion;
enum { CLASS_NUMBER = 16 };
const char *confusion_name(const Confusion *c, int class,
                           char number[CLASS_NUMBER]); // its own, or its number; "background"

// Of one class. Where there is nothing to divide by, a share is NaN, and of the background they all are.
typedef struct ClassFigures {
  int64_t images, predicted, right; // that are of the class, that were taken for it, and both
  double precision, recall, f1;     // right / predicted, right / images, 2 · right / (predicted + images)
} ClassFigures;
ClassFigures confusion_figures(const Confusion *c, int class);
int64_t confusion_images(const Confusion *c);     // or objects: the background's row is not among them
int64_t confusion_detections(const Confusion *c); // what was predicted, but for the background
int64_t confusion_right(const Confusion *c);

// Two classes of which one was taken for the other.
typedef struct Mistake {
  int truth, predicted;
  int64_t images;
} Mistake;
// The commonest mistakes, at most `most` of them, the lowest truth and prediction first among equals; returns how many.
int confusion_mistakes(const Confusion *c, Mistake *to, int most);

// For people: accuracy; up to 30 classes all counts with precision and recall of each class, and otherwise the classes
// that are recognised worst and the commonest mistakes.
void confusion_print(FILE *f, const Confusion *c);
bool confusion_text(const char *path, const Confusion *c, Err *err); // the same as a file
// One line: {"classes", "images", "right", "top1", "class": [{"name", "images", "predicted", "right", "precision",
// "recall", "f1"}, …], "matrix": [[…], …]}; the matrix as in `count`, null for NaN. Of a detector {"classes",
// "objects", "detections", "right", "recall", "precision", "rule", "class": [{"name", "objects", "detections", …}, …],
// "matrix"}: the background is in the matrix alone.
bool confusion_json(const char *path, const Confusion *c, Err *err);
// Both, as FOLDER/confusion.txt and .json. Each replaces what is there as a whole.
bool confusion_write(const char *folder, const Confusion *c, Err *err);
