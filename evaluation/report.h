// The report of an evaluation in a folder: a JSON file of facts, and pictures.
#pragma once
#include <stdint.h>
#include "base/record.h"
#include "data/coco/confusion.h"
#include "data/coco/confusion_counts.h"
#include "data/pictures/thumbnail.h"
#include "evaluation/metrics.h"

enum { REPORT_COLUMNS = 12, REPORT_CURVES = 3, REPORT_CATEGORY_CHARTS = 100, REPORT_SCORES = 20 };

typedef struct ReportCategory {
  char *name;
  double value[REPORT_COLUMNS]; // NaN: undefined
} ReportCategory;

typedef struct ReportCurve { // precision over recall
  const char *label;
  double *x, *y;
  int n;
} ReportCurve;
typedef struct ReportChart { // curves on the same axes
  char *title;
  ReportCurve curve[REPORT_CURVES];
  int n;
} ReportChart;
typedef struct ReportCharts {
  ReportChart *item;
  int n;
} ReportCharts;
ReportChart *report_chart_add(ReportCharts *c, const char *title); // copies the title
ReportCurve *report_curve_add(ReportChart *c, const char *label, int points);

// An image, and next to it a model's results on it.
typedef struct ReportPicture {
  const char *group; // "Best images": pictures of one group are shown together
  char *file;        // the image's file name
  char *caption;     // one line
  Jpeg truth, found; // found NULL: there is only one picture
} ReportPicture;

// A detector's confusion at several scores.
typedef struct ReportScores {
  int n;                       // 0: one confusion only, as for a classifier
  double score[REPORT_SCORES]; // ascending
  ConfusionCounts counts;      // of the detections that reach each score; owned
  double least;                // the score that EvaluationReport.confusion is for
  double opens_at;             // the score with the best F1 over all categories, the lowest of equal ones; NaN: none
                               // is reached
  double highest;              // highest score of any detection; NaN: none
} ReportScores;

typedef struct EvaluationReport {
  char *column[REPORT_COLUMNS]; // owned: names of the categories' values: a count, then ratios
  int columns;
  ReportCategory *category; // in display order
  int categories;
  ReportCharts charts, category_charts; // per-category charts for at most REPORT_CATEGORY_CHARTS categories
  char *rule;                           // a sentence on what the confusion counts; NULL: none
  Confusion confusion;                  // owned, names included
  ReportScores scores;
  ReportPicture *picture;
  int pictures;
} EvaluationReport;
void report_free(EvaluationReport *r);

typedef struct ReportFile {
  const char *folder, *name;      // "evaluation.json"
  const char *series, *stem;      // pictures are named STEM-01-truth.jpg; all of a series begin with `series`
  const Record *head;             // a record with the members that come first
  const Metrics *before, *scores; // before: NULL: none
} ReportFile;
// Writes FOLDER/pictures/… and then FOLDER/NAME as a whole, and removes earlier pictures of the series. Numbers that
// are not finite are null.
//   of `head`; images, left_out; rule
//   metrics     {name: value}, null where no ground truth defines one
//   columns     names of the values of a category
//   categories  [[name, value, …]]
//   panels, category_panels  [{title, x, unit, curves: [[label, [x …], [y …]]]}]
//   confusion   {background, names, cells: [[truth, found, how often]]}, cells that are not 0; null: there is none.
//               Of a detector {background, names, scores, report_score, opens_at, highest_score, objects, cells:
//               [[truth, found, [how often at each score]]]}: `scores` ascends, the others are as in ReportScores,
//               `objects` counts them by category, the background left out. Zeros at the end of a cell's list are left
//               out.
//   pictures    [[group, file, caption, truth, found]]: names of files below FOLDER, found null where there is one
//               picture
bool report_write(const ReportFile *f, const EvaluationReport *r, Err *err);
// The step of the evaluation in a run's folder, with which its head begins; -1: no file, or it cannot be read.
int64_t report_step(const char *path);
// Removes the file, and the pictures of the series.
void report_remove(const char *folder, const char *name, const char *series);
