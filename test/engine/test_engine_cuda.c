// Catches losses, gradients or detections of the whole model on the GPU that differ from the CPU's.
#include "base/alloc.h"
#include "base/rng.h"
#include "engine/detect.h"
#include "models/rcnn.h"
#include "test/harness/gpu.h"
#include "test/harness/synthetic.h"

enum { CANVAS_H = 64, CANVAS_W = 96, IMAGES = 2, CAPACITY = 4, CLASSES = 4 };

typedef struct Trial {
  const char *name;
  ModelConfig config;
  int layers; // the longest way through it, and back
} Trial;

static Trial model_tiny(void) {
  return (Trial){.name = "tiny", .config = synthetic_config(CANVAS_H, CANVAS_W, CLASSES), .layers = 2 * 18};
}
static Trial model_conventions(Conventions whose) {
  Trial m = model_tiny();
  m.name = conventions_names[whose];
  config_conventions(&m.config, whose);
  return m;
}
static Trial model_r50(NormType norm) {
  Trial m = {.name = norm_names[norm], .config = synthetic_config(CANVAS_H, CANVAS_W, CLASSES), .layers = 2 * 60};
  m.config.depth = 50;
  m.config.norm = norm;
  m.config.fpn_channels = 16;
  m.config.trainable_layers = norm == NORM_FROZEN_BN ? 3 : 5;
  return m;
}

// ---- engines --------------------------------------------------------------------------------------------------------

// Norm scales and variances below 1 keep the residual sums within the range of 16 bits.
static void draw_parameters(Params *p) {
  params_randomise(p, 11);
  for (int i = 0; i < p->n; i++) {
    Param *q = p->list[i];
    if (q->ndim != 1 || q->init == INIT_LINEAR) continue;
    size_t n = param_elements(q);
    float *values = xmalloc(n * sizeof *values), low = q->init == INIT_ONE ? 0.4f : -0.1f;
    for (size_t j = 0; j < n; j++) values[j] = low + 0.4f * rng_uniform(rng_key(RNG_TEST, (uint64_t)i), j);
    param_import(p, q, &q->master, values);
    free(values);
  }
  params_refresh(p);
}

static Batch make_batch(void) {
  return synthetic_batch(IMAGES, CANVAS_H, CANVAS_W, CAPACITY, CLASSES, (int[]){3, 2}, 17);
}

static void open_engine(Engine *e, const char *device, DType amp, const ModelConfig *config, const Batch *batch) {
  Shapes shapes = {.canvases = 1,
                   .canvas = {{.h = CANVAS_H, .w = CANVAS_W}},
                   .images = IMAGES,
                   .max_objects = CAPACITY,
                   .max_bytes = batch->num_bytes,
                   .max_words = batch->num_words};
  Category names[CLASSES - 1] = {{0}};
  Err err;
  if (!engine_open(e, &(Compute){.device = device, .amp = amp}, model_of(config), config, names, &shapes, &shapes,
                   false, &err))
    die(EXIT_RUN, "%s", err.msg);
  draw_parameters(&e->params);
}

static const StepOptions still = {.momentum = 0.9f}; // the parameters stay where they are

// A step whose loss scale, in fp16, did not overflow. Returns the scale that its gradients carry.
static double finite_step(Engine *e, const Batch *batch, const StepOptions *options, StepResult *r) {
  double scale[3];
  for (int tries = 0; tries < 20; tries++) {
    engine_get_scale(e, scale);
    engine_step(e, batch, options, r);
    if (r->finite) break;
  }
  EXPECT(r->finite);
  return scale[0];
}

// ---- one step -------------------------------------------------------------------------------------------------------

// Proposals are ordered by scores, and a last bit of a score can order two of them otherwise and so draw other RoIs.
// What follows from equal proposals can be compared, so the GPU is given the CPU's.
typedef struct Replacement {
  Observer observer;
  const Boxes *with;
} Replacement;

