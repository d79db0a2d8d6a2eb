// A run on disk: what is saved is what is loaded, a resumed run is the uninterrupted one, and a checkpoint of something
// else is refused by name.
#include "engine/state.h"
#include "test/synthetic.h"
#include "test/test.h"

enum { CANVAS = 64, CAPACITY = 3, CLASSES = 4, IMAGES = 2 };

static ModelConfig config_of(NormKind norm, int classes) {
  ModelConfig c = synthetic_config(CANVAS, CANVAS, classes);
  c.norm = norm;
  return c;
}

// Two canvases of different shapes, training and inference, as train.c has them.
static void open_engine(Engine *e, const ModelConfig *config) {
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
  if (!engine_open(e, &(Compute){.device = "cpu"}, config, category, &shapes, &shapes, false, &err))
    die(EXIT_RUN, "%s", err.msg);
}

static const StepOptions options = {.learning_rate = 0.01f, .momentum = 0.9f, .weight_decay = 1e-4f, .clip = 5};

// Step number `step` of a run: a batch of its own, on the canvases in turn.
static StepResult run_step(Engine *e, int step) {
  int canvas = step % 2;
  Batch b = synthetic_batch(IMAGES, CANVAS, CANVAS + 32 * canvas, CAPACITY, CLASSES, (int[]){3, 1}, (uint64_t)step);
  b.canvas = canvas;
  StepResult r;
  engine_step(e, &b, &options, &r);
  synthetic_free(&b);
  return r;
}

static const char *checkpoint_path(const char *name) {
  static char path[512];
  snprintf(path, sizeof path, "%s/%s.safetensors", test_tmp(), name);
  return path;
}

static const char *save(const Engine *e, const char *name, bool momentum) {
  const char *path = checkpoint_path(name);
  Err err = {""};
  EXPECT(state_save(e, path, &(RunState){.step = 3, .run = "{\"seed\":1}"}, momentum, &err));
  EXPECT_STR(err.msg, "");
  return path;
}

// "" when the file could be loaded.
static Err load(Engine *e, const char *path, LoadOptions o) {
  Checkpoint c;
  Err err = {""};
  if (!ckpt_open(&c, path, &err)) return err;
  EXPECT(state_load(e, &c, &o, &err) == !err.msg[0]);
  ckpt_close(&c);
  return err;
}

static bool same_values(const Tensor *p, const Tensor *q) { return !memcmp(p->data, q->data, tensor_bytes(p)); }

static void expect_same(const Engine *a, const Engine *b, bool momentum) {
  EXPECT_INT(a->params.n, b->params.n);
  for (int i = 0; i < a->params.n; i++) {
    const Param *p = a->params.list[i], *q = params_find(&b->params, p->name);
    if (!EXPECT(q && same_values(&p->master, &q->master))) printf("    %s\n", p->name);
    if (momentum && p->trainable) EXPECT(same_values(&p->momentum, &q->momentum));
    if (p->fold) EXPECT(same_values(&p->folded, &q->folded));
  }
}

// ---- saving and loading ---------------------------------------------------------------------------------------------

// What the convolutions read has followed the last update.
static void expect_folds_up_to_date(Engine *e) {
  for (int i = 0; i < e->params.n; i++) {
    const Tensor *folded = &e->params.list[i]->folded;
    if (!e->params.list[i]->fold) continue;
    Tensor before = *folded;
    before.data = memcpy(xmalloc(tensor_bytes(folded)), folded->data, tensor_bytes(folded));
    params_refresh_shadows(&e->params);
    EXPECT(same_values(folded, &before));
    free(before.data);
  }
}

// Three steps, a checkpoint, a fresh engine: from there on both take the same steps, to the bit.
static void check_resumed(NormKind norm) {
  ModelConfig config = config_of(norm, CLASSES);
  Engine whole, resumed;
  open_engine(&whole, &config);
  open_engine(&resumed, &config);
  params_randomise(&whole.params, 1);
  params_randomise(&resumed.params, 2);
  for (int step = 0; step < 3; step++) EXPECT(run_step(&whole, step).finite);
  expect_folds_up_to_date(&whole);
  const char *path = save(&whole, norm_names[norm], true);
  params_refresh(&whole.params); // running statistics have moved
  EXPECT_STR(load(&resumed, path, (LoadOptions){.momentum = true}).msg, "");
  expect_same(&whole, &resumed, true);
  for (int step = 3; step < 5; step++) {
    StepResult a = run_step(&whole, step), b = run_step(&resumed, step);
    EXPECT(a.finite && !memcmp(a.loss, b.loss, sizeof a.loss) && a.grad_norm == b.grad_norm);
  }
  expect_same(&whole, &resumed, true);
  engine_close(&whole);
  engine_close(&resumed);
}
TEST(state_resumed_run_is_the_same) {
  for (NormKind norm = NORM_FROZEN_BN; norm <= NORM_GN; norm++) check_resumed(norm);
}

