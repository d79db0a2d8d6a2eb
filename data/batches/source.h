// Source: the form in which a model's data sets are stored, and how to open them. A model's row points to its source.
#pragma once
#include "data/batches/dataset.h"

// Options for opening a split. Each source reads those that concern it.
typedef struct SourceOptions {
  DatasetOptions set;   // classification uses resize.size as the canvas size, and the options about files
  float view;           // classification: fraction of an image that the canvas shows
  const Dataset *train; // the training split, whose classes must match; NULL: this is the training split
} SourceOptions;

struct Diagnosis;

// The doctor's request to examine a data set without training on it.
typedef struct SourceSurvey {
  const char *dir;
  Size canvas;                       // h = 0: the source's default
  const HoldoutOptions *holdout;     // what to hold out; NULL: nothing
  const char *range;                 // of 16-bit images, as given; NULL: as measured
  bool decode;                       // read every file
  void (*tick)(int done, int total); // called after each image; may be NULL
  // Called once with the results (data/survey/diagnosis.h), also as a JSON object; the data set is open until it
  // returns.
  void (*report)(const struct Diagnosis *f, const char *json, const void *context);
  const void *context;
} SourceSurvey;

typedef struct Source {
  const char *learner, *learners; // the models that train on it, in messages: "a detector", "detectors"
  const char *wanted;             // the expected contents of a folder, in messages: "data with boxes"
  // What a folder holds for this source, such as "IDX files"; NULL: nothing, or only the splits can tell.
  const char *(*contents)(const char *dir);
  // Whether there is training data, and both splits can exist; false with a message.
  bool (*find)(const char *dir, const char *train_split, const char *val_split, Err *err);
  // Whether the split to train on exists and has no masks; NULL: that makes no difference.
  bool (*lacks_masks)(const char *dir, const char *split, const SourceOptions *o);
  // Whether the evaluation split exists, given the options for opening it; false with a message.
  bool (*has)(const char *dir, const char *split, const SourceOptions *o, Err *err);
  // As dataset_open. Close with dataset_close.
  bool (*open)(Dataset *d, const char *dir, const char *split, const SourceOptions *o, Err *err);
  // Whether its images are grey, of one size, and kept in memory in training; NULL: never.
  bool (*gray)(const char *dir);
  // Reports what a folder contains, its defects, and suitable ./train options. True if training can start and nothing
  // is wrong. NULL: data/survey/ examines it object by object.
  bool (*survey)(const SourceSurvey *s);
} Source;
