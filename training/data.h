// Finds and opens ./train's training and evaluation data, by the source in the model's row (data/batches/source.h). A
// mistake prints one line and exits 2.
#pragma once
#include "data/batches/loader.h"
#include "models/config.h"
#include "training/options.h"

// The model where none is named: of data without masks one that finds boxes only.
const char *train_default_model(const TrainSpec *o);
// Checks that the data exists where the options say, before anything else is done.
void train_find_data(const TrainSpec *o, const ModelConfig *c);
// Opens the training data and, if it returns true, the evaluation data. A data set without an evaluation split is
// accepted unless evaluation was requested.
bool train_open_data(const TrainSpec *o, const ModelConfig *c, Dataset *train, Dataset *val);
// Whether the data is grey images of one size in memory, rather than image files.
bool train_on_gray(const TrainSpec *o, const ModelConfig *c);
// The fraction of an image that a classifier sees in evaluation, for this type of data: ModelConfig.view.
float train_view(const TrainSpec *o, const ModelConfig *c);
