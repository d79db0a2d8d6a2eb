// Selects an image's detections: those above a score, of some classes, or the N best.
#pragma once
#include "data/coco/results.h"

typedef struct ResultChoice {
  ResultClasses classes;
  bool *chosen; // [classes.n]; NULL: all. Owned
  int top;      // at most this many per image; 0: all
  double above; // scores must exceed this
} ResultChoice;

// `list`: names or category ids separated by commas, "person,dog,17"; NULL: all. A number that is also a name is taken
// as the name. False for anything else, with a line that suggests the nearest names. The classes are not copied.
bool choice_open(ResultChoice *c, const char *list, int top, double above, const ResultClasses *classes, Err *err);
// Moves the selected of an image's n detections (by descending score) to the front, keeping the order of both parts,
// and returns how many are selected.
int choice_apply(const ResultChoice *c, CocoResult *found, int n);
void choice_close(ResultChoice *c);
