// What ./train trains on and evaluates on, found and opened as the model's row says (data/batches/source.h). A mistake
// prints one line and exits 2.
#pragma once
#include "data/batches/loader.h"
#include "models/config.h"
#include "training/options.h"

// Whether there is data where the options say so: before anything is made of it.
void train_find_data(const TrainSpec *o, const ModelConfig *c);
// Opens what to train on and, where it returns true, what to evaluate on. A data set without a split to evaluate on is
// fine as long as nobody asked for an evaluation.
bool train_open_data(const TrainSpec *o, const ModelConfig *c, Dataset *train, Dataset *val);
// Whether on gray images of one size in memory, rather than on image files.
bool train_on_gray(const TrainSpec *o, const ModelConfig *c);
// How much of an image a classifier sees in evaluation, of that kind of data set: ModelConfig.view.
float train_view(const TrainSpec *o, const ModelConfig *c);
