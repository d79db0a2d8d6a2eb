// The doctor's examination of a detection data set.
#pragma once
#include "data/survey/advice.h"
#include "data/survey/diagnosis.h"
#include "data/survey/suggest.h"

typedef struct CheckupOptions {
  const char *data, *train_split, *val_split;
  const char *train_json, *train_images, *val_json, *val_images; // instead of splits; may be NULL
  int size, max_size, canvases;
  ExifChoice exif;
  MeasureChoice boxes, areas;    // …
  const char *classes;           // …
  bool keep_empty;               // as in DatasetOptions
  const char *range;             // --range LOW,HIGH or type; NULL: as measured
  CrowdChoice crowd;             // …
  const HoldoutOptions *holdout; // what to hold out; NULL: nothing
  int sampled;                   // objects of an image that a training step samples; 0: unknown
  bool weights;                  // training starts from weights, …
  bool pastes_whole;             // … which paste masks over whole pixels, as torchvision's do
  bool gpu;                      // training has one
  bool decode;                   // also read image files and rasterise masks
  void (*looked)(int done, int total);
} CheckupOptions;

typedef struct Checkup { // the results
  Split train, val;      // val.name is NULL without a split to evaluate on
  Advice advice;
  Suggestion suggestion;
  bool sound;
} Checkup;

void checkup_take(Checkup *c, const CheckupOptions *o);
void checkup_free(Checkup *c);
// Fills in the diagnosis; the caller adds the command. Free it before the checkup.
void checkup_diagnosis(Diagnosis *f, const Checkup *c, const CheckupOptions *o);
