// Source: in what form the data sets of a model lie in a folder, and how they are opened. A model's row points to its
// own.
#pragma once
#include "data/batches/dataset.h"

// What a split is opened for. Each source reads what concerns it.
typedef struct SourceOptions {
  DatasetOptions set;   // a set of classes has canvases of resize.size, and of the rest the files' part
  float view;           // how much of an image the canvas of a set of classes shows
  float val_fraction;   // of a set of classes: that share of what would be trained on is "val", …
  uint64_t split_seed;  // … drawn by this
  const Dataset *train; // the training split, whose classes are to be the same; NULL: this is training's
} SourceOptions;

struct Diagnosis;

// What a program asks that looks at a data set without training on it.
typedef struct SourceSurvey {
  const char *dir;
  Size canvas;                       // h = 0: the source's choice
  bool decode;                       // read every file
  void (*tick)(int done, int total); // after an image; may be NULL
  // Called once, with what was found (data/survey/diagnosis.h) and the same as one JSON object; the data set is open
  // until it returns.
  void (*report)(const struct Diagnosis *f, const char *json, const void *context);
  const void *context;
} SourceSurvey;

typedef struct Source {
  const char *learner, *learners; // who learns from it, for messages: "a detector", "detectors"
  const char *wanted;             // what is to be in a folder: "data with boxes"
  // What of this kind a folder holds, "IDX files"; NULL: none. NULL, too, where the splits alone tell.
  const char *(*contents)(const char *dir);
  // Whether there is something to train on, and both can be splits; false with a message.
  bool (*find)(const char *dir, const char *train_split, const char *val_split, Err *err);
  // Whether there is such a split to evaluate on, with options as it would be opened; false with a message.
  bool (*has)(const char *dir, const char *split, const SourceOptions *o, Err *err);
  // As dataset_open. Close with dataset_close.
  bool (*open)(Dataset *d, const char *dir, const char *split, const SourceOptions *o, Err *err);
  // Whether its images are gray ones of one size that training holds in memory; NULL: never.
  bool (*gray)(const char *dir);
  // Reports what is in such a folder, what is wrong with it and which options of ./train suit. True when training can
  // start and nothing is wrong. NULL: data/survey/ looks at it object by object.
  bool (*survey)(const SourceSurvey *s);
} Source;
