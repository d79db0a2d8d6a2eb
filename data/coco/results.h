// Writes the detections of images, one image after another, in one of two formats:
//
//   coco   an array of detections, {image_id, file_name, category, category_id, bbox, score, segmentation}, as COCO's
//          evaluation reads it, which ignores the two names
//   jsonl  a line per image: {"image_id", "file_name", "width", "height", "detections": [{category, category_id, bbox,
//          score, segmentation}, …]}; an image without detections has a line too
//
// Boxes are x y w h in pixels of the image, masks are COCO's compressed runs and, with `polygons`, also polygons. Both
// files are written as base/growing.h describes: complete after every image, with a temporary name until they are
// finished. In jsonl every line that ends in a newline is complete, however the program ended.
#pragma once
#include "data/coco/coco.h"
#include "data/coco/result_classes.h"

typedef enum ResultFormat { RESULTS_COCO, RESULTS_JSONL } ResultFormat;
extern const char *const result_formats[]; // for base/cli.h

typedef struct ResultImage {
  int64_t id;
  const char *file_name; // as named by the user or the data set
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
// Writes all detections of an image, or none: false if they cannot be written, or one is not finite. Then nothing more
// can be added.
bool results_add(ResultWriter *w, const ResultImage *image, const CocoResult *found, int n, Err *err);
// FILE's temporary name; for a pipe its own name: what it has received cannot be taken back.
const char *results_partial(const ResultWriter *w);
// The name to which unfinished results of an earlier run were renamed; NULL: there were none.
const char *results_kept(const ResultWriter *w);
bool results_direct(const ResultWriter *w); // FILE is a pipe or a device
// Completes the file and renames it to FILE. Releases the writer in any case.
bool results_commit(ResultWriter *w, Err *err);
void results_keep(ResultWriter *w);  // keeps the partial file
void results_abort(ResultWriter *w); // removes it
