// The examination of a data set by train, infer and cocoeval before use: a line for each type of defect, and a file
// that lists every defect.
#pragma once
#include "data/survey/defects.h"

typedef struct Examination {
  const char *split; // name in messages; borrowed
  bool scored;       // a ground truth for evaluation; false: a training set
  Defects defects;
} Examination;

// Examines a data set. If it is scored, also the headers of its image files; those that do not match the annotations
// count as bad images. A classification set has no defects. train: the training set, to find images that are in both;
// may be NULL.
void examination_take(Examination *e, const char *split, bool scored, const Dataset *d, const Dataset *train);
// Compares the EXIF orientations of two splits, the first of which was not scored: of its images a sample.
void examination_compare_orientations(Examination *train, const Dataset *of_train, Examination *val,
                                      const Dataset *of_val);
void examination_free(Examination *e);
// "val: boxes without area inside their image: 12; scored as …; first: annotation 7, file 3.png", line by line.
void examination_print(const Examination *e, FILE *out);
// For --strict: false if a ground truth has a defect, with a message that names the first, the number of types and what
// to do.
bool examination_passes(const Examination *e, Err *err);
// Whether any of the n examinations has a defect.
bool examination_any(const Examination *e, int n);
// Writes the rows of data/batches/bad_images.h for n examinations to a file.
bool examination_write(const Examination *e, int n, const char *path, Err *err);
// The same for a run's folder, where no file is written if there is no defect; prints where it is, or why it could not
// be written.
void examination_list(const Examination *e, int n, const char *path);