static void give_proposals(Observer *o, Graph *g, Node *n, Pass pass) {
  if (pass == PASS_BACKWARD || strcmp(n->name, "proposals")) return;
  const Boxes *from = ((Replacement *)o)->with, *to = &n->out[0]->boxes;
  size_t rows = (size_t)to->groups * (size_t)to->capacity;
  device_upload(g->dev, to->box.data, from->box.data, tensor_bytes(&to->box));
  device_upload(g->dev, to->score.data, from->score.data, tensor_bytes(&to->score));
  device_upload(g->dev, to->index, from->index, rows * sizeof(int));
  device_upload(g->dev, to->count, from->count, (size_t)to->groups * sizeof(int));
}

// How far 16-bit activations, or fp32 ones whose sums of some 500 terms run in another order, go apart: a rounding of
// each of `layers` in a row, independent of one another.
static double drift(DType amp, int layers) {
  double unit = amp == BF16 ? 0x1p-8 : amp == F16 ? 0x1p-11 : 0x1p-24 * sqrt(500);
  return sqrt(layers) * unit;
}

static void expect_same_rois(const Rois *cpu, const Rois *gpu) {
  int *count = gpu_fetch(gpu->count, sizeof *count), n = *cpu->count;
  float *box = gpu_fetch(gpu->box.data, tensor_bytes(&gpu->box));
  int *image = gpu_fetch(gpu->image, (size_t)gpu->capacity * sizeof *image);
  if (EXPECT_INT(*count, n)) {
    EXPECT(!memcmp(box, cpu->box.data, (size_t)n * 4 * sizeof *box));
    EXPECT(!memcmp(image, cpu->image, (size_t)n * sizeof *image));
  }
  free(count);
  free(box);
  free(image);
}

typedef struct Gap {
  double apart, norm; // ‖gpu - cpu‖², ‖cpu‖²
  size_t n;
} Gap;

static Gap gradient_gap(Engine *cpu, Engine *gpu, int param, double scale) {
  Param *a = cpu->params.list[param], *b = gpu->params.list[param];
  Gap gap = {.n = param_elements(a)};
  float *want = xmalloc(gap.n * sizeof *want), *got = xmalloc(gap.n * sizeof *got);
  param_export(&cpu->params, a, &a->grad, want);
  param_export(&gpu->params, b, &b->grad, got);
  for (size_t i = 0; i < gap.n; i++) {
    double w = want[i], d = got[i] / scale - w;
    gap.apart += d * d;
    gap.norm += w * w;
  }
  free(want);
  free(got);
  return gap;
}

// A gradient jumps where an activation drifts across its ReLU's zero. That happens to a share `drift` of them, so their
// part of the norm is √drift; and in 16 bits to a few in any case, of the 400 units that the mask head's layers have
// here.
static double gradient_tolerance(DType amp, int layers) { return 2 * sqrt(drift(amp, layers) + (amp ? 4. / 400 : 0)); }

// A gradient whose terms cancel is compared with what is usual for its number of elements.
static void check_gradients(Engine *cpu, Engine *gpu, double scale, double tolerance, const char *what) {
  Gap total = {0}, *gaps = xcalloc((size_t)cpu->params.n, sizeof *gaps);
  for (int i = 0; i < cpu->params.n; i++) {
    if (!cpu->params.list[i]->trainable) continue;
    gaps[i] = gradient_gap(cpu, gpu, i, scale);
    total.apart += gaps[i].apart;
    total.norm += gaps[i].norm;
    total.n += gaps[i].n;
  }
  double worst = 0;
  for (int i = 0; i < cpu->params.n; i++) {
    if (!gaps[i].n) continue;
    double usual = sqrt(total.norm * (double)gaps[i].n / (double)total.n), norm = sqrt(gaps[i].norm);
    double relative = sqrt(gaps[i].apart) / fmax(norm, usual);
    worst = fmax(worst, relative);
    if (!EXPECT(relative <= tolerance))
      printf("  %s: gradient of %s is off by %.3g of its norm %.3g (usual %.3g)\n", what, cpu->params.list[i]->name,
             relative, norm, usual);
  }
  EXPECT_NEAR(sqrt(total.apart / total.norm), 0, tolerance);
  printf("  %s: gradient off by %.2g, a parameter's by at most %.2g (allowed %.2g)\n", what,
         sqrt(total.apart / total.norm), worst, tolerance);
  free(gaps);
}

