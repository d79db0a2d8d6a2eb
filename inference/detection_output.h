// Writes the results of inference image by image: a result file, tables for spreadsheets and overlays. However the
// program ends, the result file's partial form (data/coco/results.h) has the detections of all images so far.
#pragma once
#include "data/coco/csv.h"
#include "data/coco/results.h"
#include "data/pictures/overlays.h"

typedef struct ResultForm { // options of the result file
  ResultFormat format;
  bool polygons;
  ResultClasses classes;
} ResultForm;

typedef struct DetectionOutput {
  const char *json; // path of the result file; not copied
  ResultWriter results;
  CsvWriter tables;
  Overlays overlays;
  double shown_from; // score from which detections are drawn, and counted in the tables; results have lower ones too
  int pictures;      // maximum number of overlays
  int failed;        // overlays that could not be written
  int images, total; // images done and their total; 0: unknown
  double begun;      // when the result file was begun
  double told;       // when progress was last printed
  bool elsewhere;    // rank 0 writes the results
} DetectionOutput;

// Names the outputs of `n` images with these files, of which at most `pictures` are drawn into `folder`, with the
// detections whose score is at least `shown_from`. False if an output would overwrite a file of the set. Nothing is
// written yet. n = 0: images come one by one (detection_output_picture).
bool detection_output_open(DetectionOutput *f, const char *json, const char *folder, int pictures, double shown_from,
                           const char *const *files, int n, FileSet *inputs, Err *err);
// Begins the result file. An earlier run's partial file is kept under another name, with a message.
bool detection_output_begin(DetectionOutput *f, const ResultForm *form, Err *err);
// For ranks other than rank 0, which has the result file: they draw overlays into rank 0's folder.
void detection_output_follow(DetectionOutput *f, int rank);
// For messages of failures from here on: the current activity ("" = none), and what is left behind.
void detection_output_context(const DetectionOutput *f, const char *what);
// Adds an image's detections to the result file and the tables. Exits if that fails.
void detection_output_record(DetectionOutput *f, const ResultImage *image, const CocoResult *found, int n);
// Whether image number `before`, counted from 0, is among the first ones, which get an overlay.
bool detection_output_pictures(const DetectionOutput *f, int64_t before);
// Draws these detections over the pixels of image i and writes these as its overlay. An overlay that cannot be written
// is left out and counted.
void detection_output_draw(DetectionOutput *f, int i, const Image *image, const DrawItem *items, int n);
// The same for an image that was not known in advance: the overlay is named after its file and number, and replaces
// none of `files`.
void detection_output_picture(DetectionOutput *f, const char *file, int64_t number, FileSet *files, const Image *image,
                              const DrawItem *items, int n);
// Reports that a picture ("overlay", "crops") could not be written and is left out; `reason` is errno. If the disk is
// full the program exits, because the next picture would not fit either.
void detection_output_leave_out(const char *what, const Err *err, int reason);
// Number of detections that overlays and tables show: the first ones.
int detection_output_shown(const DetectionOutput *f, const CocoResult *found, int n);
// All images are done: gives the result file its final name. Exits on failure.
void detection_output_commit(DetectionOutput *f);
// For a run that ends early: reports which files are left, and where.
void detection_output_keep(DetectionOutput *f);
void detection_output_abort(DetectionOutput *f); // no image was done, so nothing is left behind
void detection_output_leave(DetectionOutput *f); // after detection_output_follow, regardless of the results
