// What an evaluation tells people, and the facts of it in a folder: a file of JSON, and pictures.
#pragma once
#include <stdint.h>
#include "base/record.h"
#include "data/coco/confusion.h"
#include "data/pictures/thumbnail.h"
#include "evaluation/metrics.h"

enum { REPORT_COLUMNS = 12, REPORT_CURVES = 3, REPORT_CATEGORY_CHARTS = 100, REPORT_SCORES = 20 };

typedef struct ReportCategory {
  char *name;
  double value[REPORT_COLUMNS]; // NaN: there is none
} ReportCategory;

typedef struct ReportCurve { // precision over recall
  const char *label;
  double *x, *y;
  int n;
} ReportCurve;
typedef struct ReportChart { // on the same axes
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

// An image, and beside it what a model made of it.
typedef struct ReportPicture {
  const char *group; // "Best images": pictures of one group stand together
  char *file;        // as it is called
  char *caption;     // one line
  Jpeg truth, found; // found NULL: there is one picture
} ReportPicture;

// The confusion of a detector at other scores than one.
typedef struct ReportScores {
  int n;                       // 0: there is one confusion, of a classifier
  double score[REPORT_SCORES]; // ascending
  int64_t *count;              // [classes, classes, n]: of detections that reach the score; owned
  double least;                // that of them at which EvaluationReport.confusion is
  double opens_at;             // that of them with the best F1 over all categories, the lowest of equal ones; NaN: none
                               // is reached
  double highest;              // of any detection; NaN: there is none
} ReportScores;

typedef struct EvaluationReport {
  char *column[REPORT_COLUMNS]; // owned: what the values of categories are: a count, then shares
  int columns;
  ReportCategory *category; // in the order in which they are shown
  int categories;
  ReportCharts charts, category_charts; // of categories at most REPORT_CATEGORY_CHARTS
  char *rule;                           // what the confusion counts, in a sentence; NULL: there is none
  Confusion confusion;                  // owned, names included
  ReportScores scores;
  ReportPicture *picture;
  int pictures;
} EvaluationReport;
void report_free(EvaluationReport *r);

typedef struct ReportFile {
  const char *folder, *name;      // "evaluation.json"
  const char *series, *stem;      // pictures are called STEM-01-truth.jpg, all of a series by what they begin with
  const Record *head;             // begun: members that come first
  const Metrics *before, *scores; // before NULL: none
} ReportFile;
// Writes FOLDER/pictures/… and then FOLDER/NAME as a whole, and removes earlier pictures of the series. Numbers that
// are not finite are null.
//   of `head`; images, left_out; rule
//   metrics     {name: value}, null where no ground truth defines one; in older files values are text, and -1 is that
//   columns     names of the values of a category
//   categories  [[name, value, …]]
//   panels, category_panels  [{title, x, unit, curves: [[label, [x …], [y …]]]}]
//   confusion   {background, names, cells: [[truth, found, how often]]}, cells that are not 0; null: there is none.
//               Of a detector {background, names, scores, report_score, opens_at, highest_score, objects, cells:
//               [[truth, found, [how often at each score]]]}: `scores` ascends, the others are as in ReportScores,
//               `objects` counts them by category, the background left out. Zeros at the end of a cell's list are left
//               out: what is missing there is 0.
//   pictures    [[group, file, caption, truth, found]]: names of files below FOLDER, found null where there is one
//               picture
bool report_write(const ReportFile *f, const EvaluationReport *r, Err *err);
// What an evaluation in a run's folder was of: the step that its head begins with; -1: no file, or none that can be
// read.
int64_t report_step(const char *path);
// Removes the file, and the pictures of the series.
void report_remove(const char *folder, const char *name, const char *series);
