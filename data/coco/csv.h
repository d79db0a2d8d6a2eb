// Detections as tables for spreadsheets (RFC 4180: commas, CRLF, quotes where a field needs them; UTF-8):
//
//   detections.csv  a row per object: file_name, image_id, category, category_id, score, area of its mask, box as x, y,
//                   width, height; in pixels of the image
//   counts.csv      a row per image, also of those without objects: file_name, image_id, width, height, the count of
//                   objects, their total area, and with several classes the count of each
//
// A name that a spreadsheet would compute, since it begins with = + - @, a tab or a line break, gets an apostrophe in
// front, which spreadsheets take as "text". Both files are written as base/growing.h describes.
#pragma once
#include "base/growing.h"
#include "data/coco/results.h"

typedef struct CsvWriter {
  GrowingFile objects, counts;
  ResultClasses classes;
  char *header; // of the counts; NULL: the files are not open
  int64_t n;    // objects so far
} CsvWriter;
#define CSV_OBJECTS "detections.csv"
#define CSV_COUNTS "counts.csv"

// Begins both files in a folder. The classes are not copied.
bool csv_open(CsvWriter *w, const char *folder, const ResultClasses *classes, Err *err);
// Adds an image and n detections.
bool csv_add(CsvWriter *w, const ResultImage *image, const CocoResult *found, int n, Err *err);
// Completes the files and renames them. Releases the writer in any case.
bool csv_commit(CsvWriter *w, Err *err);
void csv_keep(CsvWriter *w);  // keeps the partial files
void csv_abort(CsvWriter *w); // removes them
