// What is wrong with the data of a run, looked at before it begins.
#pragma once
#include "data/survey/examination.h"
#include "training/options.h"

typedef struct TrainExamined {
  Examination split[2]; // what to train on, and what to evaluate on
  int n;                // that were looked at
} TrainExamined;

// val may be NULL. With --strict a defect of what to evaluate on ends the program.
void train_examine(const TrainSpec *o, const Dataset *train, const Dataset *val, TrainExamined *e);
void train_examined_free(TrainExamined *e);
// Says in lines and in a file of the run's folder what is wrong; to the file images are added that turn out bad.
void train_examined_report(const TrainSpec *o, const TrainExamined *e, const Dataset *train, const Dataset *val);
