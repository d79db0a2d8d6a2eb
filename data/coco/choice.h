// Which detections of an image are wanted: those above a score, some classes only, the best N only.
#pragma once
#include "data/coco/results.h"

typedef struct ResultChoice {
  ResultClasses classes;
  bool *chosen; // [classes.n]; NULL: all. Owned
  int top;      // of an image, at most; 0: all
  double above; // their scores
} ResultChoice;

// `list`: names or category ids with commas between them, "person,dog,17"; NULL: all. What is a name is no id. False
// with one line for what is neither: it has the nearest names. The classes are not copied.
bool choice_open(ResultChoice *c, const char *list, int top, double above, const ResultClasses *classes, Err *err);
// Of n detections of an image, by descending score, moves those that are wanted to the front, both sorts in the order
// they had, and returns how many these are.
int choice_apply(const ResultChoice *c, CocoResult *found, int n);
void choice_close(ResultChoice *c);
