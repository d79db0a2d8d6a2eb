#include "test/harness/small_engine.h"
#include "base/alloc.h"
#include "engine/state.h"
#include "test/harness/test.h"

ModelConfig small_config(NormType norm, int classes) {
  ModelConfig c = synthetic_config(CANVAS, CANVAS, classes);
  c.norm = norm;
  return c;
}

const Optimizer small_adam = {.type = OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};

void small_engine(Engine *e, const ModelConfig *config) { small_engine_with(e, config, &(Optimizer){0}); }

static void small_engine_computing(Engine *e, const ModelConfig *config, const Compute *compute) {
  Err err;
  Shapes shapes = {.canvases = 2,
                   .canvas = {{.h = CANVAS, .w = CANVAS}, {.h = CANVAS, .w = CANVAS + 32}},
                   .images = IMAGES,
                   .max_objects = CAPACITY,
                   .max_bytes = 3 * CANVAS * (CANVAS + 32),
                   .max_words = CAPACITY * CANVAS * 3};
  Category category[16] = {{0}};
  for (int i = 0; i < config->classes - 1; i++) {
    category[i].id = 10 * i + 7;
    snprintf(category[i].name, sizeof category[i].name, "kind \"%d\"", i);
  }
  if (!engine_open(e, compute, model_of(config), config, category, &shapes, &shapes, false, &err))
    die(EXIT_RUN, "%s", err.msg);
}

void small_engine_with(Engine *e, const ModelConfig *config, const Optimizer *optimizer) {
  small_engine_computing(e, config, &(Compute){.device = "cpu", .optimizer = *optimizer});
}

void small_engine_on(Engine *e, const char *device, const ModelConfig *config) {
  small_engine_computing(e, config, &(Compute){.device = device});
}

void small_engine_random(Engine *e, const ModelConfig *config, uint64_t seed) {
  small_engine(e, config);
  params_randomise(&e->params, seed);
}

static const StepOptions options = {.learning_rate = 0.01f, .momentum = 0.9f, .weight_decay = 1e-4f, .clip = 5};

StepResult small_step(Engine *e, int step) {
  int canvas = step % 2;
  Batch b = synthetic_batch(IMAGES, CANVAS, CANVAS + 32 * canvas, CAPACITY, CLASSES, (int[]){3, 1}, (uint64_t)step);
  b.canvas = canvas;
  StepResult r;
  StepOptions o = options;
  o.step = step;
  engine_step(e, &b, &o, &r);
  synthetic_free(&b);
  return r;
}

const char *small_checkpoint(const char *name) {
  static char path[512];
  snprintf(path, sizeof path, "%s/%s.safetensors", test_tmp(), name);
  return path;
}

const char *small_save(Engine *e, const char *name, bool momentum) {
  const char *path = small_checkpoint(name);
  Err err = {""};
  RunState state = {.step = 3, .run = "{\"seed\":1}"};
  state_take(e, &state);
  EXPECT(state_write(e, &state, &(StateFile){.path = path, .momentum = momentum}, &err));
  EXPECT_STR(err.msg, "");
  return path;
}

static void name_bare(const char *name, Rename *rename, char to[256]) {
  if (rename)
    rename(name, to);
  else
    snprintf(to, 256, "%s", name);
}

const char *small_save_bare(const Engine *e, const char *file, Rename *rename) {
  const char *path = small_checkpoint(file);
  CkptWriter w;
  Err err;
  CHECK(ckpt_begin(&w, path, &err));
  char name[256];
  for (int i = 0; i < e->params.n; i++) {
    const Param *q = e->params.list[i];
    int64_t dims[4];
    for (int k = 0; k < q->ndim; k++) dims[k] = q->dims[k];
    name_bare(q->name, rename, name);
    if (*name) ckpt_tensor(&w, name, CKPT_F32, q->ndim, dims);
  }
  for (int i = 0; i < e->params.n; i++) {
    const Param *q = e->params.list[i];
    name_bare(q->name, rename, name);
    if (!*name) continue;
    float *values = xmalloc(param_elements(q) * sizeof *values);
    param_export(&e->params, q, &q->master, values);
    ckpt_data(&w, values);
    free(values);
  }
  CHECK(ckpt_commit(&w, &err));
  return path;
}

Err small_load(Engine *e, const char *path, LoadOptions o) {
  Checkpoint c;
  Err err = {""};
  if (!ckpt_open(&c, path, &err)) return err;
  EXPECT(state_load(e, &c, &o, &err) == !err.msg[0]);
  ckpt_close(&c);
  return err;
}

bool same_values(const Tensor *p, const Tensor *q) { return !memcmp(p->data, q->data, tensor_bytes(p)); }

void expect_same_params(const Engine *a, const Engine *b, bool momentum) {
  EXPECT_INT(a->params.n, b->params.n);
  for (int i = 0; i < a->params.n; i++) {
    const Param *p = a->params.list[i], *q = params_find(&b->params, p->name);
    if (!EXPECT(q && same_values(&p->master, &q->master))) printf("    %s\n", p->name);
    if (momentum && p->trainable) EXPECT(same_values(&p->momentum, &q->momentum));
    if (momentum && p->trainable && a->params.adam) EXPECT(same_values(&p->second, &q->second));
    if (momentum && p->trainable && a->params.averages) EXPECT(same_values(&p->average, &q->average));
    if (p->fold) EXPECT(same_values(&p->folded, &q->folded));
  }
}
