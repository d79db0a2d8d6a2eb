// Confusion: the confusion matrix of a classifier or a detector, as text and as JSON.
#pragma once
#include <stdint.h>
#include <stdio.h>
#include "base/error.h"

typedef struct Confusion {
  int classes;
  size_t cells;
  const int64_t *cell;     // [cells] row * classes + column, ascending: the true and the predicted class
  const int64_t *count;    // [cells] images; all other cells have none
  const char *const *name; // [classes]; NULL or "": the class's number is shown. NULL: numbers only
  // For a detector (data/coco/cocoeval_confusion.h): counts objects instead of images, and the last class is the
  // background: its row has detections that match no object, its column objects that were not detected.
  bool background;
  const char *rule; // detectors: which detections count, and when they match; NULL: not described
} Confusion;
enum { CLASS_NUMBER = 16 };
const char *confusion_name(const Confusion *c, int class,
                           char number[CLASS_NUMBER]); // the class's name or number, or "background"

// Counts and ratios of one class. A ratio is NaN if the divisor is 0, and always for the background.
typedef struct ClassFigures {
  int64_t images, predicted, right; // images of the class, predicted as the class, and both
  double precision, recall, f1;     // right / predicted, right / images, 2 · right / (predicted + images)
} ClassFigures;
ClassFigures *confusion_figures(const Confusion *c); // [classes]; caller frees
int64_t confusion_images(const Confusion *c);        // images, or for a detector objects: without the background's row
int64_t confusion_detections(const Confusion *c);    // predictions, without the background
int64_t confusion_right(const Confusion *c);

// A class and the other class that was predicted for it.
typedef struct Mistake {
  int truth, predicted;
  int64_t images;
} Mistake;
// The most frequent mistakes, at most `most` of them, ties by the lowest truth and prediction; returns their number.
int confusion_mistakes(const Confusion *c, Mistake *to, int most);

// As text: accuracy; with up to 30 classes all counts with precision and recall of each class, otherwise the classes
// that are recognised worst and the most frequent mistakes.
void confusion_print(FILE *f, const Confusion *c);
bool confusion_text(const char *path, const Confusion *c, Err *err); // the same, written to a file
// One line: {"classes", "images", "right", "top1", "class": [{"name", "images", "predicted", "right", "precision",
// "recall", "f1"}, …], "matrix": [[…], …]}, null for NaN. For a detector {"classes", "objects", "detections", "right",
// "recall", "precision", "rule", "class": [{"name", "objects", "detections", …}, …], "matrix"}: only the matrix
// includes the background. With more than 1000 classes, "cells": [[row, column, count], …], without zeros, replaces
// the matrix.
bool confusion_json(const char *path, const Confusion *c, Err *err);
// Writes both, as FOLDER/confusion.txt and .json; each is replaced atomically.
bool confusion_write(const char *folder, const Confusion *c, Err *err);
