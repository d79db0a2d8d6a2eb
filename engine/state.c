#include "engine/state.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/json.h"
#include "base/output.h"
#include "base/record.h"
#include "classification/nets/torchvision_classifier.h"
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
  if (!ok) err_set(err, "checkpoint: its categories are not usable (%d, and the model has %d)", n, names);
  json_close(&j);
  return ok;
}

static bool is_ours(const Checkpoint *c) {
  const char *found = ckpt_find_meta(c, "format");
  return found && !strcmp(found, state_format);
}

bool state_open(Checkpoint *c, const char *path, Err *err) {
  if (!ckpt_open(c, path, err)) return false;
  if (is_ours(c) || torchvision_rename(c, path, err)) return true;
  ckpt_close(c);
  return false;
}

// torchvision's label is COCO's category id. Of a classifier's classes, from 0 on, its files do not tell the names.
static void torchvision_categories(const ModelConfig *c, Category *out) {
  const bool detector = model_of(c)->traits & MODEL_DETECTOR;
  for (int i = 0; i < model_names(c); i++) {
    const char *name = detector ? torchvision_category(c->classes, i + 1) : NULL;
    out[i].id = i + detector;
    if (name)
      snprintf(out[i].name, sizeof out[i].name, "%s", name);
    else
      snprintf(out[i].name, sizeof out[i].name, "class %d", i + detector);
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
    return err_set(err, "it holds a ResNet without heads, which finds nothing yet; ./train --weights starts from it");
  *category = xcalloc((size_t)model_names(config), sizeof **category);
  if (!ours) {
    torchvision_categories(config, *category);
    return true;
  }
  const char *categories = ckpt_find_meta(c, "categories");
  if (categories && read_categories(categories, model_names(config), *category, err)) return true;
  if (!categories) err_set(err, "checkpoint: it does not name its categories");
  free(*category);
  *category = NULL;
  return false;
}

bool state_holds_backbone(const Checkpoint *c, const Model *m) {
  if (!(m->traits & MODEL_DETECTOR)) return false;
  return torchvision_has_resnet(c) || (!is_ours(c) && torchvision_kind(c) == WEIGHTS_BACKBONE);
}

// The default detector on the ResNet of a classification network, whose batch norm it freezes.
static bool backbone_config(const Checkpoint *c, ModelConfig *config, Err *err) {
  ModelConfig held;
  if (!state_config(c, &held, NULL, err) || !config_init(config, DEFAULT_MODEL, err)) return false;
  if (!torchvision_has_resnet(c))
    return err_set(err, "its model, %s, is no backbone of a detector; a ResNet is", model_of(&held)->name);
  config->depth = held.depth;
  config->width = held.width;
  config->norm = config_batch_norm(&held) ? NORM_FROZEN_BN : held.norm;
  config->norm_groups = held.norm_groups;
  config->norm_eps = held.norm_eps;
  config->pixel_unit = held.pixel_unit;
  config->bgr = held.bgr;
  config->stride_in_1x1 = held.stride_in_1x1;
  memcpy(config->mean, held.mean, sizeof config->mean);
  memcpy(config->std, held.std, sizeof config->std);
  config->classes = 0;
  return true;
}

bool state_config_for(const Checkpoint *c, const ModelConfig *named, ModelConfig *config, Err *err) {
  ModelConfig held;
  const bool classifier = is_ours(c) ? read_config(c, &held, NULL) && (model_of(&held)->traits & MODEL_CLASSIFIER)
                                     : torchvision_kind(c) == WEIGHTS_CLASSIFIER;
  const bool backbone = named ? (model_of(named)->traits & MODEL_DETECTOR) : !is_ours(c) && torchvision_has_resnet(c);
  const bool unknown = !is_ours(c) && torchvision_kind(c) == WEIGHTS_UNKNOWN;
  if (classifier && backbone) {
    if (!backbone_config(c, config, err)) return false;
  } else if (unknown && named && !backbone) {
    *config = *named;
    config->classes = 0;
  } else if (!state_config(c, config, NULL, err)) {
    return false;
  }
  if (!named || (named->depth == config->depth && named->width == config->width && named->model == config->model))
    return true;
  const Model *m = model_of(named);
  if ((m->traits & MODEL_DETECTOR) || (model_of(config)->traits & MODEL_DETECTOR))
    return err_set(err,
                   "the checkpoint is of another model than --model: %s, a ResNet-%d of width %d; leave --model out",
                   model_of(config)->name, config->depth, config->width);
  *config = *named; // what does not fit is for state_load to name
  config->classes = 0;
  return true;
}

void state_note(const Checkpoint *c, const char *path) {
  ModelConfig config;
  if (is_ours(c) || !torchvision_config(c, &config, NULL)) return;
  if (model_of(&config)->traits & MODEL_CLASSIFIER) {
    line_print(stderr, "%s: weights of torchvision's: %s, %d classes%s%s", path, model_of(&config)->name,
               config.classes, c->note ? "; " : "", c->note ? c->note : "");
    return;
  }
  text_print(stderr, "%s: weights of torchvision's: ResNet-%d", path, config.depth);
  if (config.classes)
    fprintf(stderr, ", %s%s, %d classes", norm_names[config.norm],
            config.norm == NORM_FROZEN_BN ? " with eps 0, as the published ones" : "", config.classes);
  else
    fprintf(stderr, " as backbone");
  line_print(stderr, "%s%s", c->note ? "; " : "", c->note ? c->note : "");
}

// A field that is younger than the checkpoint has its default there.
static bool same_model(const Checkpoint *c, const ModelConfig *config, Err *err) {
  ModelConfig held;
  if (!read_config(c, &held, err)) return false;
  for (int i = 0; i < config_fields(); i++) {
    char was[256], value[256];
    config_get(&held, i, was, sizeof was);
    config_get(config, i, value, sizeof value);
    if (strcmp(was, value))
      return err_set(err, "its model has %s = %s, that of this run %s; give the same options or another --out",
                     config_field_name(i), was, value);
  }
  return true;
}

bool state_continues(const Checkpoint *c, const ModelConfig *config, const char *run, Record *changes, Err *err) {
  if (!same_model(c, config, err)) return false;
  const char *was = ckpt_find_meta(c, "run");
  if (!was) return err_set(err, "it does not say how its run was made; start without --resume");
  return changes ? identity_amend(was, run, changes, err) : identity_same(was, run, err);
}

static bool same_category(const Category *a, const Category *b, bool exactly) {
  bool same_name = !strcmp(a->name, b->name), named = *a->name && *b->name;
  return exactly ? same_name && a->id == b->id : named ? same_name : a->id == b->id;
}

bool state_categories(const Checkpoint *c, const Engine *e, bool exactly, Err *err) {
  ModelConfig held;
  Category *category = NULL;
  if (!state_config(c, &held, &category, err)) return false;
  const bool unnamed = !is_ours(c) && (model_of(&held)->traits & MODEL_CLASSIFIER);
  for (int i = 0; unnamed && i < model_names(&held); i++) category[i].name[0] = '\0';
  bool ok = held.classes == e->config.classes ||
            err_set(err, "it has %d categories, the data %d", model_names(&held), model_names(&e->config));
  for (int i = 0; ok && i < model_names(&e->config); i++) {
    const Category *was = &category[i], *is = &e->category[i];
    if (!same_category(was, is, exactly))
      ok = err_set(err, "its category %d is %lld (%s), that of the data %lld (%s)", i + 1, (long long)was->id,
                   was->name, (long long)is->id, is->name);
  }
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
  if (!step || !run) return err_set(err, "the checkpoint does not say where its run stood; start without --resume");
  *state = (RunState){.scale = {1}, .run = run};
  if (!read_step(step, &state->step))
    return err_set(err, "the checkpoint's step '%.40s' is no whole number of at least 0; use an earlier checkpoint",
                   step);
  const char *scale = ckpt_find_meta(c, "loss_scale");
  if (scale && !read_scale(scale, state->scale))
    return err_set(err, "the checkpoint's loss_scale '%.80s' is not three numbers, the first above 0", scale);
  return true;
}
