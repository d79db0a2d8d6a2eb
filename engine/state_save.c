#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/record.h"
#include "engine/state.h"
#include "engine/state_names.h"

static void declare_tensor(CkptWriter *w, const char *prefix, const Param *q) {
  char *name = xasprintf("%s%s", prefix, q->name);
  int64_t dims[4];
  for (int i = 0; i < q->ndim; i++) dims[i] = q->dims[i];
  ckpt_tensor(w, name, CKPT_F32, q->ndim, dims);
  free(name);
}

// The name of the counter of batches that torch.nn.BatchNorm2d stores with its running statistics. NULL for other
// parameters and other norms, otherwise malloc'ed.
static char *batches_name(const Engine *e, const Param *q) {
  static const char mean[] = "running_mean";
  size_t stem = strlen(q->name) - MIN(strlen(q->name), sizeof mean - 1);
  if (!config_batch_norm(&e->config) || strcmp(q->name + stem, mean)) return NULL;
  return xasprintf("%.*snum_batches_tracked", (int)stem, q->name);
}

static void declare_batches(CkptWriter *w, const Engine *e) {
  for (int i = 0; i < e->params.n; i++) {
    char *name = batches_name(e, e->params.list[i]);
    if (name) ckpt_tensor(w, name, CKPT_I64, 0, NULL);
    free(name);
  }
}

static void write_batches(CkptWriter *w, const Engine *e, int64_t batches) {
  for (int i = 0; i < e->params.n; i++) {
    char *name = batches_name(e, e->params.list[i]);
    if (name) ckpt_data(w, &batches);
    free(name);
  }
}

static char *categories_json(const Engine *e) {
  Record item = {0};
  char *text = xstrdup("[");
  for (int i = 0; i < model_names(&e->config); i++) {
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

// The number of updates, and values derived from it; only Adam's checkpoints have them.
static void write_adam(CkptWriter *w, const Engine *e) {
  double state[ADAM_STATE];
  char text[96];
  if (!snapshot_adam(&e->snapshot, state)) return;
  snprintf(text, sizeof text, "%.17g %.17g %.17g", state[0], state[1], state[2]);
  ckpt_meta(w, "adam", text);
}

static void write_meta(CkptWriter *w, const Engine *e, const RunState *state) {
  ckpt_meta(w, "format", ckpt_format);
  if (e->config.model) ckpt_meta(w, "model", e->model->name); // checkpoints of the first model do not name it
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
  write_adam(w, e);
  ckpt_meta(w, "run", state->run);
  if (state->trained_on) ckpt_meta(w, "trained_on", state->trained_on);
  if (state->held_out) ckpt_meta(w, "held_out", state->held_out);
}

void state_take(Engine *e, RunState *state) {
  state->batches = e->batches;
  engine_get_scale(e, state->scale);
  snapshot_take(&e->snapshot);
}

bool state_write(const Engine *e, const RunState *state, const StateFile *file, Err *err) {
  CkptWriter w;
  const Params *p = &e->params;
  const Snapshot *s = &e->snapshot;
  if (!snapshot_wait(s)) {
    errno = ENODEV;
    return err_set(err, "%s: not written: the device failed before the state was copied", file->path);
  }
  if (!ckpt_begin(&w, file->path, err)) return false;
  w.file.previous = file->previous;
  write_meta(&w, e, state);
  const int parts = file->momentum ? STATE_PARTS : STATE_WEIGHTS + 1;
  for (int part = 0; part < parts; part++)
    for (int i = 0; i < p->n; i++)
      if (state_resumes_from(p, p->list[i], part)) declare_tensor(&w, state_prefix[part], p->list[i]);
  declare_batches(&w, e);
  for (int part = 0; part < parts; part++)
    for (int i = 0; i < p->n; i++)
      if (state_resumes_from(p, p->list[i], part))
        ckpt_data(&w, snapshot_values(s, p->list[i], state_place(p, p->list[i], part)));
  write_batches(&w, e, state->batches);
  return ckpt_commit(&w, err);
}
