// What inference leaves behind, image by image: a file of results and overlays. Whatever ends the program, the
// detections of all images so far stand in the result file's partial form (data/coco/results.h).
#pragma once
#include "data/coco/results.h"
#include "data/pictures/overlays.h"

enum { SHOWN_PERCENT = 50 }; // what overlays show: the threshold of results is far below what a picture should

typedef struct ResultForm { // of the result file
  ResultFormat format;
  bool polygons;
  ResultClasses classes;
} ResultForm;

typedef struct DetectionOutput {
  const char *json; // the result file; not copied
  ResultWriter results;
  Overlays overlays;
  int pictures;      // overlays to draw at most
  int failed;        // … that could not be written
  int images, total; // done; that there are, 0: nobody knows
  double begun;      // when the result file was
  double shown;      // when progress was last told
  bool elsewhere;    // another rank writes the results
} DetectionOutput;

// Names the outputs for `n` images of these files, of which at most `pictures` are drawn into `folder`. False when one
// would overwrite a file of the set. Nothing is written yet. n = 0: images come one by one (detection_output_picture).
bool detection_output_open(DetectionOutput *f, const char *json, const char *folder, int pictures,
                           const char *const *files, int n, FileSet *inputs, Err *err);
// Begins the result file. A partial one of a run before is kept under another name, which is said.
bool detection_output_begin(DetectionOutput *f, const ResultForm *form, Err *err);
// On ranks other than the first, which has the result file: they draw overlays, in the first one's folder.
void detection_output_follow(DetectionOutput *f, int rank);
// For the message of a failure from here on: what the program is at ("" = nothing to name), and what it leaves.
void detection_output_context(const DetectionOutput *f, const char *what);
// Into the result file. What cannot be written is the program's end.
void detection_output_record(DetectionOutput *f, const ResultImage *image, const CocoResult *found, int n);
// Whether image number `before`, from 0 on, is among the first that are drawn.
bool detection_output_pictures(const DetectionOutput *f, int64_t before);
// The overlay of image i, with its detections by descending score. One that cannot be written is left out,
// and counted.
void detection_output_draw(DetectionOutput *f, int i, const Image *image, const DrawItem *items, int n);
// The same of an image that was not known of: the overlay is called as its file and place, and replaces none of
// `files`.
void detection_output_picture(DetectionOutput *f, const char *file, int64_t number, FileSet *files, const Image *image,
                              const DrawItem *items, int n);
// Says that a picture ("overlay", "crops") could not be written and is left out, for `reason` of errno's. A disk that
// is full has no room for the next one either: that ends the program.
void detection_output_leave_out(const char *what, const Err *err, int reason);
int detection_output_shown(const DrawItem *items, int n); // how many of the detections an overlay shows: the first ones
// All images are done: the result file takes its place. A failure is the program's end.
void detection_output_commit(DetectionOutput *f);
// They are not, and will not be: says what is left where.
void detection_output_keep(DetectionOutput *f);
void detection_output_abort(DetectionOutput *f); // nothing was found, and nothing is left
void detection_output_leave(DetectionOutput *f); // of detection_output_follow, whatever becomes of the results