static void check_step(const Trial *model, DType amp) {
  static const char *const amp_names[DTYPES] = {"fp32", "", "bf16", "fp16"};
  Batch batch = make_batch();
  Engine cpu, gpu;
  StepResult want, got;
  char what[64];
  snprintf(what, sizeof what, "%s %s", model->name, amp_names[amp]);
  open_engine(&cpu, "cpu", F32, &model->config, &batch);
  open_engine(&gpu, "cuda", amp, &model->config, &batch);
  engine_step(&cpu, &batch, &still, &want);
  const Rcnn *on_cpu = rcnn_of(cpu.train.network), *on_gpu = rcnn_of(gpu.train.network);
  Replacement replacement = {.observer = {.after = give_proposals}, .with = &on_cpu->proposals->boxes};
  graph_observe(&gpu.train.network->graph, &replacement.observer);
  double scale = finite_step(&gpu, &batch, &still, &got), tolerance = gradient_tolerance(amp, model->layers);
  expect_same_rois(&on_cpu->rois->rois, &on_gpu->rois->rois);
  expect_same_rois(&on_cpu->objects->rois, &on_gpu->objects->rois);
  EXPECT(want.counter[COUNT_POSITIVES] > 0);
  for (int i = 0; i < LOSSES; i++) {
    bool ok = EXPECT_NEAR(got.loss[i], want.loss[i], 4 * drift(amp, model->layers) * want.loss[i]);
    printf("  %s: %s %.6g, on the CPU %.6g%s\n", what, model_maskrcnn.loss[i].name, got.loss[i], want.loss[i],
           ok ? "" : " <- wrong");
  }
  EXPECT_NEAR(got.grad_norm, want.grad_norm, tolerance * want.grad_norm);
  check_gradients(&cpu, &gpu, scale, tolerance, what);
  engine_close(&gpu);
  engine_close(&cpu);
  synthetic_free(&batch);
}

TEST_TIER(cuda_model_step_tiny, 1) {
  if (!gpu_device()) return;
  Trial m = model_tiny();
  check_step(&m, F32);
  check_step(&m, BF16);
  check_step(&m, F16);
}
TEST_TIER(cuda_model_step_full_masks, 1) {
  if (!gpu_device()) return;
  Trial m = model_tiny();
  m.name = "tiny, full masks";
  m.config.full_masks = true;
  check_step(&m, F32);
}
TEST_TIER(cuda_model_step_conventions, 1) {
  if (!gpu_device()) return;
  for (Conventions whose = CONVENTIONS_DETECTRON2; whose <= CONVENTIONS_MLPERF; whose++) {
    Trial m = model_conventions(whose);
    check_step(&m, F32);
    check_step(&m, BF16);
  }
}
TEST_TIER(cuda_model_step_r50_frozen_bn, 1) {
  if (!gpu_device()) return;
  Trial m = model_r50(NORM_FROZEN_BN);
  check_step(&m, F32);
  check_step(&m, BF16);
  check_step(&m, F16);
}
TEST_TIER(cuda_model_step_r50_bn, 1) {
  if (!gpu_device()) return;
  Trial m = model_r50(NORM_BN);
  check_step(&m, F32);
}

// ---- bits -----------------------------------------------------------------------------------------------------------

// The same step queued kernel by kernel, recorded, and replayed.
TEST_TIER(cuda_model_same_bits, 1) {
  if (!gpu_device()) return;
  for (int i = 0; i < 3; i++) {
    Trial m = i == 2 ? model_r50(NORM_BN) : model_tiny();
    Batch batch = make_batch();
    Engine e;
    StepResult first, again;
    open_engine(&e, "cuda", i == 1 ? BF16 : F32, &m.config, &batch);
    size_t bytes = e.params.trainable * sizeof(float);
    engine_step(&e, &batch, &still, &first);
    void *gradient = gpu_fetch(e.params.grad, bytes);
    for (int run = 1; run < 4; run++) {
      engine_step(&e, &batch, &still, &again);
      void *now = gpu_fetch(e.params.grad, bytes);
      EXPECT(!memcmp(now, gradient, bytes));
      EXPECT(!memcmp(again.loss, first.loss, sizeof first.loss) && again.grad_norm == first.grad_norm);
      free(now);
    }
    free(gradient);
    engine_close(&e);
    synthetic_free(&batch);
  }
}

