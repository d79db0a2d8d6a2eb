// What ./train trains on and evaluates on, in the one of three layouts that lies there: COCO's for detectors, IDX files
// or folders of images by class for classifiers. A mistake prints one line and exits 2.
#pragma once
#include "data/batches/loader.h"
#include "models/config.h"
#include "training/options.h"

// Whether there is data where the options say so: before anything is made of it.
void train_find_data(const TrainSpec *o, const ModelConfig *c);
// Opens what to train on and, where it returns true, what to evaluate on. A data set without a split to evaluate on is
// fine as long as nobody asked for an evaluation.
bool train_open_data(const TrainSpec *o, const ModelConfig *c, Dataset *train, Dataset *val);
bool train_on_idx(const TrainSpec *o); // rather than on image files
// How much of an image a classifier sees in evaluation, of that kind of data set: ModelConfig.view.
float train_view(const TrainSpec *o, const ModelConfig *c);
