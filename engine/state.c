#include "engine/state.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/command.h"
#include "base/json.h"
#include "base/output.h"
#include "base/record.h"
#include "engine/identity.h"
#include "engine/state_names.h"
#include "models/torchvision.h"

static bool read_categories(const char *text, int names, Category *out, Err *err) {
  Json j;
  json_open(&j, "categories", text, strlen(text));
  int n = 0;
  if (json_begin_array(&j))
    while (json_next(&j)) {
      Category c = {0};
      const char *key;
      if (json_begin_object(&j))
        while ((key = json_key(&j))) {
          if (!strcmp(key, "id"))
            c.id = json_int(&j);
          else if (!strcmp(key, "name"))
            snprintf(c.name, sizeof c.name, "%s", json_string(&j, NULL));
          else
            json_skip(&j);
        }
      if (n < names) out[n] = c;
      n++;
    }
  bool ok = json_done(&j) && n == names;
  if (!ok) err_set(err, "checkpoint: its list of categories is unusable (%d, but the model has %d)", n, names);
  json_close(&j);
  return ok;
}

static bool is_ours(const Checkpoint *c) {
  const char *found = ckpt_find_meta(c, "format");
  return found && (!strcmp(found, ckpt_format) || !strcmp(found, ckpt_format_1));
}

static bool with_our_names(Checkpoint *c, const char *path, Err *err) {
  if (is_ours(c) || torchvision_rename(c, path, err)) return true;
  ckpt_close(c);
  return false;
}

bool state_open(Checkpoint *c, const char *path, Err *err) {
  return ckpt_open(c, path, err) && with_our_names(c, path, err);
}

bool state_open_memory(Checkpoint *c, const void *bytes, size_t size, const char *name, Err *err) {
  *c = (Checkpoint){0};
  return ckpt_parse(c, bytes, size, name, err) && with_our_names(c, name, err);
}

// Sets the ids and names of the classes of torchvision's weights; "class 7" if the name is not known.
static void torchvision_categories(const ModelConfig *c, Category *out) {
  const Model *m = model_of(c);
  for (int i = 0; i < model_names(c); i++) {
    const int label = i + m->background;
    const char *name = m->published->category ? m->published->category(c->classes, label) : NULL;
    out[i].id = label;
    if (name)
      snprintf(out[i].name, sizeof out[i].name, "%s", name);
    else
      snprintf(out[i].name, sizeof out[i].name, "class %d", label);
  }
}

static bool read_config(const Checkpoint *c, ModelConfig *config, Err *err) {
  const char *model = ckpt_find_meta(c, "model");
  if (!config_init(config, DEFAULT_MODEL, err) || (model && !model_choose(config, model, err))) return false;
  for (int i = 0; i < config_fields(); i++) {
    char key[64];
    snprintf(key, sizeof key, "config.%s", config_field_name(i));
    const char *value = ckpt_find_meta(c, key);
    if (value && !config_set(config, config_field_name(i), value, err)) return false;
  }
  return config_check(config, err);
}

bool state_config(const Checkpoint *c, ModelConfig *config, Category **category, Err *err) {
  bool ours = is_ours(c);
  if (!(ours ? read_config : torchvision_config)(c, config, err)) return false;
  if (!category) return true;
  if (config->classes == 0)
    return err_set(err,
                   "it holds a ResNet backbone without detection heads; train a model from it first, with %s --weights",
                   command_name("train"));
  *category = xcalloc((size_t)model_names(config), sizeof **category);
  if (!ours) {
    torchvision_categories(config, *category);
    return true;
  }
  const char *categories = ckpt_find_meta(c, "categories");
  if (categories && read_categories(categories, model_names(config), *category, err)) return true;
  if (!categories) err_set(err, "checkpoint: its list of categories is missing");
  free(*category);
  *category = NULL;
  return false;
}

bool state_holds_backbone(const Checkpoint *c, const Model *m) { return m->holds_backbone && m->holds_backbone(c); }

// The model whose complete weights a file holds; NULL: unknown, or only a backbone.
static const Model *held_model(const Checkpoint *c) {
  ModelConfig held;
  if (!is_ours(c)) return torchvision_model(c);
  return read_config(c, &held, NULL) ? model_of(&held) : NULL;
}

// The model to train: the named one, otherwise that of the weights, except that torchvision's ResNets become the
// backbone of a detector.
static const Model *wanted_model(const Checkpoint *c, const ModelConfig *named) {
  ModelConfig usual;
  if (named) return model_of(named);
  if (!is_ours(c) && config_init(&usual, DEFAULT_MODEL, NULL) && state_holds_backbone(c, model_of(&usual)))
    return model_of(&usual);
  return held_model(c);
}

static bool backbone_config(const Checkpoint *c, const Model *m, ModelConfig *config, Err *err) {
  ModelConfig held;
  return state_config(c, &held, NULL, err) && m->on_backbone(c, &held, config, err);
}

