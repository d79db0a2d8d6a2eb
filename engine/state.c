#include "engine/state.h"
#include <stdlib.h>
#include <string.h>
#include "data/json.h"
#include "nn/record.h"

static const char format[] = "maskrcnn.c 1";

// ---- saving -----------------------------------------------------------------------------------------------------

static void declare_tensor(CkptWriter *w, const char *prefix, const Param *q) {
  char *name = xasprintf("%s%s", prefix, q->name);
  int64_t dims[4];
  for (int i = 0; i < q->ndim; i++) dims[i] = q->dims[i];
  ckpt_tensor(w, name, CKPT_F32, q->ndim, dims);
  free(name);
}

static void write_tensor(CkptWriter *w, const Engine *e, const Param *q, const Tensor *what) {
  float *values = xmalloc(param_elements(q) * sizeof *values);
  param_export(&e->params, q, what, values);
  ckpt_data(w, values);
  free(values);
}

static char *categories_json(const Engine *e) {
  Record item = {0};
  char *text = xstrdup("[");
  for (int i = 0; i < e->config.classes - 1; i++) {
    record_begin(&item);
    record_int(&item, "id", e->category[i].id);
    record_str(&item, "name", e->category[i].name);
    char *longer = xasprintf("%s%s%s", text, i ? "," : "", record_end(&item));
    free(text);
    text = longer;
  }
  char *closed = xasprintf("%s]", text);
  free(text);
  record_free(&item);
  return closed;
}

static void write_meta(CkptWriter *w, const Engine *e, const RunState *state) {
  ckpt_meta(w, "format", format);
  for (int i = 0; i < config_fields(); i++) {
    char key[64], value[256];
    snprintf(key, sizeof key, "config.%s", config_field_name(i));
    config_get(&e->config, i, value, sizeof value);
    ckpt_meta(w, key, value);
  }
  char *categories = categories_json(e), step[32];
  ckpt_meta(w, "categories", categories);
  free(categories);
  snprintf(step, sizeof step, "%lld", (long long)state->step);
  ckpt_meta(w, "step", step);
  char scale[96];
  snprintf(scale, sizeof scale, "%.17g %.17g %.17g", state->scale[0], state->scale[1], state->scale[2]);
  ckpt_meta(w, "loss_scale", scale);
  ckpt_meta(w, "run", state->run);
}

bool state_save(const Engine *e, const char *path, const RunState *state, bool momentum, Err *err) {
  CkptWriter w;
  const Params *p = &e->params;
  if (!ckpt_begin(&w, path, err)) return false;
  write_meta(&w, e, state);
  for (int i = 0; i < p->n; i++) declare_tensor(&w, "", p->list[i]);
  for (int i = 0; i < p->n; i++)
    if (momentum && p->list[i]->trainable) declare_tensor(&w, "momentum.", p->list[i]);
  for (int i = 0; i < p->n; i++) write_tensor(&w, e, p->list[i], &p->list[i]->master);
  for (int i = 0; i < p->n; i++)
    if (momentum && p->list[i]->trainable) write_tensor(&w, e, p->list[i], &p->list[i]->momentum);
  return ckpt_commit(&w, err);
}

// ---- loading ----------------------------------------------------------------------------------------------------

static bool read_categories(const char *text, int classes, Category *out, Err *err) {
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
      if (n < classes - 1) out[n] = c;
      n++;
    }
  bool ok = json_done(&j) && n == classes - 1;
  if (!ok) err_set(err, "checkpoint: its categories are not usable (%d for %d classes)", n, classes);
  json_close(&j);
  return ok;
}

bool state_config(const Checkpoint *c, ModelConfig *config, Category **category, Err *err) {
  const char *found = ckpt_find_meta(c, "format"), *categories = ckpt_find_meta(c, "categories");
  if (!found || strcmp(found, format) || !categories)
    return err_set(err, "not a checkpoint of this program (no \"format\": \"%s\" in it)", format);
  if (!config_init(config, "maskrcnn-r50-fpn", err)) return false;
  for (int i = 0; i < config_fields(); i++) {
    char key[64];
    snprintf(key, sizeof key, "config.%s", config_field_name(i));
    const char *value = ckpt_find_meta(c, key);
    if (value && !config_set(config, config_field_name(i), value, err)) return false;
  }
  if (!config_check(config, err)) return false;
  *category = xcalloc((size_t)config->classes - 1, sizeof **category);
  if (read_categories(categories, config->classes, *category, err)) return true;
  free(*category);
  *category = NULL;
  return false;
}

