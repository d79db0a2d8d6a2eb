#include "training/start.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/alloc.h"
#include "base/command.h"
#include "base/output.h"
#include "data/batches/data_identity.h"
#include "engine/state.h"
#include "training/identity.h"
#include "training/whole.h"

// ---- the folder -------------------------------------------------------------------------------------------------

// A weights file in the folder that our run must not replace; malloc'ed, NULL if there is none.
static char *weights_in(const char *folder) {
  DIR *dir = opendir(folder);
  char *found = NULL;
  for (struct dirent *entry; dir && !found && (entry = readdir(dir));) {
    const char *end = strrchr(entry->d_name, '.');
    if (end && !strcmp(end, ".safetensors")) found = xasprintf("%s/%s", folder, entry->d_name);
  }
  if (dir) closedir(dir);
  return found;
}

// The checkpoint from which to continue; NULL: the run starts from the beginning. Refuses the folder of another run.
static const char *checkpoint_of(const TrainSpec *o, int resume, const RunFiles *f) {
  const char *path = resume == RESUME_PREVIOUS ? f->previous : f->checkpoint;
  const bool there = path_is_file(path);
  if (o->benchmark) return there && resume ? path : NULL;
  if (there && !resume)
    die(EXIT_USAGE, "%s already contains a run: continue it with --resume, or choose another --out", o->out);
  if (there) return path;
  struct stat st;
  if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode))
    die(EXIT_USAGE, "%s is a symbolic link to a file that does not exist: restore that file, or remove the link", path);
  if (resume == RESUME_PREVIOUS) die(EXIT_USAGE, "--resume=previous: there is no %s", path);
  char *weights = weights_in(o->out);
  if (weights)
    die(EXIT_USAGE, "%s exists, but there is no checkpoint.safetensors to resume: choose another --out", weights);
  if (resume) line_print(stderr, "--resume: no checkpoint in %s yet, starting from the beginning", o->out);
  return NULL;
}

// ---- weights ----------------------------------------------------------------------------------------------------

static void load(Engine *e, const Checkpoint *c, const char *path, const LoadOptions *how) {
  Err err;
  if (!state_load(e, c, how, &err)) die(EXIT_USAGE, "%s: %s", path, err.msg);
}

static void note_exif(const TrainSpec *o, const Checkpoint *c) {
  bool exif;
  if (!state_exif(c, &exif) || exif == o->upright) return;
  line_print(stderr, "note: %s was trained on images %s; this run %s", o->weights,
             exif ? "rotated by their EXIF orientation" : "as stored",
             exif ? "reads them as stored" : "rotates them by their EXIF orientation");
}

// Loads initial weights; their outputs are matched to the data's categories.
static void begin_with(const TrainSpec *o, Engine *e, const Checkpoint *c) {
  Err err;
  Notes notes = {0};
  const CategoryList data = categories_of_model(e->category, model_names(&e->config), o->data);
  int *from = xcalloc((size_t)data.n, sizeof *from);
  const bool keeps = !o->reset_heads && !state_holds_backbone(c, e->model);
  if (keeps && !state_categories(c, o->weights, &data, from, &notes, &err)) {
    load(e, c, o->weights, &(LoadOptions){0}); // for another model's weights, the message of `load` says more
    die(EXIT_USAGE, "%s; or use --reset-heads to train new output layers", err.msg);
  }
  load(e, c, o->weights, &(LoadOptions){.reset_heads = o->reset_heads, .from = keeps ? from : NULL});
  for (int i = 0; i < notes.n; i++) line_print(stderr, "note: %s", notes.line[i]);
  notes_free(&notes);
  free((void *)data.item);
  free(from);
  state_note(c, o->weights);
  const char *names;
  const int ignored = state_ignored(e, c, &names);
  if (ignored)
    line_print(stderr, "note: %s: %s has no use for %d of its tensors, %s*", o->weights, e->model->name, ignored,
               names);
  note_exif(o, c);
}

