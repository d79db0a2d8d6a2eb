// Chooses the range of a run's 16-bit images (data/images/sample_range.h) when its data are open.
#pragma once
#include "comm/job.h"
#include "data/batches/dataset.h"
#include "training/options.h"

// Sets the range of --range, of the checkpoint to resume, or of the training data, in o->config and both data sets, and
// adds notes to these on images that disagree with it. Without 16-bit images, the range of --weights stays. The first
// rank decides for all. val may be NULL; o->range may point to text[SAMPLE_RANGE_TEXT].
void train_choose_range(TrainSpec *o, const Job *job, Dataset *train, Dataset *val, char *text);
