// A run on disk: weights, configuration, categories and, for resuming, momentum and step, as one safetensors file.
// torchvision's weights can be read too, under any of its names (models/torchvision.h). Metadata: "format" =
// "maskrcnn.c 2", "config.<field>" of models/config.h, "categories" (JSON), "step", "run", "trained_on" and, if a
// part of the data was held out, "held_out" (JSON), and with Adam "adam", its state. With moving averages of the
// parameters, these are the weights, and what training goes on from is "unaveraged.<name>".
#pragma once
#include <stdint.h>
#include "base/record.h"
#include "engine/categories.h"
#include "weights/checkpoint.h"

typedef struct RunState {
  int64_t step; // steps done
  // The run's identity (seed, schedule, batch …: engine/identity.h), which a resumed run must share.
  const char *run;
  const char *trained_on; // the data it was trained on: data/batches/data_identity.h; NULL: unknown
  const char *held_out;   // what was held out of it: data/batches/holdout.h; NULL: nothing
  // set by state_take:
  int64_t batches; // Engine.batches
  double scale[3]; // as in engine_get_scale
} RunState;

typedef struct StateFile {
  const char *path;
  const char *previous; // new name of an existing file at `path`; NULL = it is replaced
  // Also write what a resumed run needs of all trained parameters: "momentum.<name>", with Adam "second_moment.<name>",
  // and with averages "unaveraged.<name>".
  bool momentum;
} StateFile;

// Saving has two parts: the state after the steps so far is copied into the engine's snapshot (of a training engine),
// and further steps may start; then it is written, in any thread, before the next one is taken. Weights have
// torchvision's names and shapes, so that load_state_dict(strict=True) accepts them. Written atomically; false with the
// reason also in errno.
void state_take(Engine *e, RunState *state);
bool state_write(const Engine *e, const RunState *state, const StateFile *file, Err *err);

// Opens a file of this program or of torchvision; its tensors get the names of this program.
bool state_open(Checkpoint *c, const char *path, Err *err);
// The same of a file's contents in memory, which must outlive it; `name` is for messages.
bool state_open_memory(Checkpoint *c, const void *bytes, size_t size, const char *name, Err *err);
// The model that a checkpoint holds. The categories are malloc'ed. With category NULL a file with only a backbone is
// accepted too: a configuration of 0 classes.
bool state_config(const Checkpoint *c, ModelConfig *config, Category **category, Err *err);

// The configuration for training the model `named`; NULL: the model of the weights (for torchvision's ResNet a detector
// with that backbone). A classification ResNet, of this program or torchvision, becomes the backbone of a detector: 0
// classes. If a classifier other than the file's is named, it gets 0 classes, and state_load reports what does not fit.
bool state_config_for(const Checkpoint *c, const ModelConfig *named, ModelConfig *config, Err *err);
// Whether the file holds only a backbone for this model.
bool state_holds_backbone(const Checkpoint *c, const Model *m);

// Prints a line on stderr how a file of another program was read, or that one of ours has no digests.
void state_note(const Checkpoint *c, const char *path);
// The same into `text`; "" where there is nothing to say.
void state_note_text(const Checkpoint *c, const char *path, char *text, size_t room);

typedef struct LoadOptions {
  bool momentum;    // resuming: the file must also have the optimiser's moments
  bool reset_heads; // keep the initialisation of the class-dependent outputs, for another number of classes
  const int *from;  // [model_names] the category of the file whose outputs each category gets; NULL: same order
} LoadOptions;
// Every parameter of the engine (for a backbone's file: of the backbone) must be in the file with its shape, and
// nothing else. The message names tensors that are missing, unexpected, of the wrong shape, or contain NaN or
// infinities.
bool state_load(Engine *e, const Checkpoint *c, const LoadOptions *options, Err *err);
// How many tensors of the file are of a part that the model lacks (Model.ignored), and how their names begin.
int state_ignored(const Engine *e, const Checkpoint *c, const char **names);
// Whether a run with this configuration and identity continues the checkpoint's; false with a message that names the
// first difference. With `changes`, members in the list `amendable` may differ: identity_amend adds the differences.
bool state_continues(const Checkpoint *c, const ModelConfig *config, const char *run, const char *const *amendable,
                     Record *changes, Err *err);
// Which output of a checkpoint, the file at `path`, is for which category of the data: from[data->n], for LoadOptions.
// False if a category has no match (data/coco/categories_match.h).
bool state_categories(const Checkpoint *c, const char *path, const CategoryList *data, int *from, Notes *notes,
                      Err *err);
// Whether the checkpoint's categories equal the data's in id, name and order; false with a message that names the first
// difference.
bool state_same_categories(const Checkpoint *c, const char *path, const CategoryList *data, Err *err);
// Whether the weights were trained on images rotated by their EXIF orientation; false if the file does not say.
bool state_exif(const Checkpoint *c, bool *exif);
// Reads step, identity and loss scale of a checkpoint to resume; false if they are missing or invalid.
bool state_resume(const Checkpoint *c, RunState *state, Err *err);
