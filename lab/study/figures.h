// Means over runs and their standard errors; of expressions, and of differences, to first order: a figure carries how
// every run's deviation from its mean moves it, so that what two figures have in common counts once.
#pragma once
#include "lab/study/rows.h"

typedef struct StudyData {
  const StudyPlan *plan;
  const StudyRows *rows;
  StudyCells cells; // of the plan as far as they are wanted, and with every value that was found
  int **runs;       // of each cell the rows, by index
  int *num_runs;
} StudyData;

typedef struct StudyFigure {
  double value;      // NaN: there is none
  double *moves;     // by row: its deviation times its share, over √(n(n − 1)); the sum of squares is the error's
  double rounding;   // how far arithmetic in doubles may put it off; an error that is no larger is none
  bool measured;     // some mean takes part in it
  bool single;       // of one run alone, so that nobody knows the error
  int runs, of_runs; // of the cell itself: with this value, and in all
} StudyFigure;

typedef struct StudySummary {
  int n;
  double mean, error, least, most; // error: of the mean, NaN of one run; all NaN: n is 0
} StudySummary;

// only: the cells that are wanted beside those that have runs; NULL: all.
StudyData study_data(const StudyPlan *p, const StudyRows *rows, const StudyConditions *only);
void study_data_free(StudyData *d);

StudySummary study_summary(const StudyData *d, int cell, int measure); // of one that is read
StudyFigure study_figure(const StudyData *d, int cell, int measure);
StudyFigure study_difference(const StudyData *d, const StudyFigure *a, const StudyFigure *b);
// The standard error; NaN: nobody knows, or the figure is not measured.
double study_error(const StudyData *d, const StudyFigure *f);
void study_figure_free(StudyFigure *f);
// What the cell's runs have come to, if there is no figure: the state of all, failed if they differ; -1: none was run.
int study_cell_state(const StudyData *d, int cell);
