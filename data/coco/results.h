// Where the detections of images go, one image after another, in either of two forms:
//
//   coco   an array of detections, {image_id, category_id, bbox, score, segmentation}, as COCO's evaluation reads it
//   jsonl  a line an image: {"image_id", "file_name", "width", "height", "detections": [{category, category_id, bbox,
//          score, segmentation}, …]}; an image without detections has its line, too
//
// Boxes are x y w h in pixels of the image, masks COCO's compressed runs, with `polygons` as polygons besides. Both
// files grow as base/growing.h says: whole after every image, under another name until they are complete. Of lines, all
// that end in a newline are whole, whatever ended the program.
#pragma once
#include "data/coco/coco.h"

typedef enum ResultFormat { RESULTS_COCO, RESULTS_JSONL } ResultFormat;
extern const char *const result_formats[]; // for base/cli.h

// A class that a model knows.
typedef struct ResultClass {
  int64_t id;       // category_id
  const char *name; // NULL or "": it has none
} ResultClass;
typedef struct ResultClasses {
  const ResultClass *items;
  int n;
} ResultClasses;
const char *result_class_name(const ResultClasses *classes, int64_t id); // "" for one that is unknown or has none

typedef struct ResultImage {
  int64_t id;
  const char *file_name; // as it was named by whoever asked, or by the data set
  int h, w;              // pixels
} ResultImage;

typedef struct ResultWriter {
  ResultFormat format;
  CocoWriter coco;   // RESULTS_COCO
  GrowingFile lines; // RESULTS_JSONL
  bool polygons;
  ResultClasses classes;
  int64_t n; // detections so far
} ResultWriter;

// The classes are not copied.
bool results_open(ResultWriter *w, const char *path, ResultFormat format, bool polygons, const ResultClasses *classes,
                  Err *err);
// All detections of an image, or none: false when they cannot be written, or one is not finite. Then nothing more can
// be added.
bool results_add(ResultWriter *w, const ResultImage *image, const CocoResult *found, int n, Err *err);
// What FILE is called so far; that of a pipe is its own name, and what it has got cannot be had again.
const char *results_partial(const ResultWriter *w);
// What results that a run before had begun at FILE, and not finished, are called from here on; NULL: there are none.
const char *results_kept(const ResultWriter *w);
bool results_direct(const ResultWriter *w); // it is a pipe or a device
// All is there: it takes the place of FILE. Releases the writer in any case.
bool results_commit(ResultWriter *w, Err *err);
void results_keep(ResultWriter *w);  // leaves the partial file
void results_abort(ResultWriter *w); // removes it
