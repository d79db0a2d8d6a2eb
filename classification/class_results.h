// Class results: a line of JSON for each image that was classified, {"file", "classes": [{"class", "name", "score"},
// …]}, the likeliest class first, and where it is known "truth", the name of the right one. "class" is the category's
// id. The file grows as base/growing.h says: whole after every image, under another name until it is complete.
#pragma once
#include "base/file_set.h"
#include "base/growing.h"
#include "include/maskrcnn.h"

typedef struct ClassResults {
  const char *path; // not copied
  GrowingFile lines;
  int images, total; // done; that there are, 0: nobody knows
  double begun;      // when the file was
  double shown;      // when progress was last told
} ClassResults;

// Whether the file, and what it is called while it grows, are none of `inputs`; false with a message.
bool class_results_spare(const char *path, FileSet *inputs, Err *err);
// Begins the file, which takes the place of a partial one of a run before.
bool class_results_begin(ClassResults *r, const char *path, int total, Err *err);
// What cannot be written is the program's end. truth NULL: nobody knows.
void class_results_add(ClassResults *r, const char *file, const char *truth, const maskrcnn_classes *classes);
// All images are done: the file takes its place. A failure is the program's end.
void class_results_commit(ClassResults *r);
// They are not, and will not be: says what is left where.
void class_results_keep(ClassResults *r);
void class_results_abort(ClassResults *r); // no image was done, and nothing is left