TEST(state_without_momentum) {
  ModelConfig config = config_of(NORM_GN, CLASSES);
  Engine saved, loaded;
  open_engine(&saved, &config);
  open_engine(&loaded, &config);
  params_randomise(&saved.params, 1);
  run_step(&saved, 0);
  const char *path = save(&saved, "weights", false);
  EXPECT_STR(load(&loaded, path, (LoadOptions){0}).msg, "");
  expect_same(&saved, &loaded, false);
  Err err = load(&loaded, path, (LoadOptions){.momentum = true});
  EXPECT(strstr(err.msg, "missing momentum.backbone.body.") != NULL);
  engine_close(&saved);
  engine_close(&loaded);
}

// ---- what the file says ---------------------------------------------------------------------------------------------

TEST(state_metadata) {
  ModelConfig config = config_of(NORM_GN, CLASSES), read;
  config.roi_aligned = true, config.rpn_beta = 0.1f, config.anchor_ratio[0] = 1 / 3.f;
  Engine e;
  open_engine(&e, &config);
  params_randomise(&e.params, 1);
  const char *path = save(&e, "metadata", false);
  Checkpoint c;
  Category *category = NULL;
  RunState state;
  Err err = {""};
  EXPECT(ckpt_open(&c, path, &err) && state_config(&c, &read, &category, &err) && state_resume(&c, &state, &err));
  EXPECT_STR(err.msg, "");
  for (int i = 0; i < config_fields(); i++) {
    char want[256], got[256];
    config_get(&config, i, want, sizeof want);
    config_get(&read, i, got, sizeof got);
    EXPECT_STR(got, want);
  }
  for (int i = 0; i < CLASSES - 1; i++) {
    EXPECT_INT(category[i].id, 10 * i + 7);
    EXPECT_STR(category[i].name, e.category[i].name);
  }
  EXPECT_INT(state.step, 3);
  EXPECT_STR(state.run, "{\"seed\":1}");

  // Only the same model and the same options go on where this run stood.
  EXPECT(state_continues(&c, &config, "{\"seed\":1}", &err));
  EXPECT(!state_continues(&c, &config, "{\"seed\":12}", &err));
  EXPECT(strstr(err.msg, "made with \"seed\":1, this run has \"seed\":12; "));
  config.max_size++;
  EXPECT(!state_continues(&c, &config, "{\"seed\":1}", &err));
  EXPECT(strstr(err.msg, "max_size = "));
  free(category);
  ckpt_close(&c);
  engine_close(&e);
}

// Weights of elsewhere: a file without this program's metadata.
TEST(state_of_another_program) {
  const char *path = checkpoint_path("foreign");
  CkptWriter w;
  Checkpoint c;
  Err err = {""};
  CHECK(ckpt_begin(&w, path, &err));
  ckpt_tensor(&w, "weight", CKPT_F32, 1, (int64_t[]){2});
  ckpt_data(&w, (float[]){1, 2});
  CHECK(ckpt_commit(&w, &err) && ckpt_open(&c, path, &err));
  ModelConfig config;
  Category *category;
  RunState state;
  EXPECT(!state_config(&c, &config, &category, &err));
  EXPECT(strstr(err.msg, "neither a Mask R-CNN nor a ResNet of torchvision's") != NULL);
  EXPECT(!state_resume(&c, &state, &err));
  EXPECT(strstr(err.msg, "--resume") != NULL);
  ckpt_close(&c);
}

// ---- another model --------------------------------------------------------------------------------------------------

TEST(state_of_another_model) {
  ModelConfig config = config_of(NORM_GN, CLASSES), wider = config;
  wider.box_dim = 20;
  Engine saved, other;
  open_engine(&saved, &config);
  params_randomise(&saved.params, 1);
  const char *path = save(&saved, "model", false);
  open_engine(&other, &wider);
  Err err = load(&other, path, (LoadOptions){0});
  EXPECT(strstr(err.msg, "misshaped roi_heads.box_head.fc6.weight (F32 [") != NULL);
  EXPECT(strstr(err.msg, "tensors in all)") != NULL);
  engine_close(&other);

  ModelConfig normed = config_of(NORM_BN, CLASSES);
  open_engine(&other, &normed);
  err = load(&other, path, (LoadOptions){0});
  EXPECT(strstr(err.msg, "missing backbone.body.bn1.running_mean") != NULL);
  engine_close(&other);
  engine_close(&saved);
}

