// A small engine on the CPU and steps of it, for tests of what is done with one.
#pragma once
#include "engine/state.h"
#include "test/harness/synthetic.h"

enum { CANVAS = 64, CAPACITY = 3, CLASSES = 4, IMAGES = 2 };

// synthetic_config with that norm.
ModelConfig small_config(NormType norm, int classes);
// Two canvases of different shapes, CANVAS × CANVAS and 32 wider, training and inference, as train.c has them.
void small_engine(Engine *e, const ModelConfig *config);
void small_engine_with(Engine *e, const ModelConfig *config, const Optimizer *optimizer);
void small_engine_on(Engine *e, const char *device, const ModelConfig *config);
void small_engine_random(Engine *e, const ModelConfig *config, uint64_t seed); // its parameters drawn
extern const Optimizer small_adam;                                             // of AdamW
// Step number `step` of a run: a batch of its own, on the canvases in turn.
StepResult small_step(Engine *e, int step);

// A checkpoint in the test's folder: its path, static until the next call.
const char *small_checkpoint(const char *name);
// Saves there, and reports a failure as one of the test.
const char *small_save(Engine *e, const char *name, bool momentum);
// Saves the parameters alone, without any metadata, under what `rename` makes of their names ("": left out), NULL: as
// they are.
typedef void Rename(const char *name, char to[256]);
const char *small_save_bare(const Engine *e, const char *file, Rename *rename);
// "" when the file could be loaded.
Err small_load(Engine *e, const char *path, LoadOptions o);

bool same_values(const Tensor *p, const Tensor *q);
// The same parameters, and where asked for the same moments.
void expect_same_params(const Engine *a, const Engine *b, bool momentum);
