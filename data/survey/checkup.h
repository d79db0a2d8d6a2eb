// A data set of objects with masks, opened and looked at as doctor does.
#pragma once
#include "data/survey/advice.h"
#include "data/survey/diagnosis.h"

typedef struct CheckupOptions {
  const char *data, *train_split, *val_split;
  int size, max_size, canvases;
  bool exif, keep_empty; // as DatasetOptions
  CrowdChoice crowd;     // …
  bool decode;           // look at files and rasterise masks, too
  void (*looked)(int done, int total);
} CheckupOptions;

typedef struct Checkup { // what is known in the end
  Split train, val;      // val.name is NULL without a split to evaluate on
  Advice advice;
  bool sound;
} Checkup;

void checkup_take(Checkup *c, const CheckupOptions *o);
void checkup_free(Checkup *c);
// What it says; the command and its note are the caller's to add. Free before the checkup.
void checkup_diagnosis(Diagnosis *f, const Checkup *c, const CheckupOptions *o);
