// What the doctor says of a set of classes.
#pragma once
#include <stdbool.h>
#include "data/batches/canvas.h"

typedef struct ClassReport {
  const char *dir;
  Size canvas;                       // h = 0: ClassOptions'
  bool decode, json;                 // read every file; one JSON object instead of text
  void (*tick)(int done, int total); // after an image; may be NULL
} ClassReport;

// Opens training's split and the one to evaluate on, looks at them, and prints what there is, what is wrong, what will
// hurt and which flags of ./train suit on standard output. True when training can start and nothing is wrong.
bool class_report(const ClassReport *r);
