// Catches a whole network whose losses, gradients or detections differ from torchvision's.
//
// Compares the whole network with torchvision's numbers in test/goldens. test/peers/goldens.py describes the files, how
// weights and images follow from the hash, and how the tolerances are derived.
#include <omp.h>
#include <string.h>
#include "base/alloc.h"
#include "engine/detect.h"
#include "models/rcnn.h"
#include "test/harness/golden.h"
#include "test/harness/gpu.h"

enum { STEPS = 10 };

// "stage/what.i", in a buffer that the next call overwrites.
static const char *numbered(const char *what, int i) {
  static char text[64];
  snprintf(text, sizeof text, "%s.%d", what, i);
  return text;
}

static void check_boxes(const Golden *g, const char *name, const Boxes *b) {
  for (int i = 0; i < b->groups; i++)
    golden_rows(g, numbered(name, i), &b->box, i * b->capacity, golden_fetch_int(g, b->count + i));
}

// ---- stages ---------------------------------------------------------------------------------------------------------

typedef struct Output {
  char name[32];
  const Value *v;
  int first, channels; // of v; 0 channels: all
} Output;

static int pyramid_outputs(Output *out, const char *name, Value *const *v, int levels) {
  for (int l = 0; l < levels; l++, out++) {
    snprintf(out->name, sizeof out->name, "train/%s%d", name, l);
    out->v = v[l];
  }
  return levels;
}

typedef struct OutputCheck { // an observer, because activations share memory: each is looked at as soon as it is there
  Observer observer;
  const Golden *g;
  const Output *outputs;
  int n, seen;
} OutputCheck;

// Training computes the logits of each object's own class, from which losses and gradients follow; the file has those
// of all classes.
static void check_all_logits(const Golden *g, const char *name, const Node *n) {
  Device *dev = g->engine.dev;
  const Tensor *x = &n->in[0].v->x, *w = &n->use[0].p->shadow;
  Tensor y = tensor(x->dtype, x->n, x->h, x->w, w->n);
  y.count = x->count;
  y.data = device_alloc(dev, tensor_bytes(&y));
  dev->ops->conv_forward(dev, &(Conv){1, 0}, 1, x, w, &(Dest){.t = y, .bias = n->use[1].p->master.data});
  golden_rows(g, name, &y, 0, golden_fetch_int(g, y.count));
  device_free(dev, y.data);
}

static void check_node(Observer *observer, Graph *graph, Node *node, Pass pass) {
  (void)graph;
  OutputCheck *c = (OutputCheck *)observer;
  if (pass == PASS_BACKWARD) return;
  for (int k = 0; k < node->outs * c->n; k++) {
    const Output *o = &c->outputs[k % c->n];
    if (o->v != node->out[k / c->n]) continue;
    Tensor t = o->v->x;
    t.data = (char *)t.data + (size_t)o->first * dtype_size(t.dtype);
    if (o->channels) t.c = o->channels;
    c->seen++;
    if (!strcmp(node->type->name, "own_logits"))
      check_all_logits(c->g, o->name, node);
    else
      golden_rows(c->g, o->name, &t, 0, t.count ? golden_fetch_int(c->g, t.count) : t.n);
  }
}

static void check_outputs(const Golden *g, Network *n, const Output *outputs, int count) {
  OutputCheck c = {.observer = {.after = check_node}, .g = g, .outputs = outputs, .n = count};
  graph_observe(&n->graph, &c.observer);
  graph_forward(&n->graph);
  graph_unobserve(&n->graph, &c.observer);
  EXPECT_INT(c.seen, count);
}

static void check_training_outputs(const Golden *g, Network *network) {
  const Rcnn *m = rcnn_of(network);
  Output outputs[32] = {{.name = "train/image", .v = m->image},
                        {.name = "train/class_logits", .v = m->class_logits},
                        {.name = "train/box_deltas", .v = m->box_deltas}};
  int n = 3;
  if (m->mask_logits) {
    outputs[n++] = (Output){.name = "train/mask_logits", .v = m->mask_logits};
    outputs[n++] = (Output){.name = "train/mask_target", .v = m->mask_target};
  }
  n += pyramid_outputs(outputs + n, "c", m->c, 4);
  n += pyramid_outputs(outputs + n, "p", m->p, MAX_LEVELS);
  const int per_cell = m->anchors.per_cell;
  for (int l = 0; l < 2 * MAX_LEVELS; l++) outputs[n + l].channels = l < MAX_LEVELS ? per_cell : 4 * per_cell;
  for (int l = 0; l < MAX_LEVELS; l++) outputs[n + l].first = 4 * per_cell;
  n += pyramid_outputs(outputs + n, "logits", m->rpn_outputs, MAX_LEVELS);
  n += pyramid_outputs(outputs + n, "deltas", m->rpn_outputs, MAX_LEVELS);
  check_outputs(g, network, outputs, n);
}

