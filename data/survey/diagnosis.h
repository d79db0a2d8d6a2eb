// The doctor's results for a data set of any type: the terminal and the page show the same sentences.
#pragma once
#include <stdio.h>
#include "data/survey/histograms.h"

enum { DIAGNOSIS_SPLITS = 2 }; // the training split and the evaluation split

typedef struct Statistic { // "images", "91; without an object: 1"
  char *name, *text;
} Statistic;

typedef struct DiagnosisSplit {
  char *name; // NULL: there is no such split
  char *stop; // why training would stop; NULL: it would not
  // If the split could be opened:
  const Dataset *data; // NULL: it could not be opened
  Statistic statistic[12];
  int num_statistics;
  Histograms histograms;
  const uint32_t *defects; // [data->coco.num_images] bit 1 << index into DefectTypes; NULL: unknown
  int *category;           // [data->coco.num_categories] index into Diagnosis.category
} DiagnosisSplit;

typedef struct DiagnosisCategory {
  const char *name;
  int64_t id;
  int count[DIAGNOSIS_SPLITS]; // objects, or images for classification; -1: the split does not have the category
  int images;                  // training images with such an object
  double size;                 // median size of its objects in training, pixels at the training size
  int number;                  // in the order of the files
} DiagnosisCategory;

typedef struct DiagnosisDefect {
  int split; // -1: concerns both splits
  int count;
  char *what, *treatment;
  char *detail[4]; // the first example and possible causes, a line each; ends with NULL
} DiagnosisDefect;

typedef struct DefectTypes { // types of defects that an image can have, for filtering images
  int n;
  const char *what[32], *treatment[32];
} DefectTypes;

typedef struct Diagnosis { // zero-initialise
  bool classes;            // classification: images with one class each
  char *data;              // the folder
  char *read_as;           // how it was read: "as loaded by train with --size 800"
  char *unseen;            // what was not examined: " in the annotations; …"; NULL: nothing was left out
  bool sound;              // training can start and nothing is wrong
  DiagnosisSplit split[DIAGNOSIS_SPLITS];
  char *absent;                // message that there is no evaluation split; may be NULL
  DiagnosisCategory *category; // in the order in which they are listed
  int categories;
  DiagnosisDefect *defect;
  size_t num_defects, cap_defects;
  DefectTypes defect_types;
  char **concern; // one sentence each
  size_t num_concerns, cap_concerns;
  char *command; // the suggested command; NULL: training cannot start
  char **reason; // of the command's options, one sentence each
  size_t num_reasons, cap_reasons;
} Diagnosis;

// Adds a line of statistics to the split.
void diagnosis_add_statistic(DiagnosisSplit *s, const char *name, const char *fmt, ...) PRINTF_LIKE(3, 4);
void diagnosis_add_defect(Diagnosis *f, int split, const char *what, int count, const char *treatment);
void diagnosis_add_detail(Diagnosis *f, const char *fmt, ...) PRINTF_LIKE(2, 3); // adds a detail to the last defect
void diagnosis_add_concern(Diagnosis *f, const char *fmt, ...) PRINTF_LIKE(2, 3);
void diagnosis_add_reason(Diagnosis *f, const char *fmt, ...) PRINTF_LIKE(2, 3);
void diagnosis_print(FILE *out, const Diagnosis *f);
void diagnosis_free(Diagnosis *f); // does not free the data sets