static bool class_dependent(const char *name) {
  return strstr(name, "box_predictor.") || strstr(name, "mask_fcn_logits.");
}

static bool same_dims(const CkptTensor *t, const Param *q) {
  if (t->ndim != q->ndim) return false;
  for (int i = 0; i < q->ndim; i++)
    if (t->dims[i] != q->dims[i]) return false;
  return true;
}

static void append_name(Err *list, int n, const char *what, const char *name) {
  size_t used = strlen(list->msg);
  if (n < 4) snprintf(list->msg + used, sizeof list->msg - used, "%s%s %s", n ? ", " : "", what, name);
}

// Copies one tensor, or adds its name to the list of what is wrong.
static int load_tensor(Engine *e, const Checkpoint *c, Param *q, const char *prefix, const Tensor *what, int wrong,
                       Err *list) {
  char *name = xasprintf("%s%s", prefix, q->name);
  const CkptTensor *t = ckpt_find(c, name);
  float *values = xmalloc(param_elements(q) * sizeof *values);
  if (!t)
    append_name(list, wrong++, "missing", name);
  else if (!same_dims(t, q) || !ckpt_read_floats(t, values))
    append_name(list, wrong++, "of another shape or type", name);
  else
    param_import(&e->params, q, what, values);
  free(values);
  free(name);
  return wrong;
}

bool state_load(Engine *e, const Checkpoint *c, const LoadOptions *o, Err *err) {
  Err list = {""};
  int wrong = 0;
  for (int i = 0; i < e->params.n; i++) {
    Param *q = e->params.list[i];
    if (o->reset_heads && class_dependent(q->name)) continue;
    wrong = load_tensor(e, c, q, "", &q->master, wrong, &list);
    if (o->momentum && q->trainable) wrong = load_tensor(e, c, q, "momentum.", &q->momentum, wrong, &list);
  }
  if (wrong)
    return err_set(err, "the checkpoint is of another model: %s%s (%d tensors in all)", list.msg,
                   wrong > 4 ? ", …" : "", wrong);
  params_refresh(&e->params);
  return true;
}

// Both are written by the same code: where they part, one value of one field differs.
static bool same_run(const char *was, const char *is, Err *err) {
  size_t at = 0, field = 0;
  for (; was[at] && was[at] == is[at]; at++)
    if (was[at] == '{' || was[at] == ',') field = at + 1;
  if (was[at] == is[at]) return true;
  const char *a = was + field, *b = is + field;
  return err_set(err, "it was made with %.*s, this run has %.*s; give the same options or another --out",
                 (int)strcspn(a, ",}"), a, (int)strcspn(b, ",}"), b);
}

bool state_continues(const Checkpoint *c, const ModelConfig *config, const char *run, Err *err) {
  for (int i = 0; i < config_fields(); i++) {
    char key[64], value[256];
    snprintf(key, sizeof key, "config.%s", config_field_name(i));
    config_get(config, i, value, sizeof value);
    const char *was = ckpt_find_meta(c, key);
    if (!was || strcmp(was, value))
      return err_set(err, "its model has %s = %s, that of this run %s; give the same options or another --out",
                     config_field_name(i), was ? was : "nothing", value);
  }
  const char *was = ckpt_find_meta(c, "run");
  return was ? same_run(was, run, err) : err_set(err, "it does not say how its run was made; start without --resume");
}

bool state_resume(const Checkpoint *c, RunState *state, Err *err) {
  const char *step = ckpt_find_meta(c, "step"), *run = ckpt_find_meta(c, "run");
  if (!step || !run) return err_set(err, "the checkpoint does not say where its run stood; start without --resume");
  *state = (RunState){.step = strtoll(step, NULL, 10), .scale = {1}, .run = run};
  const char *scale = ckpt_find_meta(c, "loss_scale");
  if (scale && sscanf(scale, "%lf %lf %lf", &state->scale[0], &state->scale[1], &state->scale[2]) != 3)
    return err_set(err, "the checkpoint's loss_scale '%s' is not three numbers", scale);
  return true;
}
