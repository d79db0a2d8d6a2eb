// An axis of a plot: what it reaches over, and where its ticks are.
#pragma once
#include <stdbool.h>

enum { STUDY_MAX_TICKS = 32 };

typedef struct StudyAxis {
  double low, high; // of what is drawn; of decimal logarithms on a log axis
  bool log;
  int n;
  double ticks[STUDY_MAX_TICKS];
} StudyAxis;

bool study_axis_shows(const StudyAxis *a, double v);      // it is a number, on a log axis above 0
void study_axis_reach(StudyAxis *a, double v);            // widens it, unless it cannot show v
double study_axis_fraction(const StudyAxis *a, double v); // 0 at its low end, 1 at its high one
// Ends it at ticks: steps of 1, 2 or 5 times a power of ten, about five of them, from zero where that is near.
void study_axis_linear(StudyAxis *a, bool from_zero);
// A margin at both ends, ticks at 1, 2 and 5 of each power of ten, or at the powers alone where they are many.
void study_axis_logarithmic(StudyAxis *a);
