#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/command.h"
#include "base/output.h"
#include "base/text.h"
#include "engine/state.h"
#include "engine/state_names.h"
#include "models/torchvision.h"

static bool class_dependent(const Model *m, const char *name) {
  for (const char *const *part = m->class_parameters; *part; part++)
    if (strstr(name, *part)) return true;
  return false;
}

static bool same_dims(const CkptTensor *t, const Param *q) {
  if (t->ndim != q->ndim) return false;
  for (int i = 0; i < q->ndim; i++)
    if (t->dims[i] != q->dims[i]) return false;
  return true;
}

static bool read_adam(const char *text, double state[ADAM_STATE]) {
  return sscanf(text, "%lf %lf %lf", &state[0], &state[1], &state[2]) == ADAM_STATE && isfinite(state[0]) &&
         state[0] >= 0 && state[1] >= 0 && state[1] <= 1 && state[2] >= 0 && state[2] <= 1;
}

// Names of tensors with the same error: the first ten, and how many there are.
typedef struct Wrong {
  const char *how;
  char *names;
  int n;
} Wrong;
enum { MISSING, UNEXPECTED, MISSHAPED, WRONGS, NAMED = 10 };

static void add_wrong(Wrong *w, const char *name, const char *detail) {
  if (w->n++ >= NAMED) return;
  char *longer = xasprintf("%s%s %.150s%s", w->names ? w->names : "", w->n > 1 ? "," : "", name, detail);
  free(w->names);
  w->names = longer;
}

typedef struct Loading {
  Engine *e;
  const Checkpoint *c;
  const LoadOptions *o;
  bool backbone; // the file holds only a backbone for this model
  size_t longer; // … of a classification network, whose names lack the backbone's prefix of this length
  bool *used;    // [tensors of the file]
  Wrong wrong[WRONGS];
  bool other;     // there are errors other than the shapes of class-dependent tensors
  Wrong infinite; // tensors of the model with NaN or infinities
} Loading;

// " (F32 [91 1024], not [81 1024])"
static char *shapes_text(const CkptTensor *t, const Param *q) {
  char *text;
  size_t size;
  FILE *f = text_open(&text, &size);
  fprintf(f, " (%s [", ckpt_type_name(t->type));
  for (int i = 0; i < t->ndim; i++) fprintf(f, i ? " %lld" : "%lld", (long long)t->dims[i]);
  fprintf(f, "] instead of [");
  for (int i = 0; i < q->ndim; i++) fprintf(f, i ? " %d" : "%d", q->dims[i]);
  fprintf(f, "])");
  text_close(f);
  return text;
}

static bool all_finite(const float *values, size_t n) {
  bool finite = true;
  for (size_t i = 0; i < n; i++) finite &= isfinite(values[i]) != 0;
  return finite;
}

// Reorders outputs, which are grouped by class, the background's first.
static void reorder_outputs(const Loading *l, const Param *q, float *values) {
  const int classes = l->e->config.classes, background = l->e->model->background;
  const size_t elements = param_elements(q), each = elements / (size_t)classes;
  CHECK(each * (size_t)classes == elements);
  float *held = memcpy(xmalloc(elements * sizeof *held), values, elements * sizeof *held);
  for (int k = background; k < classes; k++)
    memcpy(values + (size_t)k * each, held + (size_t)(l->o->from[k - background] + background) * each,
           each * sizeof *held);
  free(held);
}

// Copies one tensor, or adds its name to a list of errors.
static void load_tensor(Loading *l, Param *q, const char *prefix, const Tensor *what) {
  char *name = xasprintf("%s%s", prefix, q->name + l->longer);
  const CkptTensor *t = ckpt_find(l->c, name);
  float *values = xmalloc(param_elements(q) * sizeof *values);
  if (t) l->used[t - l->c->tensors] = true;
  if (!t) {
    add_wrong(&l->wrong[MISSING], name, "");
    l->other = true;
  } else if (!same_dims(t, q) || !ckpt_read_floats(t, values)) {
    char *shapes = shapes_text(t, q);
    add_wrong(&l->wrong[MISSHAPED], name, shapes);
    free(shapes);
    l->other |= !class_dependent(l->e->model, name);
  } else if (!all_finite(values, t->elements)) {
    add_wrong(&l->infinite, name, "");
  } else {
    if (l->o->from && class_dependent(l->e->model, q->name)) reorder_outputs(l, q, values);
    param_import(&l->e->params, q, what, values);
  }
  free(values);
  free(name);
}

static bool ends_in(const char *name, const char *end) {
  size_t n = strlen(name), m = strlen(end);
  return n >= m && !strcmp(name + n - m, end);
}

// Whether a tensor may be ignored: of a head that the model lacks, or the classifier of a network that becomes a
// backbone.
static bool is_left_aside(const Loading *l, const char *name) {
  const char *const *part = l->e->model->ignored;
  for (; part && *part; part++)
    if (!strncmp(name, *part, strlen(*part))) return true;
  return l->longer && !strncmp(name, "fc.", 3);
}

static bool is_parameter(const Engine *e, const char *name) {
  for (int i = 0; i < e->params.n; i++)
    if (!strcmp(e->params.list[i]->name, name)) return true;
  return false;
}

int state_ignored(const Engine *e, const Checkpoint *c, const char **names) {
  int n = 0;
  for (const char *const *part = e->model->ignored; part && *part; part++)
    for (size_t i = 0; i < c->num_tensors; i++) {
      const char *name = c->tensors[i].name;
      if (strncmp(name, *part, strlen(*part)) != 0 || is_parameter(e, name)) continue;
      *names = *part;
      n++;
    }
  return n;
}

