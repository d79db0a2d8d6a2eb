// Class results: a line of JSON for each classified image, {"file", "classes": [{"class", "name", "score"}, …]}, the
// most probable class first, and, where it is known, "truth", the name of the correct class. "class" is the category's
// id. The file is written as base/growing.h describes: it ends with a whole line after every image, and has a temporary
// name until it is complete.
#pragma once
#include "base/file_set.h"
#include "base/growing.h"
#include "include/maskrcnn.h"

typedef struct ClassResults {
  const char *path; // not copied
  GrowingFile lines;
  int images, total; // images done and their total; 0: unknown
  double begun;      // when the file was begun
  double shown;      // when progress was last printed
} ClassResults;

// Checks that neither the file nor its temporary name is one of `inputs`; false with a message.
bool class_results_spare(const char *path, FileSet *inputs, Err *err);
// Begins the file, replacing a partial one left by an earlier run.
bool class_results_begin(ClassResults *r, const char *path, int total, Err *err);
// Exits if the line cannot be written. truth NULL: unknown.
void class_results_add(ClassResults *r, const char *file, const char *truth, const maskrcnn_classes *classes);
// Call when all images are done: gives the file its final name. Exits on failure.
void class_results_commit(ClassResults *r);
// Call when the run ends early: reports which files are left, and where.
void class_results_keep(ClassResults *r);
void class_results_abort(ClassResults *r); // no image was done, so nothing is left behind
