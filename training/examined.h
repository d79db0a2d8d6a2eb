// Examines a run's data for defects before it begins.
#pragma once
#include "data/survey/examination.h"
#include "training/options.h"

typedef struct TrainExamined {
  Examination split[2]; // training split, evaluation split
  int n;                // number of splits examined
} TrainExamined;

// val may be NULL. With --strict a defect in the evaluation data ends the program.
void train_examine(const TrainSpec *o, const Dataset *train, const Dataset *val, TrainExamined *e);
void train_examined_free(TrainExamined *e);
// Reports defects in lines and in a file in the run's folder; images that turn out bad later are added to the file.
void train_examined_report(const TrainSpec *o, const TrainExamined *e, const Dataset *train, const Dataset *val);