// Steps of which some run beside others: each queue is held up at random, and one of them always, before its steps. The
// delays are recorded with the step.
typedef struct Delays {
  Observer observer;
  void *scratch;
  uint64_t key, drawn;
  int beside, others, gradients; // of 16 steps, how many are held up
} Delays;

enum { DELAY_BYTES = 64 << 20, DELAYS = 8 }; // a hundredth of a millisecond to some tenths

static void delay(Delays *d, Graph *g, int of_16) {
  const uint32_t bits = rng_u32(d->key, d->drawn++);
  const bool held = (int)(bits % 16) < of_16;
  for (uint32_t i = 0; held && i <= bits / 16 % DELAYS; i++) device_zero(g->dev, d->scratch, DELAY_BYTES);
}

static void delay_step(Observer *o, Graph *g, Node *n, Pass pass) {
  Delays *d = (Delays *)o;
  (void)n;
  (void)pass;
  delay(d, g, g->dev->queue == QUEUE_BESIDE ? d->beside : d->others);
}

// Behind the gradients of parameters, that of the walk then waits for.
static void delay_gradients(Observer *o, Graph *g, Node *n, Pass pass) {
  Delays *d = (Delays *)o;
  (void)n;
  (void)pass;
  if (g->dev->queue == QUEUE_GRADIENTS) delay(d, g, d->gradients);
}

TEST_TIER(cuda_steps_beside_same_bits, 1) {
  static const struct {
    int beside, others, gradients;
  } rounds[] = {{0, 0, 0}, {16, 0, 0}, {0, 16, 0}, {0, 0, 16}, {16, 0, 16}, {8, 8, 8}, {4, 12, 4}};
  Device *gpu = gpu_device();
  if (!gpu) return;
  Trial m = model_tiny();
  Batch batch = make_batch();
  void *scratch = device_alloc(gpu, DELAY_BYTES), *want = NULL;
  CHECK(scratch);
  for (int r = 0; r < COUNT(rounds); r++) {
    Engine e;
    StepResult result;
    open_engine(&e, "cuda", BF16, &m.config, &batch);
    Graph *g = &e.train.network->graph;
    Delays delays = {.observer = {.before = delay_step, .after = delay_gradients, .queues = true},
                     .scratch = scratch,
                     .key = rng_key(RNG_TEST, (uint64_t)r),
                     .beside = rounds[r].beside,
                     .others = rounds[r].others,
                     .gradients = rounds[r].gradients};
    int beside = 0, splits = 0;
    for (int i = 0; i < g->steps; i++) {
      beside += g->walk[i].beside;
      splits += g->walk[i].splits;
    }
    EXPECT(beside >= 6 && e.dev->queue_bytes[QUEUE_BESIDE] > 0);
    EXPECT(splits >= 20 && e.dev->queue_bytes[QUEUE_GRADIENTS] > 0);
    graph_observe(g, &delays.observer);
    const size_t bytes = e.params.trainable * sizeof(float);
    for (int run = 0; run < 4; run++) {
      engine_step(&e, &batch, &still, &result);
      void *gradient = gpu_fetch(e.params.grad, bytes);
      if (!want) want = memcpy(xmalloc(bytes), gradient, bytes);
      EXPECT(!memcmp(gradient, want, bytes));
      free(gradient);
    }
    graph_unobserve(g, &delays.observer);
    engine_close(&e);
  }
  free(want);
  device_free(gpu, scratch);
  synthetic_free(&batch);
}

// ---- inference ------------------------------------------------------------------------------------------------------

static double box_overlap(const float *a, const float *b) {
  double w = fmin(a[2], b[2]) - fmax(a[0], b[0]), h = fmin(a[3], b[3]) - fmax(a[1], b[1]);
  double both = fmax(w, 0) * fmax(h, 0), area = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]);
  return both / (area - both);
}

