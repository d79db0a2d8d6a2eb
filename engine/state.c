#include "engine/state.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "base/output.h"
#include "base/record.h"
#include "engine/identity.h"
#include "models/torchvision.h"
#include "models/torchvision_classifier.h"

static const char format[] = "maskrcnn.c 1";

// ---- saving -----------------------------------------------------------------------------------------------------

// How the names of tensors begin.
static const char *const part_prefix[] = {
    [SNAPSHOT_MASTER] = "", [SNAPSHOT_MOMENTUM] = "momentum.", [SNAPSHOT_SECOND] = "second_moment."};

static void declare_tensor(CkptWriter *w, const char *prefix, const Param *q) {
  char *name = xasprintf("%s%s", prefix, q->name);
  int64_t dims[4];
  for (int i = 0; i < q->ndim; i++) dims[i] = q->dims[i];
  ckpt_tensor(w, name, CKPT_F32, q->ndim, dims);
  free(name);
}

// torch.nn.BatchNorm2d also keeps how many batches its running statistics have seen, as an integer beside each of them.
// Returns NULL for other parameters and other norms, else malloc'ed.
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

// How many updates there were, and what follows from that: a checkpoint without it is not Adam's.
static void write_adam(CkptWriter *w, const Engine *e) {
  double state[ADAM_STATE];
  char text[96];
  if (!snapshot_adam(&e->snapshot, state)) return;
  snprintf(text, sizeof text, "%.17g %.17g %.17g", state[0], state[1], state[2]);
  ckpt_meta(w, "adam", text);
}

static void write_meta(CkptWriter *w, const Engine *e, const RunState *state) {
  ckpt_meta(w, "format", format);
  if (e->config.model) ckpt_meta(w, "model", e->model->name); // the first model's checkpoints do not name it
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
}

void state_take(Engine *e, RunState *state) {
  state->batches = e->batches;
  engine_get_scale(e, state->scale);
  snapshot_take(&e->snapshot);
}

// Only what is trained has moments.
static bool part_of(const Param *q, SnapshotPart part) { return part == SNAPSHOT_MASTER || q->trainable; }

bool state_write(const Engine *e, const RunState *state, const StateFile *file, Err *err) {
  CkptWriter w;
  const Params *p = &e->params;
  const Snapshot *s = &e->snapshot;
  if (!snapshot_wait(s)) {
    errno = ENODEV;
    return err_set(err, "%s: the device failed before it was copied", file->path);
  }
  if (!ckpt_begin(&w, file->path, err)) return false;
  w.file.previous = file->previous;
  write_meta(&w, e, state);
  const SnapshotPart last = !file->momentum ? SNAPSHOT_MASTER : p->adam ? SNAPSHOT_SECOND : SNAPSHOT_MOMENTUM;
  for (SnapshotPart part = 0; part <= last; part++)
    for (int i = 0; i < p->n; i++)
      if (part_of(p->list[i], part)) declare_tensor(&w, part_prefix[part], p->list[i]);
  declare_batches(&w, e);
  for (SnapshotPart part = 0; part <= last; part++)
    for (int i = 0; i < p->n; i++)
      if (part_of(p->list[i], part)) ckpt_data(&w, snapshot_values(s, p->list[i], part));
  write_batches(&w, e, state->batches);
  return ckpt_commit(&w, err);
}

// ---- loading ----------------------------------------------------------------------------------------------------

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
  return found && !strcmp(found, format);
}

bool state_open(Checkpoint *c, const char *path, Err *err) {
  if (!ckpt_open(c, path, err)) return false;
  if (is_ours(c) || torchvision_rename(c, path, err)) return true;
  ckpt_close(c);
  return false;
}

// torchvision's label is COCO's category id. Of a classifier's classes, from 0 on, its files do not tell the names.
static void torchvision_categories(const ModelConfig *c, Category *out) {
  const bool detector = model_of(c)->task == TASK_DETECTION;
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
  if (m->task != TASK_DETECTION) return false;
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
  const bool classifier = is_ours(c) ? read_config(c, &held, NULL) && model_of(&held)->task == TASK_CLASSIFICATION
                                     : torchvision_kind(c) == WEIGHTS_CLASSIFIER;
  const bool backbone = named ? model_of(named)->task == TASK_DETECTION : !is_ours(c) && torchvision_has_resnet(c);
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
  if (m->task == TASK_DETECTION || model_of(config)->task == TASK_DETECTION)
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
  if (model_of(&config)->task == TASK_CLASSIFICATION) {
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

// Names of tensors that are wrong in the same way: the first ten and how many there are.
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
  bool backbone; // the file holds no more than that for this model, or …
  size_t longer; // … a classification network's, whose names are shorter by the backbone's beginning
  bool *used;    // [tensors of the file]
  Wrong wrong[WRONGS];
  bool other;     // more is wrong than the shapes of what depends on the classes
  Wrong infinite; // tensors of the model that hold what is no number
} Loading;

// " (F32 [91 1024], not [81 1024])"
static char *shapes_text(const CkptTensor *t, const Param *q) {
  char *text;
  size_t size;
  FILE *f = text_open(&text, &size);
  fprintf(f, " (%s [", ckpt_type_name(t->type));
  for (int i = 0; i < t->ndim; i++) fprintf(f, i ? " %lld" : "%lld", (long long)t->dims[i]);
  fprintf(f, "], not [");
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

// Copies one tensor, or adds its name to those that are wrong.
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
    param_import(&l->e->params, q, what, values);
  }
  free(values);
  free(name);
}

