// A run on disk: weights, configuration, categories and, to resume, momentum and step, as one safetensors file.
// Weights that torchvision made are read, too, under any of its names (models/torchvision.h). Metadata: "format" =
// "maskrcnn.c 1", "config.<field>" of models/config.h, "categories" (JSON), "step", "run" and "trained_on" (JSON); of
// Adam "adam", its state.
#pragma once
#include <stdint.h>
#include "base/record.h"
#include "engine/categories.h"
#include "weights/checkpoint.h"

typedef struct RunState {
  int64_t step;           // steps done
  const char *run;        // what else the run depends on (seed, schedule, batch …); a resumed run must say the same
  const char *trained_on; // what on: the list of data/batches/data_identity.h; NULL: nobody says
  // set by state_take:
  int64_t batches; // Engine.batches
  double scale[3]; // of engine_get_scale
} RunState;

typedef struct StateFile {
  const char *path;
  const char *previous; // the name that what stood at `path` gets; NULL = none
  bool momentum;        // "momentum.<name>" of all that is trained, too, and of Adam "second_moment.<name>"
} StateFile;

// Saving is in two parts: what the steps so far have led to is taken into the engine's snapshot (of an engine which
// trains), and steps may go on; then it is written, in any thread, before it is taken again. Weights stand under
// torchvision's names and shapes, so that load_state_dict(strict=True) takes them. Written atomically; false with the
// reason in errno, too.
void state_take(Engine *e, RunState *state);
bool state_write(const Engine *e, const RunState *state, const StateFile *file, Err *err);

// A file of ours or of torchvision's, its tensors under the names that we use.
bool state_open(Checkpoint *c, const char *path, Err *err);
// What model a checkpoint holds. The categories are malloc'ed. With category NULL a mere backbone will do, too: a
// configuration of 0 classes.
bool state_config(const Checkpoint *c, ModelConfig *config, Category **category, Err *err);

// For training the model `named`, NULL: whatever the weights are of (torchvision's ResNet then begins a detector). A
// classification ResNet, of ours or torchvision's, becomes the backbone of a detector: 0 classes. Another classifier
// than the file's is taken as it was named, with 0 classes: state_load names what does not fit.
bool state_config_for(const Checkpoint *c, const ModelConfig *named, ModelConfig *config, Err *err);
// Whether for this model the file holds no more than a backbone.
bool state_holds_backbone(const Checkpoint *c, const Model *m);

// Of a file that is not ours, one line on stderr: what was made of it.
void state_note(const Checkpoint *c, const char *path);

typedef struct LoadOptions {
  bool momentum;    // resuming: the optimiser's moments must be there, too
  bool reset_heads; // keep the initialisation of the class-dependent outputs (another number of classes)
  const int *from;  // [model_names] whose outputs in the file each category gets; NULL: they have the same order
} LoadOptions;
// Every parameter of the engine must be in the file with its shape (of a backbone's file: the backbone's), and nothing
// else; what is missing, unexpected or misshaped is named, and so is what holds NaN or infinities.
bool state_load(Engine *e, const Checkpoint *c, const LoadOptions *options, Err *err);
// Whether a run of this configuration and description would go on as the checkpoint's own; false names the first
// difference. With `changes` members in the list `amendable` may differ: identity_amend adds what does.
bool state_continues(const Checkpoint *c, const ModelConfig *config, const char *run, const char *const *amendable,
                     Record *changes, Err *err);
// Which output of a checkpoint, the file at `path`, is for which category of the data: from[data->n], for LoadOptions.
// False where not all are found (data/coco/categories_match.h).
bool state_categories(const Checkpoint *c, const char *path, const CategoryList *data, int *from, CategoryNotes *notes,
                      Err *err);
// Whether they are the data's by id and name, in their order; false names the first that is not.
bool state_same_categories(const Checkpoint *c, const char *path, const CategoryList *data, Err *err);
// The step, the run and the loss scale of a checkpoint that can be resumed; false where they are missing or cannot be.
bool state_resume(const Checkpoint *c, RunState *state, Err *err);
