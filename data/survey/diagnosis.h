// What doctor says of a data set, whatever its kind: the terminal prints it and the page shows it, both in the same
// sentences.
#pragma once
#include <stdio.h>
#include "data/survey/histograms.h"

enum { FOUND_SPLITS = 2 }; // the one to train on, and the one to evaluate on

typedef struct Said { // "images", "91; without an object: 1"
  char *name, *text;
} Said;

typedef struct FoundSplit {
  char *name; // NULL: there is no such split
  char *stop; // why training would stop; NULL: it would not
  // Of a split that could be opened:
  const Dataset *data; // NULL: it could not
  Said said[8];        // what there is
  int num_said;
  Histograms histograms;
  const uint32_t *defects; // [data->coco.num_images] bit 1 << place in DefectTypes; NULL: nothing is known
  int *category;           // [data->coco.num_categories] place in Diagnosis.category
} FoundSplit;

typedef struct FoundCategory {
  const char *name;
  int64_t id;
  int count[FOUND_SPLITS]; // objects, of a set of classes images; -1: the split does not know it
  int images;              // of training that hold one
  double size;             // median of its objects in training, pixels at the training size
} FoundCategory;

typedef struct FoundWrong {
  int split; // -1: what two have in common
  int count;
  char *what, *treatment;
  char *detail[3]; // lines: the first example, what it may come from; NULL: no more
} FoundWrong;

typedef struct DefectTypes { // of what can be wrong with an image, for those who look for such images
  int n;
  const char *what[32], *treatment[32];
} DefectTypes;

typedef struct Diagnosis { // zero-initialise
  bool classes;            // a set of classes: images with one class each
  char *data;              // the folder
  char *read_as;           // how it was read: "as loaded by train with --size 800"
  char *unseen;            // what was not looked at: " in the annotations; …"; NULL: nothing was left
  bool sound;              // training can start and nothing is wrong
  FoundSplit split[FOUND_SPLITS];
  char *absent;            // that there is no split to evaluate on; may be NULL
  FoundCategory *category; // in the order in which they are listed
  int categories;
  FoundWrong *wrong;
  size_t num_wrong, cap_wrong;
  DefectTypes defect_types;
  char **hurt; // one sentence each
  size_t num_hurts, cap_hurts;
  char *command; // that is suggested; NULL: training cannot start
  char *note;    // about it; may be NULL
} Diagnosis;

// A line of what there is in the split.
void found_say(FoundSplit *s, const char *name, const char *fmt, ...) PRINTF_LIKE(3, 4);
void found_wrong(Diagnosis *f, int split, const char *what, int count, const char *treatment);
void found_detail(Diagnosis *f, const char *fmt, ...) PRINTF_LIKE(2, 3); // of the last of found_wrong
void found_hurt(Diagnosis *f, const char *fmt, ...) PRINTF_LIKE(2, 3);
void diagnosis_print(FILE *out, const Diagnosis *f);
void diagnosis_free(Diagnosis *f); // the data sets are others'
