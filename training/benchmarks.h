// What ./train measures instead of training: --benchmark and --benchmark-loader. A mistake prints one line and ends the
// program.
#pragma once
#include "base/trace.h"
#include "training/run.h"

// Steps of a run that is ready to begin, as many as --benchmark says. trace NULL: none is written.
void benchmark_steps(TrainingRun *r, Loader *loader, Trace *trace);
// The loader without a model.
void benchmark_loading(const TrainSpec *o);
// The walks of a network by themselves, on images that no data set has to hold.
void benchmark_net(const TrainSpec *o);