static bool ends_in(const char *name, const char *end) {
  size_t n = strlen(name), m = strlen(end);
  return n >= m && !strcmp(name + n - m, end);
}

// What a network without them leaves aside: heads that are training's alone, a classifier's where a detector begins.
static bool is_left_aside(const Loading *l, const char *name) {
  const char *const *part = l->e->model->of_training;
  for (; part && *part; part++)
    if (!strncmp(name, *part, strlen(*part))) return true;
  return l->longer && !strncmp(name, "fc.", 3);
}

static bool is_moment(const char *name) {
  for (SnapshotPart part = SNAPSHOT_MOMENTUM; part <= SNAPSHOT_SECOND; part++)
    if (!strncmp(name, part_prefix[part], strlen(part_prefix[part]))) return true;
  return false;
}

// What no parameter takes: moments and counters have their place, heads that are not wanted were dropped.
static void check_unexpected(Loading *l) {
  for (size_t i = 0; i < l->c->num_tensors; i++) {
    const char *name = l->c->tensors[i].name;
    if (l->used[i] || is_left_aside(l, name) || is_moment(name) || ends_in(name, ".num_batches_tracked")) continue;
    if (l->o->reset_heads && class_dependent(l->e->model, name)) continue;
    add_wrong(&l->wrong[UNEXPECTED], name, "");
    l->other = true;
  }
}

// All running statistics have seen the same batches. Files of the time before they were counted have no number.
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
  if (!e->params.adam && text) return err_set(err, "its run was made with --optimizer adam or adamw: give it, too");
  if (!e->params.adam) return true;
  if (!text || !read_adam(text, state))
    return err_set(err, "the checkpoint's adam '%.80s' is not a count and two numbers from 0 to 1", text ? text : "");
  float values[ADAM_STATE];
  for (int i = 0; i < ADAM_STATE; i++) values[i] = (float)state[i];
  send_reals(e->dev, device_upload, e->params.adam_state, values, ADAM_STATE);
  return true;
}

// Only training has options that choose a model.
static const char *advice(const Loading *l) {
  ModelConfig held;
  const ModelConfig *c = &l->e->config;
  if (model_of(c)->task == TASK_CLASSIFICATION && state_config(l->c, &held, NULL, NULL) && held.model == c->model &&
      held.size != c->size)
    return "fully connected layers have the shape that their size of images gives them: leave --size out";
  if (!l->e->train.shapes.canvases) return "its tensors and what it says of its model do not agree: save it again";
  return l->other ? "build/inspect lists what the file holds, --model and --norm must agree with it"
                  : "--reset-heads starts with new outputs";
}

// What to do stands before the names: who calls the library may have room for the beginning alone.
static bool report(const Loading *l, Err *err) {
  char text[sizeof err->msg - 512] = ""; // room for what stands around it
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
                   "the weights hold NaN or infinities, as when training diverged or the file was damaged: use an "
                   "earlier checkpoint; tensors: %d,%s%s",
                   l->infinite.n, l->infinite.names, l->infinite.n > NAMED ? ", …" : "");
  return err_set(err, "the weights are of another model: %s; tensors that do not fit: %d, %s", advice(l), total, text);
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
    load_tensor(&l, q, "", &q->master);
    if (!o->momentum || !q->trainable) continue;
    load_tensor(&l, q, part_prefix[SNAPSHOT_MOMENTUM], &q->momentum);
    if (e->params.adam) load_tensor(&l, q, part_prefix[SNAPSHOT_SECOND], &q->second);
  }
  check_unexpected(&l);
  load_batches(&l);
  bool ok = report(&l, err) && (!o->momentum || load_adam(e, c, err));
  for (int i = 0; i < WRONGS; i++) free(l.wrong[i].names);
  free(l.infinite.names);
  free(l.used);
  if (ok) params_refresh(&e->params);
  return ok;
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
  const bool unnamed = !is_ours(c) && model_of(&held)->task == TASK_CLASSIFICATION;
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