static void refuse_other_categories(const TrainSpec *o, const Engine *e, const Checkpoint *c, const char *path) {
  Err err;
  const CategoryList data = categories_of_model(e->category, model_names(&e->config), o->data);
  if (!state_same_categories(c, path, &data, &err))
    die(EXIT_USAGE, "--resume: %s; give the same annotations or choose another --out", err.msg);
  free((void *)data.item);
}

static int64_t go_on_from(const TrainSpec *o, bool amend, Engine *e, const Checkpoint *c, const char *path,
                          const char *identity, Record *changes) {
  Err err;
  RunState state;
  if (!state_continues(c, &e->config, identity, run_amendable(), amend ? changes : NULL, &err))
    die(EXIT_USAGE, "--resume: %s: %s", path, err.msg);
  refuse_other_categories(o, e, c, path);
  load(e, c, path, &(LoadOptions){.momentum = true});
  if (!state_resume(c, &state, &err)) die(EXIT_USAGE, "%s: %s", path, err.msg);
  engine_set_scale(e, state.scale);
  return state.step;
}

// For a checkpoint its own list, which ends with this run's data; for weights their list and this run's data.
// With amend, image files may differ, for instance a replaced broken one.
static char *take_trained_on(const char *before, const Dataset *train, const char *own, bool amend) {
  Err err;
  if (own && !before)
    line_print(stderr, "note: %s does not say which data it was trained on (older version); assuming this data", own);
  if (own && before && !trained_on_same(before, train, amend, &err))
    die(EXIT_USAGE, "--resume: %s: %s; give the same data, or start a new run in another --out with these --weights%s",
        own, err.msg, trained_on_same(before, train, true, NULL) ? "; --amend accepts other image files" : "");
  if (own && before && amend && !trained_on_same(before, train, false, &err))
    line_print(stderr, "note: %s; accepted because of --amend", err.msg);
  return trained_on_text(before, train);
}

// The images that are held out must be those of the checkpoint's run; with amend, their files may differ.
static void check_held_out(const Checkpoint *c, const Dataset *train, const char *own, bool amend) {
  Err err;
  const char *text = ckpt_find_meta(c, "held_out");
  Holdout was;
  if (!text || !train->holdout) return; // of an older version, or refused by the run's identity
  if (!holdout_read(&was, text, &err)) die(EXIT_USAGE, "--resume: %s: %s", own, err.msg);
  if (!holdout_same(&was, train->holdout, amend, &err))
    die(EXIT_USAGE, "--resume: %s: %s; give the same data, or start a new run in another --out", own, err.msg);
  holdout_free(&was);
}

// A checkpoint that cannot be read; another one may be whole.
static NORETURN void die_of_damage(const TrainSpec *o, const RunFiles *f, const char *own, const char *why) {
  int64_t step;
  char *whole = whole_checkpoint(f, own, &step);
  if (!whole) die(EXIT_USAGE, "%s; no other checkpoint in %s is intact", why, f->folder);
  char *command = whole_command(f, whole, o->command);
  die(EXIT_USAGE, "%s; %s is intact (step %lld), continue from it: %s", why, whole, (long long)step, command);
}

int64_t start_weights(const TrainSpec *o, const SessionStart *how, Engine *e, const Dataset *train, const RunFiles *f,
                      const char *identity, char **trained_on, Record *changes) {
  Err err;
  Checkpoint c;
  params_randomise(&e->params, (uint64_t)o->seed);
  const char *own = checkpoint_of(o, how->resume, f), *path = own ? own : o->weights;
  int64_t step = 0;
  if (path && !state_open(&c, path, &err)) {
    if (own) die_of_damage(o, f, own, err.msg);
    die(EXIT_USAGE, "%s", err.msg);
  }
  if (own) state_note(&c, own);
  if (own)
    step = go_on_from(o, how->amend, e, &c, own, identity, changes);
  else if (path)
    begin_with(o, e, &c);
  if (!o->benchmark)
    *trained_on = take_trained_on(path ? ckpt_find_meta(&c, "trained_on") : NULL, train, own, how->amend);
  if (own && !o->benchmark) check_held_out(&c, train, own, how->amend);
  if (path) ckpt_close(&c);
  return step;
}