// The detection of `among` that is `d` computed otherwise, or NULL.
static const Detection *counterpart(const Detection *d, const Detections *among) {
  for (int i = 0; i < among->n; i++) {
    const Detection *o = &among->items[i];
    if (o->image == d->image && o->label == d->label && fabsf(o->score - d->score) <= 1e-3f * d->score &&
        box_overlap(o->box, d->box) > 0.99)
      return o;
  }
  return NULL;
}

// Scores and overlaps next to a threshold, or to one another, may be decided otherwise; of a few tens of detections
// such a pair takes two with it at most.
static void check_detections(Conventions whose) {
  Trial m = model_conventions(whose);
  Batch batch = make_batch();
  Engine e[2];
  Detections found[2];
  for (int i = 0; i < 2; i++) {
    open_engine(&e[i], i ? "cuda" : "cpu", F32, &m.config, &batch);
    for (int run = 0; run < 3; run++) engine_infer(&e[i], &batch); // the last one replayed
    engine_detections(&e[i], &batch, 0.5f, &found[i]);
  }
  EXPECT(found[0].n >= IMAGES);
  EXPECT_INT(found[1].n, found[0].n);
  int lost = 0, different = 0;
  for (int i = 0; i < found[0].n; i++) {
    const Detection *a = &found[0].items[i], *b = counterpart(a, &found[1]);
    lost += !b;
    if (!b) continue;
    double overlap, area = (double)rle_area(&a->mask);
    rle_iou(&a->mask, 1, &b->mask, 1, &(uint8_t){0}, &overlap);
    different += area > 0 && overlap < 0.98;
  }
  EXPECT(lost <= 2 && different <= 2);
  printf("  %s: %d detections, %d without counterpart, %d with another mask\n", m.name, found[0].n, lost, different);
  for (int i = 0; i < 2; i++) {
    detections_free(&found[i]);
    engine_close(&e[i]);
  }
  synthetic_free(&batch);
}

TEST_TIER(cuda_model_detections, 1) {
  if (!gpu_device()) return;
  for (Conventions whose = CONVENTIONS_TORCHVISION; whose <= CONVENTIONS_MLPERF; whose++) check_detections(whose);
}

// ---- learning -------------------------------------------------------------------------------------------------------

enum { STEPS = 20 };

typedef struct Curve {
  double first;          // total loss of the first step
  double anchors[STEPS]; // loss of the anchors, whose sample does not change with the weights
} Curve;

static Curve learn(const char *device, DType amp) {
  Trial m = model_tiny();
  Batch batch = make_batch();
  Engine e;
  open_engine(&e, device, amp, &m.config, &batch);
  const StepOptions options = {.learning_rate = 0.02f, .momentum = 0.9f, .weight_decay = 1e-4f, .clip = 5};
  Curve curve = {0};
  for (int i = 0; i < STEPS; i++) {
    StepResult r;
    finite_step(&e, &batch, &options, &r);
    if (i == 0) curve.first = r.total;
    curve.anchors[i] = r.loss[LOSS_OBJECTNESS];
  }
  engine_close(&e);
  synthetic_free(&batch);
  return curve;
}

// The same batch again and again: the anchors are learnt as on the CPU. The total is no measure here: which RoIs are
// sampled, and so what they cost, jumps with the last bit of a score.
TEST_TIER(cuda_model_learns, 1) {
  if (!gpu_device()) return;
  Curve cpu = learn("cpu", F32);
  EXPECT(cpu.anchors[STEPS - 1] < 0.95 * cpu.anchors[0]);
  for (int i = 0; i < 3; i++) {
    Curve gpu = learn("cuda", (DType[]){F32, BF16, F16}[i]);
    double apart = 0;
    for (int k = 0; k < STEPS; k++) apart = fmax(apart, fabs(gpu.anchors[k] - cpu.anchors[k]));
    printf("  %s: objectness %.4f, after %d steps %.4f (cpu %.4f), never further apart than %.4f\n",
           (const char *[]){"fp32", "bf16", "fp16"}[i], gpu.anchors[0], STEPS, gpu.anchors[STEPS - 1],
           cpu.anchors[STEPS - 1], apart);
    EXPECT_NEAR(gpu.first, cpu.first, 0.1 * cpu.first);
    EXPECT(gpu.anchors[STEPS - 1] < 0.95 * gpu.anchors[0]);
  }
}

