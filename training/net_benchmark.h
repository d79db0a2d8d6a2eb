// How fast a network's walks are by themselves, on made-up images that stay on the device: forward as training does it
// (batch statistics, dropout), forward and backward, and the whole step.
#pragma once
#include "base/trace.h"
#include "engine/engine.h"
#include "training/batch_list.h"

typedef struct NetSetting {
  const char *net; // as --model names it
  const char *amp; // as --amp says it
  int runs;        // of each walk, after half as many that are not measured
  bool forward_only;
  bool plan;    // the memory of each batch size is printed, and nothing is measured
  bool profile; // and a row per node
  Trace *trace; // of the steps that are timed node by node; NULL = none
} NetSetting;

// For each batch size an engine is opened, of a model that learns from BATCH_LABEL, on a canvas config.size square, and
// weights, images and labels are drawn by the computation's seed.
// Each run of a walk, recorded where the device can, is timed by itself on the device's clock, and a record printed on
// stdout; stderr tells people. A batch size that memory has no room for has a record, too, that says so. False when
// something else is wrong.
bool net_benchmark(const Compute *compute, const ModelConfig *config, const BatchList *batches, const NetSetting *s,
                   Err *err);