static bool is_for_resuming(const char *name) {
  for (int part = STATE_WEIGHTS + 1; part < STATE_PARTS; part++)
    if (!strncmp(name, state_prefix[part], strlen(state_prefix[part]))) return true;
  return false;
}

// Reports tensors that match no parameter. Optimizer state and counters are read elsewhere; ignored heads were dropped
// before.
static void check_unexpected(Loading *l) {
  for (size_t i = 0; i < l->c->num_tensors; i++) {
    const char *name = l->c->tensors[i].name;
    if (l->used[i] || is_left_aside(l, name) || is_for_resuming(name) || ends_in(name, ".num_batches_tracked"))
      continue;
    if (l->o->reset_heads && class_dependent(l->e->model, name)) continue;
    add_wrong(&l->wrong[UNEXPECTED], name, "");
    l->other = true;
  }
}

// All running statistics have seen the same number of batches, which older files lack.
static void load_batches(Loading *l) {
  l->e->batches = 0;
  for (size_t i = 0; i < l->c->num_tensors; i++) {
    const CkptTensor *t = &l->c->tensors[i];
    if (!ends_in(t->name, ".num_batches_tracked") || t->type != CKPT_I64 || t->elements != 1) continue;
    memcpy(&l->e->batches, t->data, sizeof l->e->batches);
    return;
  }
}

static bool load_adam(Engine *e, const Checkpoint *c, Err *err) {
  const char *text = ckpt_find_meta(c, "adam");
  double state[ADAM_STATE];
  if (!e->params.adam && text) return err_set(err, "its run used --optimizer adam or adamw: give the same --optimizer");
  if (!e->params.adam) return true;
  if (!text || !read_adam(text, state))
    return err_set(err, "the checkpoint's Adam state '%.80s' is not a count and two numbers from 0 to 1",
                   text ? text : "");
  float values[ADAM_STATE];
  for (int i = 0; i < ADAM_STATE; i++) values[i] = (float)state[i];
  send_reals(e->dev, device_upload, e->params.adam_state, values, ADAM_STATE);
  return true;
}

// The option to change, which only training has.
static const char *advice(const Loading *l, char room[160]) {
  ModelConfig held;
  const ModelConfig *c = &l->e->config;
  const bool shapes_alone = !l->wrong[MISSING].n && !l->wrong[UNEXPECTED].n;
  if (shapes_alone && model_of(c)->square && state_config(l->c, &held, NULL, NULL) && held.model == c->model &&
      held.size != c->size)
    return "the shape of fully connected layers depends on the image size: leave --size out";
  if (!l->e->train.shapes.canvases) return "its tensors do not match its model configuration: save it again";
  if (!l->other) return "--reset-heads replaces the output layers by new ones";
  snprintf(room, 160, "%s lists the file's tensors; choose --model and --norm to match", command_name("inspect"));
  return room;
}

// Puts the advice before the names, because callers of the library may show only the beginning.
static bool report(const Loading *l, Err *err) {
  char text[sizeof err->msg - 512] = ""; // leaves room for the text around it
  char room[160];
  int total = 0;
  for (int i = 0; i < WRONGS; i++) {
    const Wrong *w = &l->wrong[i];
    size_t used = strlen(text);
    if (w->n)
      snprintf(text + used, sizeof text - used, "%s%s%s%s", total ? "; " : "", w->how, w->names,
               w->n > NAMED ? ", …" : "");
    total += w->n;
  }
  if (!total && !l->infinite.n) return true;
  if (!total)
    return err_set(err,
                   "the weights contain NaN or infinite values (training diverged, or the file is damaged): use an "
                   "earlier checkpoint; tensors: %d,%s%s",
                   l->infinite.n, l->infinite.names, l->infinite.n > NAMED ? ", …" : "");
  return err_set(err, "the weights do not fit the model: %s; tensors that do not match: %d, %s", advice(l, room), total,
                 text);
}

bool state_load(Engine *e, const Checkpoint *c, const LoadOptions *o, Err *err) {
  Loading l = {.e = e,
               .c = c,
               .o = o,
               .backbone = state_holds_backbone(c, e->model),
               .used = xcalloc(c->num_tensors, sizeof(bool)),
               .wrong = {{.how = "missing"}, {.how = "unexpected"}, {.how = "misshaped"}}};
  if (l.backbone && torchvision_has_resnet(c)) l.longer = strlen(e->model->backbone);
  for (int i = 0; i < e->params.n; i++) {
    Param *q = e->params.list[i];
    if (o->reset_heads && class_dependent(e->model, q->name)) continue;
    if (l.backbone && strncmp(q->name, e->model->backbone, strlen(e->model->backbone))) continue;
    const Tensor *const at[] = {&q->master, &q->momentum, &q->second, &q->average}; // by SnapshotPart
    const int parts = o->momentum ? STATE_PARTS : STATE_WEIGHTS + 1;
    for (int part = 0; part < parts; part++)
      if (state_resumes_from(&e->params, q, part))
        load_tensor(&l, q, state_prefix[part], o->momentum ? at[state_place(&e->params, q, part)] : &q->master);
  }
  check_unexpected(&l);
  load_batches(&l);
  bool ok = report(&l, err) && (!o->momentum || load_adam(e, c, err));
  for (int i = 0; i < WRONGS; i++) free(l.wrong[i].names);
  free(l.infinite.names);
  free(l.used);
  if (ok && !o->momentum) params_begin_averages(&e->params);
  if (ok) params_refresh(&e->params);
  return ok;
}