static void check_inference_outputs(const Golden *g, Network *network) {
  const Rcnn *m = rcnn_of(network);
  const Output outputs[] = {{.name = "infer/class_logits", .v = m->class_logits},
                            {.name = "infer/box_deltas", .v = m->box_deltas},
                            {.name = "infer/mask_probs", .v = m->mask_probs}};
  check_outputs(g, network, outputs, COUNT(outputs) - !m->mask_probs);
}

static void check_rpn_targets(const Golden *g, const RpnTargets *t) {
  for (int i = 0; i < t->images; i++) {
    int first = i * t->batch, positives = golden_fetch_int(g, t->positives + i);
    golden_ints(g, numbered("train/rpn.positives", i), &positives, 1);
    golden_device_ints(g, numbered("train/rpn.index", i), t->index + first, golden_fetch_int(g, t->count + i));
    golden_rows(g, numbered("train/rpn.delta", i), &t->delta, first, positives);
  }
}

// Regression targets are those of the objects alone.
static void check_roi_targets(const Golden *g, const Rois *r, const BoxTargets *t) {
  int rois = golden_fetch_int(g, r->count), *label = golden_fetch(g, t->label, (size_t)rois * sizeof *label);
  golden_device_ints(g, "train/rois.image", r->image, rois);
  golden_ints(g, "train/rois.label", label, rois);
  golden_rows(g, "train/rois.boxes", &r->box, 0, rois);
  size_t n, objects = 0;
  double *delta = golden_fetch_rows(g, &t->delta, 0, rois, &n);
  for (int i = 0; i < rois; i++)
    if (label[i]) memmove(delta + 4 * objects++, delta + 4 * i, 4 * sizeof *delta);
  golden_values(g, "train/rois.delta", delta, 4 * objects, &t->delta);
  free(delta);
  free(label);
}

static void check_params(const Golden *g, const char *stage, bool gradients) {
  const Params *p = &g->engine.params;
  size_t trained = 0, in_file = 0;
  for (int i = 0; i < p->n; i++) {
    const Param *q = p->list[i];
    if (!q->trainable) continue;
    char *name = xasprintf("%s/%s", stage, q->name);
    golden_rows(g, name, gradients ? &q->grad : &q->master, 0, q->master.n);
    free(name);
    trained++;
  }
  for (size_t i = 0; i < g->file.num_tensors; i++)
    in_file += !strncmp(g->file.tensors[i].name, stage, strlen(stage)) && g->file.tensors[i].name[strlen(stage)] == '/';
  EXPECT_INT(trained, in_file);
}

static void check_frozen(const Golden *g) {
  const Params *p = &g->engine.params;
  for (int i = 0; i < p->n; i++) {
    const Param *q = p->list[i];
    if (q->trainable) continue;
    size_t n = param_elements(q);
    float *before = golden_weights(g, q), *after = xmalloc(n * sizeof *after);
    param_export(p, q, &q->master, after);
    if (!EXPECT(!memcmp(before, after, n * sizeof *after))) printf("    %s has moved\n", q->name);
    free(before);
    free(after);
  }
}

// ---- training -------------------------------------------------------------------------------------------------------

static const StepOptions sgd = {.learning_rate = 0.02f, .momentum = 0.9f, .weight_decay = 1e-4f, .clip = 1};

static void check_losses(const Golden *g, int step, const StepResult *r) {
  const int n = model_losses(g->engine.model);
  const Tensor losses = tensor_packed(F64, 1, n), one = tensor_packed(F64, 1, 1);
  golden_values(g, numbered("steps/loss", step), r->loss, (size_t)n, &losses);
  golden_values(g, numbered("steps/grad_norm", step), &r->grad_norm, 1, &one);
}

// A step without a learning rate, so that gradients and activations are of the same weights; its momentum is forgotten.
static void check_first_step(Golden *g) {
  Engine *e = &g->engine;
  Network *n = e->train.network;
  const Rcnn *m = rcnn_of(n);
  Loader *loader = golden_loader(g, true);
  StepOptions still = sgd;
  StepResult r;
  still.learning_rate = 0;
  engine_step(e, golden_batch(loader), &still, &r);
  check_training_outputs(g, n);
  check_boxes(g, "train/proposals", &m->proposals->boxes);
  check_rpn_targets(g, &m->rpn_targets->rpn_targets);
  check_roi_targets(g, &m->rois->rois, &m->box_targets->box_targets);
  check_losses(g, 0, &r);
  check_params(g, "grad", true);
  device_zero(e->dev, e->params.momentum, e->params.trainable * dtype_size(e->dev->real));
  loader_close(loader);
}

static void check_steps(Golden *g) {
  Loader *loader = golden_loader(g, true);
  for (int i = 0; i < STEPS; i++) {
    StepResult r;
    engine_step(&g->engine, golden_batch(loader), &sgd, &r);
    check_losses(g, i, &r);
  }
  check_params(g, "after", false);
  check_frozen(g);
  loader_close(loader);
}

