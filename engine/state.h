// A run on disk: weights, configuration, categories and, to resume, momentum and step, as one safetensors file.
// Metadata: "format" = "maskrcnn.c 1", "config.<field>" of models/config.h, "categories" (JSON), "step", "run" (JSON).
#pragma once
#include <stdint.h>
#include "engine/engine.h"
#include "nn/checkpoint.h"

typedef struct RunState {
  int64_t step;    // steps done
  double scale[3]; // of engine_get_scale
  const char *run; // what else the run depends on (seed, schedule, batch …); a resumed run must say the same
} RunState;

// Weights under torchvision's names and shapes; with `momentum`, also "momentum.<name>" of all that is trained.
// Written atomically.
bool state_save(const Engine *e, const char *path, const RunState *state, bool momentum, Err *err);

// What model a checkpoint holds. The categories are malloc'ed.
bool state_config(const Checkpoint *c, ModelConfig *config, Category **category, Err *err);

typedef struct LoadOptions {
  bool momentum;    // resuming: momentum must be there too
  bool reset_heads; // keep the initialisation of the class-dependent outputs (another number of classes)
} LoadOptions;
// Every parameter of the engine must be in the file with its shape; what is missing or misshapen is named.
bool state_load(Engine *e, const Checkpoint *c, const LoadOptions *options, Err *err);
// Whether a run of this configuration and description would go on as the checkpoint's own; false names the first
// difference.
bool state_continues(const Checkpoint *c, const ModelConfig *config, const char *run, Err *err);
// The step and the run of a checkpoint that can be resumed.
bool state_resume(const Checkpoint *c, RunState *state, Err *err);
