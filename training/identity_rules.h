// How a run's identity tells of options whose value alone would not do: the functions that rows of training/options.h
// name. Keys and values are those that checkpoints have.
#pragma once
#include "training/options.h"

// Each adds its members from a TrainSpec; `basis` is the session's Schedule.
extern OptionIdentify identify_split, identify_sizes, identify_optimizer, identify_adam, identify_lr, identify_schedule,
    identify_reduction;