// Another number of classes: what depends on it keeps its initialisation, the rest is loaded.
TEST(state_reset_heads) {
  ModelConfig config = config_of(NORM_GN, CLASSES), more = config_of(NORM_GN, CLASSES + 3);
  Engine saved, other, fresh;
  open_engine(&saved, &config);
  open_engine(&other, &more);
  open_engine(&fresh, &more);
  params_randomise(&saved.params, 1);
  params_randomise(&other.params, 2);
  params_randomise(&fresh.params, 2);
  const char *path = save(&saved, "heads", false);
  EXPECT_STR(load(&other, path, (LoadOptions){.reset_heads = true}).msg, "");
  int heads = 0;
  for (int i = 0; i < other.params.n; i++) {
    const Param *p = other.params.list[i];
    bool head = strstr(p->name, "box_predictor.") || strstr(p->name, "mask_fcn_logits.");
    const Param *want = params_find(head ? &fresh.params : &saved.params, p->name);
    EXPECT(same_values(&p->master, &want->master));
    heads += head;
  }
  EXPECT_INT(heads, 6);
  Err err = load(&other, path, (LoadOptions){0});
  EXPECT(strstr(err.msg, "roi_heads.box_predictor.cls_score.weight") != NULL);
  EXPECT(strstr(err.msg, "(6 tensors in all)") != NULL);
  engine_close(&saved);
  engine_close(&other);
  engine_close(&fresh);
}

// ---- the step -------------------------------------------------------------------------------------------------------

// A step that is not finite says so and leaves weights and momentum alone.
TEST(engine_step_not_finite) {
  ModelConfig config = config_of(NORM_GN, CLASSES);
  Engine e, before;
  open_engine(&e, &config);
  open_engine(&before, &config);
  params_randomise(&e.params, 1);
  run_step(&e, 0);
  ((float *)params_find(&e.params, "rpn.head.cls_logits.bias")->master.data)[1] = INFINITY;
  const char *path = save(&e, "infinite", true);
  EXPECT_STR(load(&before, path, (LoadOptions){.momentum = true}).msg, "");
  EXPECT(!run_step(&e, 1).finite);
  expect_same(&e, &before, true);
  engine_close(&e);
  engine_close(&before);
}

// The same batch again and again is learnt. Which RoIs are sampled changes on the way, and with them the total: what has
// to fall is the best of it so far, and the loss of the anchors, whose sample is the same at every step.
TEST(engine_learns) {
  ModelConfig config = config_of(NORM_GN, CLASSES);
  Engine e;
  open_engine(&e, &config);
  params_randomise(&e.params, 1);
  StepResult first = run_step(&e, 0), last = first;
  double best = first.total;
  for (int i = 0; i < 15; i++) {
    last = run_step(&e, 0);
    best = fmin(best, last.total);
  }
  EXPECT(best < 0.8 * first.total);
  EXPECT(last.loss[LOSS_OBJECTNESS] < 0.95 * first.loss[LOSS_OBJECTNESS]);
  engine_close(&e);
}

// Detections in pixels of the decoded image, whichever canvas the batch is on.
TEST(engine_detections_fit_the_image) {
  ModelConfig config = config_of(NORM_GN, CLASSES);
  Engine e;
  open_engine(&e, &config);
  params_randomise(&e.params, 1);
  for (int canvas = 0; canvas < 2; canvas++) {
    Batch b = synthetic_batch(IMAGES, CANVAS, CANVAS + 32 * canvas, CAPACITY, CLASSES, (int[]){SYNTHETIC_EMPTY, 2}, 9);
    b.canvas = canvas;
    Detections found;
    engine_infer(&e, &b);
    engine_detections(&e, &b, 0.5f, &found);
    EXPECT(found.n > 0 && found.n <= config.detections);
    for (int i = 0; i < found.n; i++) {
      const Detection *d = &found.items[i];
      EXPECT(d->image == 1 && d->label >= 1 && d->label < CLASSES && d->score > config.min_score);
      EXPECT(0 <= d->box[0] && d->box[0] < d->box[2] && d->box[2] <= (float)b.info[1].w * (1 + 0x1p-22f));
      EXPECT(0 <= d->box[1] && d->box[1] < d->box[3] && d->box[3] <= (float)b.info[1].h * (1 + 0x1p-22f));
      EXPECT(d->mask.h == b.info[1].h && d->mask.w == b.info[1].w);
    }
    detections_free(&found);
    synthetic_free(&b);
  }
  engine_close(&e);
}
