// Identity entries of options whose value alone does not suffice: the functions named in rows of training/options.h.
// Keys and values are those stored in checkpoints.
#pragma once
#include "training/options.h"

// Each adds its members from a TrainSpec; `basis` is the session's Schedule.
extern OptionIdentify identify_holdout, identify_exif, identify_annotations, identify_sizes, identify_positive,
    identify_optimizer, identify_adam, identify_lr, identify_schedule, identify_given, identify_reduction;