// ---- inference ------------------------------------------------------------------------------------------------------

// Pasted at the image's own size: bit i of byte i / 8, over all pixels of all detections of an image.
static void check_pasted(Golden *g, const Batch *b) {
  Detections found;
  engine_detections(&g->engine, b, 0.5f, &found);
  for (int i = 0; i < GOLDEN_IMAGES; i++) {
    size_t pixels = (size_t)b->info[i].h * (size_t)b->info[i].w, at = 0;
    const CkptTensor *t = golden_tensor(g, numbered("infer/pasted", i), CKPT_U8);
    uint8_t *mask = xmalloc(pixels);
    for (int j = 0; t && j < found.n; j++) {
      if (found.items[j].image != i) continue;
      rle_to_bytes(&found.items[j].mask, mask);
      size_t wrong = 0;
      for (size_t k = 0; k < pixels && (at + k) / 8 < t->elements; k++)
        wrong += mask[k] != (((const uint8_t *)t->data)[(at + k) / 8] >> (at + k) % 8 & 1);
      at += pixels;
      golden_near(g, t->name, "mask pixels that differ", (double)wrong, 0, 0);
    }
    if (t) golden_near(g, t->name, "bytes of masks", (double)((at + 7) / 8), (double)t->elements, 0);
    free(mask);
  }
  detections_free(&found);
}

static void check_detections(const Golden *g, const Network *network) {
  const Boxes *d = &network->result[DETECTED_BOXES]->boxes;
  for (int i = 0; i < d->groups; i++) {
    int n = golden_fetch_int(g, d->count + i), first = i * d->capacity;
    int *label = golden_fetch(g, d->index + first, (size_t)n * sizeof *label);
    for (int j = 0; j < n; j++) label[j] %= network->config.classes;
    golden_ints(g, numbered("infer/detections.labels", i), label, n);
    golden_rows(g, numbered("infer/detections.scores", i), &d->score, first, n);
    free(label);
  }
  check_boxes(g, "infer/detections.boxes", d);
}

// A pixel whose probability is next to ½ may fall on either side in float; so pasted masks are compared in double.
static void check_inference(Golden *g) {
  Loader *loader = golden_loader(g, false);
  const Batch *b = golden_batch(loader);
  Network *n = g->engine.infer.network;
  engine_infer(&g->engine, b);
  check_inference_outputs(g, n);
  check_boxes(g, "infer/proposals", &rcnn_of(n)->proposals->boxes);
  check_detections(g, n);
  if (g->exact && rcnn_of(n)->mask_probs) check_pasted(g, b);
  loader_close(loader);
}

// ---- cases ----------------------------------------------------------------------------------------------------------

static void check_golden(const char *name, const char *device) {
  Golden g;
  int threads = omp_get_max_threads();
  omp_set_num_threads(1); // the maps are so small that starting threads takes longer than the work
  if (golden_open(&g, name, device)) {
    check_first_step(&g);
    check_inference(&g);
    check_steps(&g);
  }
  golden_close(&g);
  omp_set_num_threads(threads);
}

static void check_on_cpu(const char *name) {
  check_golden(name, "cpu64");
  check_golden(name, "cpu");
}
static void check_on_gpu(const char *name) {
  if (gpu_device()) check_golden(name, "cuda");
}

TEST(goldens_r18_objects) { check_on_cpu("r18-objects"); }
TEST(goldens_r18_boxes) { check_on_cpu("r18-boxes"); }
TEST_TIER(goldens_r18_empty, 1) { check_on_cpu("r18-empty"); }
TEST_TIER(goldens_r18_crowd, 1) { check_on_cpu("r18-crowd"); }
TEST_TIER(goldens_r50_objects, 1) { check_on_cpu("r50-objects"); }
TEST_TIER(goldens_r50_empty, 1) { check_on_cpu("r50-empty"); }
TEST_TIER(goldens_r50_crowd, 1) { check_on_cpu("r50-crowd"); }
TEST_TIER(cuda_goldens_r18_objects, 1) { check_on_gpu("r18-objects"); }
TEST_TIER(cuda_goldens_r18_boxes, 1) { check_on_gpu("r18-boxes"); }
TEST_TIER(cuda_goldens_r18_empty, 1) { check_on_gpu("r18-empty"); }
TEST_TIER(cuda_goldens_r18_crowd, 1) { check_on_gpu("r18-crowd"); }
TEST_TIER(cuda_goldens_r50_objects, 1) { check_on_gpu("r50-objects"); }
TEST_TIER(cuda_goldens_r50_empty, 1) { check_on_gpu("r50-empty"); }
TEST_TIER(cuda_goldens_r50_crowd, 1) { check_on_gpu("r50-crowd"); }