// ---- shadows --------------------------------------------------------------------------------------------------------

// What training reads of a filter that it updates; NULL: the master.
static const Tensor *training_shadow(const Param *q) {
  if (!q->filter || !q->trainable) return NULL;
  if (q->plain) return q->shadow.data == q->master.data ? NULL : &q->shadow;
  return q->fold ? &q->folded : NULL;
}

// After steps, the last ones replayed, they are what params_refresh makes of the masters, to the bit.
static void check_shadows(DType amp, const Trial *m) {
  Batch batch = make_batch();
  Engine e;
  StepResult r;
  open_engine(&e, "cuda", amp, &m->config, &batch);
  const StepOptions o = {.learning_rate = 0.01f, .momentum = 0.9f, .weight_decay = 1e-4f, .clip = 5};
  for (int i = 0; i < 4; i++) finite_step(&e, &batch, &o, &r);
  const Params *p = &e.params;
  void **before = xcalloc((size_t)p->n, sizeof *before);
  int shadows = 0, wrong = 0;
  for (int i = 0; i < p->n; i++) {
    const Tensor *t = training_shadow(p->list[i]);
    if (t) before[i] = gpu_fetch(t->data, tensor_bytes(t));
  }
  params_refresh(&e.params);
  device_sync(e.dev);
  for (int i = 0; i < p->n; i++) {
    const Tensor *t = training_shadow(p->list[i]);
    if (!t) continue;
    void *after = gpu_fetch(t->data, tensor_bytes(t));
    shadows++;
    wrong += memcmp(before[i], after, tensor_bytes(t)) != 0;
    free(after);
    free(before[i]);
  }
  EXPECT((shadows > 0) == (amp != F32 || m->config.norm == NORM_FROZEN_BN));
  if (!EXPECT_INT(wrong, 0)) printf("  %s, dtype %d, of %d shadows\n", m->name, amp, shadows);
  free(before);
  engine_close(&e);
  synthetic_free(&batch);
}

TEST_TIER(cuda_shadows_follow_updates, 1) {
  if (!gpu_device()) return;
  const DType types[] = {F32, BF16, F16};
  const NormType norms[] = {NORM_FROZEN_BN, NORM_GN, NORM_BN};
  for (int n = 0; n < COUNT(norms); n++) {
    const Trial m = model_r50(norms[n]);
    for (int t = 0; t < COUNT(types); t++) check_shadows(types[t], &m);
  }
}

// ---- observers and recording ----------------------------------------------------------------------------------------

typedef struct NodeCount {
  Observer observer;
  int calls;
} NodeCount;

static void count_node(Observer *o, Graph *g, Node *n, Pass pass) {
  (void)g;
  (void)n;
  (void)pass;
  ((NodeCount *)o)->calls++;
}

// One that only queues is called when a step is queued and when it is recorded, not when it is replayed; one that has
// to be there keeps every step from being replayed. The bits are the same.
TEST_TIER(cuda_observers_and_recording, 1) {
  enum { OBSERVED = 5 };
  if (!gpu_device()) return;
  Batch batch = make_batch();
  Trial m = model_tiny();
  StepResult last[2];
  int calls[2];
  for (int watches = 0; watches < 2; watches++) {
    Engine e;
    open_engine(&e, "cuda", F32, &m.config, &batch);
    NodeCount count = {.observer = {.after = count_node, .queues = !watches}};
    graph_observe(&e.train.network->graph, &count.observer);
    for (int i = 0; i < OBSERVED; i++) engine_step(&e, &batch, &still, &last[watches]);
    calls[watches] = count.calls;
    engine_close(&e);
  }
  EXPECT_INT(calls[1], calls[0] / 2 * OBSERVED);
  EXPECT(!memcmp(last[0].loss, last[1].loss, sizeof last[0].loss) && last[0].grad_norm == last[1].grad_norm);
  synthetic_free(&batch);
}