// A model with a backbone accepts a backbone's weights, its own, or those of another such model, whose parts have the
// same names. For another model's weights, state_load reports what does not fit.
bool state_config_for(const Checkpoint *c, const ModelConfig *named, ModelConfig *config, Err *err) {
  const Model *held = held_model(c), *wanted = wanted_model(c, named);
  const bool unknown = !is_ours(c) && !held && !torchvision_is_backbone(c);
  if (held && held != wanted && wanted->on_backbone && !held->on_backbone) {
    if (!backbone_config(c, wanted, config, err)) return false;
  } else if (unknown && named && !wanted->on_backbone) {
    *config = *named;
    config->classes = 0;
  } else if (!state_config(c, config, NULL, err)) {
    return false;
  }
  if (named && wanted->on_backbone && model_of(config)->on_backbone) config->model = named->model; // both are detectors
  if (!named || (named->depth == config->depth && named->width == config->width && named->model == config->model))
    return true;
  if (wanted->on_backbone || model_of(config)->on_backbone)
    return err_set(err, "the weights are of another model than --model: %s, a ResNet-%d of width %d; leave --model out",
                   model_of(config)->name, config->depth, config->width);
  *config = *named;
  config->classes = 0;
  return true;
}

void state_note(const Checkpoint *c, const char *path) {
  char text[4096 + 512];
  state_note_text(c, path, text, sizeof text);
  if (*text) line_print(stderr, "%s", text);
}

void state_note_text(const Checkpoint *c, const char *path, char *text, size_t room) {
  ModelConfig config;
  char what[128];
  *text = '\0';
  if (is_ours(c) && c->note) snprintf(text, room, "note: %s: %s", path, c->note);
  if (is_ours(c) || !torchvision_config(c, &config, NULL)) return;
  const Model *m = model_of(&config);
  snprintf(what, sizeof what, "%s, %d classes", m->name, config.classes);
  if (m->published->describe) m->published->describe(&config, what, sizeof what);
  snprintf(text, room, "%s: torchvision weights: %s%s%s", path, what, c->note ? "; " : "", c->note ? c->note : "");
}

// Compares configurations. Fields added since the checkpoint was written have their defaults in it.
static bool same_model(const Checkpoint *c, const ModelConfig *config, Err *err) {
  ModelConfig held;
  if (!read_config(c, &held, err)) return false;
  for (int i = 0; i < config_fields(); i++) {
    char was[256], value[256];
    config_get(&held, i, was, sizeof was);
    config_get(config, i, value, sizeof value);
    if (strcmp(was, value))
      return err_set(err, "its model has %s = %s, but this run's has %s; give the same options or choose another --out",
                     config_field_name(i), was, value);
  }
  return true;
}

bool state_continues(const Checkpoint *c, const ModelConfig *config, const char *run, const char *const *amendable,
                     Record *changes, Err *err) {
  const char *was = ckpt_find_meta(c, "run");
  if (was && identity_is_older(was))
    return err_set(err, "it is of a run of version 1.1 or older: continue it with version 1.2, or start a new run in "
                        "another --out with these --weights");
  if (!same_model(c, config, err)) return false;
  if (!was) return err_set(err, "it lacks the record of its run; start without --resume");
  return changes ? identity_amend(was, run, amendable, changes, err) : identity_same(was, run, amendable, err);
}

bool state_exif(const Checkpoint *c, bool *exif) {
  const char *run = ckpt_find_meta(c, "run");
  return run && identity_flag(run, "exif", exif);
}

// The list of categories in a checkpoint; false if there is none. The caller frees both.
static bool held_categories(const Checkpoint *c, const char *path, Category **category, CategoryList *list, Err *err) {
  ModelConfig held;
  if (!state_config(c, &held, category, err)) return false;
  *list = categories_of_model(*category, model_names(&held), path);
  return true;
}

bool state_categories(const Checkpoint *c, const char *path, const CategoryList *data, int *from, Notes *notes,
                      Err *err) {
  Category *category;
  CategoryList held;
  if (!held_categories(c, path, &category, &held, err)) return false;
  const bool ok = held.n == data->n
                      ? categories_match(&held, data, NULL, from, notes, err)
                      : err_set(err, "%s has %d categories, but %s has %d", path, held.n, data->of, data->n);
  free((void *)held.item);
  free(category);
  return ok;
}

bool state_same_categories(const Checkpoint *c, const char *path, const CategoryList *data, Err *err) {
  Category *category;
  CategoryList held;
  if (!held_categories(c, path, &category, &held, err)) return false;
  const bool ok = categories_same(&held, data, err);
  free((void *)held.item);
  free(category);
  return ok;
}

static bool read_step(const char *text, int64_t *step) {
  char *end;
  errno = 0;
  *step = strtoll(text, &end, 10);
  return !errno && end > text && !*end && *step >= 0;
}

static bool read_scale(const char *text, double scale[3]) {
  return sscanf(text, "%lf %lf %lf", &scale[0], &scale[1], &scale[2]) == 3 && isfinite(scale[0]) && scale[0] > 0 &&
         isfinite(scale[1]) && isfinite(scale[2]);
}

bool state_resume(const Checkpoint *c, RunState *state, Err *err) {
  const char *step = ckpt_find_meta(c, "step"), *run = ckpt_find_meta(c, "run");
  if (!step || !run) return err_set(err, "the checkpoint lacks the step of its run; start without --resume");
  *state = (RunState){.scale = {1}, .run = run};
  if (!read_step(step, &state->step))
    return err_set(err, "the checkpoint's step '%.40s' is not a whole number of at least 0; use an earlier checkpoint",
                   step);
  const char *scale = ckpt_find_meta(c, "loss_scale");
  if (scale && !read_scale(scale, state->scale))
    return err_set(err, "the checkpoint's loss_scale '%.80s' is not three numbers, the first above 0", scale);
  return true;
}
