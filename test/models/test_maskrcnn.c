// Mask R-CNN as one list of nodes, in double: its losses' gradients with respect to every parameter, its bits, and what
// it does with images that hold nothing.
#include <omp.h>
#include "base/rng.h"
#include "models/maskrcnn.h"
#include "test/harness/isolation.h"
#include "test/harness/net.h"
#include "test/harness/synthetic.h"

enum { CANVAS_H = 64, CANVAS_W = 96, CAPACITY = 4, CLASSES = 4, MAX_IMAGES = 3, MAX_THREADS = 3 };

// Training, inference and validation over one set of parameters, each once more with poisoned memory.
typedef enum Use { TRAIN, TRAIN_POISONED, INFER, INFER_POISONED, VALIDATE, VALIDATE_POISONED, USES } Use;
static const Purpose purpose_of[] = {FOR_TRAINING,  FOR_TRAINING,   FOR_INFERENCE,
                                     FOR_INFERENCE, FOR_VALIDATION, FOR_VALIDATION};
typedef struct Trial {
  Device *dev;
  Params params;
  Network use[USES];
  Poison poison[USES];
  void *arena[USES];
  Batch batch;
  Tensor box; // the batch's, in double
} Trial;

static void draw_parameters(Params *p) {
  params_randomise(p, 11);
  for (int i = 0; i < p->n; i++) {
    const Param *q = p->list[i];
    if (q->ndim != 1 || q->init == INIT_LINEAR) continue;
    double low = q->init == INIT_ONE ? 0.4 : -0.1; // norm scales and variances below 1 keep the residual sums small
    test_fill(&q->master, rng_key(RNG_TEST, (uint64_t)i), low, low + 0.4);
  }
  params_refresh(p);
}

static void connect(Network *n, const Batch *b, const Tensor *box) {
  const void *array[BATCH_ARRAYS];
  for (BatchArray a = 0; a < BATCH_ARRAYS; a++) array[a] = batch_array(b, a);
  array[BATCH_BOX] = box->data;
  network_connect(n, array);
}

static void feed(Trial *m, int images, const int *objects) {
  synthetic_free(&m->batch);
  m->batch = synthetic_batch(images, CANVAS_H, CANVAS_W, CAPACITY, CLASSES, objects, 17);
  for (int i = 0; i < images * CAPACITY * 4; i++) ((double *)m->box.data)[i] = m->batch.box[i];
  for (int u = 0; u < USES; u++) connect(&m->use[u], &m->batch, &m->box);
}

static void model_open(Trial *m, const ModelConfig *config, int images, const int *objects) {
  Err err;
  *m = (Trial){.dev = device_open("cpu64", &err), .box = test_tensor_packed(F64, images * CAPACITY, 4)};
  CHECK(m->dev && config_check(config, &err));
  int threads = omp_get_max_threads();
  omp_set_num_threads(MAX_THREADS); // scratch is measured for as many
  params_init(&m->params, m->dev, F64);
  for (int u = 0; u < USES; u++) {
    network_build(&m->use[u], model_of(config), config, m->dev, &m->params, NULL, purpose_of[u], images, CANVAS_H,
                  CANVAS_W, CAPACITY);
    if (u % 2) poison_start(&m->poison[u], &m->use[u].graph);
  }
  CHECK(params_allocate(&m->params, &err));
  for (int u = 0; u < USES; u++) {
    Graph *g = &m->use[u].graph;
    graph_measure(g);
    m->arena[u] = device_alloc(m->dev, g->bytes);
    CHECK(m->arena[u]);
    graph_bind(g, m->arena[u]);
  }
  CHECK(device_reserve_workspace(m->dev, &err));
  omp_set_num_threads(threads);
  feed(m, images, objects);
  draw_parameters(&m->params);
}

static void model_close(Trial *m) {
  for (int u = 0; u < USES; u++) {
    network_free(&m->use[u]);
    device_free(m->dev, m->arena[u]);
  }
  synthetic_free(&m->batch);
  test_tensor_free(&m->box);
  params_free(&m->params);
  device_close(m->dev);
}

static const double *losses_of(const Network *n) { return n->losses->x.data; }

static double total_loss(const Network *n) {
  double sum = 0;
  for (int i = 0; i < LOSSES; i++) sum += losses_of(n)[i];
  return sum;
}

static double *train(Trial *m, Use use, size_t *n) {
  memset(m->params.grad, 0xff, m->params.trainable * sizeof(double));
  graph_forward(&m->use[use].graph);
  graph_backward(&m->use[use].graph);
  return copy_gradients(&m->params, n);
}

// ---- configurations -------------------------------------------------------------------------------------------------

static ModelConfig small_r50(NormKind norm) {
  ModelConfig c = synthetic_config(CANVAS_H, CANVAS_W, CLASSES);
  c.depth = 50;
  c.norm = norm;
  c.fpn_channels = 16;
  c.trainable_layers = norm == NORM_FROZEN_BN ? 3 : 5;
  return c;
}

// The other conventions, with the bottleneck that they put the stride into.
static ModelConfig small_recipe(Recipe recipe) {
  ModelConfig c = synthetic_config(CANVAS_H, CANVAS_W, CLASSES);
  c.depth = 50;
  c.trainable_layers = 2;
  c.rpn_batch = 1024; // all anchors inside the image, so that every level has some
  for (int l = 0; l < MAX_LEVELS; l++) c.anchor_size[l] = (float)(6 * (l + 2));
  config_recipe(&c, recipe);
  return c;
}

// ---- gradients ------------------------------------------------------------------------------------------------------

// The gradient takes proposals as given, so the differences must, too: from now on the proposals are what they were.
static struct {
  const Network *n;
  Boxes saved;
} held;

static void *copy_of(const void *p, size_t bytes) { return memcpy(xmalloc(bytes), p, bytes); }

static void held_forward(Graph *g, Node *n) {
  (void)g;
  (void)n;
  const Boxes *from = &held.saved, *to = &maskrcnn_of(held.n)->proposals->boxes;
  size_t rows = (size_t)to->groups * (size_t)to->capacity;
  memcpy(to->box.data, from->box.data, tensor_bytes(&to->box));
  memcpy(to->score.data, from->score.data, tensor_bytes(&to->score));
  memcpy(to->index, from->index, rows * sizeof(int));
  memcpy(to->count, from->count, (size_t)to->groups * sizeof(int));
}

static void hold_proposals(Network *n) {
  static const NodeKind kind = {.name = "proposals held", .forward = held_forward};
  const Boxes *b = &maskrcnn_of(n)->proposals->boxes;
  size_t rows = (size_t)b->groups * (size_t)b->capacity;
  held.n = n;
  held.saved = *b;
  held.saved.box.data = copy_of(b->box.data, tensor_bytes(&b->box));
  held.saved.score.data = copy_of(b->score.data, tensor_bytes(&b->score));
  held.saved.index = copy_of(b->index, rows * sizeof(int));
  held.saved.count = copy_of(b->count, (size_t)b->groups * sizeof(int));
  graph_find_node(&n->graph, "proposals")->kind = &kind;
}

static void release_proposals(void) {
  free(held.saved.box.data);
  free(held.saved.score.data);
  free(held.saved.index);
  free(held.saved.count);
}

// Moves the parameter along `way` (logical elements) by `step` and returns the loss; puts it back.
static double loss_at(Trial *m, const Param *q, const double *way, double step) {
  double *w = q->master.data;
  size_t n = param_elements(q);
  double *before = copy_of(w, tensor_bytes(&q->master));
  for (size_t i = 0; i < n; i++) w[param_element(q, i)] += step * way[i];
  params_refresh(&m->params);
  graph_forward(&m->use[TRAIN].graph);
  memcpy(w, before, tensor_bytes(&q->master));
  params_refresh(&m->params);
  free(before);
  return total_loss(&m->use[TRAIN]);
}

typedef struct Slopes {
  double here; // the loss
  int checked, rough;
  int zero; // whole parameters that the loss does not depend on
} Slopes;

// The slope along `way`, as test/harness/net.c's check_element argues: off by no more than the one-sided ones disagree,
// and by rounding. The losses are means of terms that reach through at most 1000 operations.
static void check_slope(Trial *m, const Param *q, const double *way, double slope, Slopes *s) {
  const double h = 0x1p-21, rounding = 2 * 1000 * unit_roundoff(F64) * s->here / h;
  double above = (loss_at(m, q, way, h) - s->here) / h, below = (s->here - loss_at(m, q, way, -h)) / h;
  double apart = fabs(above - below);
  if (!EXPECT_NEAR(slope, (above + below) / 2, rounding + apart)) printf("    along %s\n", q->name);
  s->checked++;
  s->rough += apart > 1e-3 * (fabs(slope) + rounding);
}

// Every parameter: along one random direction, which every element takes part in, and along a few elements alone.
static void check_gradients(const ModelConfig *config, int elements) {
  Trial m;
  model_open(&m, config, 2, (int[]){3, 2});
  int threads = omp_get_max_threads();
  omp_set_num_threads(1); // the maps are so small that starting threads takes longer than the work
  size_t n;
  free(train(&m, TRAIN, &n));
  Slopes s = {.here = total_loss(&m.use[TRAIN])};
  hold_proposals(&m.use[TRAIN]);
  double *gradient = train(&m, TRAIN, &n), *next = gradient;
  EXPECT_NEAR(total_loss(&m.use[TRAIN]), s.here, 0);
  EXPECT(*maskrcnn_of(&m.use[TRAIN])->objects->rois.count > 0);
  for (int i = 0; i < m.params.n; i++) {
    const Param *q = m.params.list[i];
    if (!q->trainable) continue;
    size_t size = param_elements(q);
    double *way = xcalloc(size, sizeof *way), slope = 0;
    for (size_t j = 0; j < size; j++) {
      way[j] = (rng_u32(rng_key(RNG_TEST, (uint64_t)i), j) % 2 ? 1 : -1) / sqrt((double)size);
      slope += way[j] * next[j];
    }
    check_slope(&m, q, way, slope, &s);
    s.zero += slope == 0;
    for (int e = 0; e < elements; e++) {
      size_t j = rng_u32(rng_key(RNG_TEST, (uint64_t)i), size + (size_t)e) % size;
      memset(way, 0, size * sizeof *way);
      way[j] = 1;
      check_slope(&m, q, way, next[j], &s);
    }
    free(way);
    next += size;
  }
  EXPECT(s.rough * 20 <= s.checked); // next to a kink a slope says little
  EXPECT_INT(s.zero, 0);
  omp_set_num_threads(threads);
  free(gradient);
  release_proposals();
  model_close(&m);
}

TEST_TIER(model_gradients, 1) {
  ModelConfig c = synthetic_config(CANVAS_H, CANVAS_W, CLASSES);
  check_gradients(&c, 3);
}
TEST_TIER(model_gradients_detectron2, 1) {
  ModelConfig c = small_recipe(RECIPE_DETECTRON2);
  check_gradients(&c, 1);
}
TEST_TIER(model_gradients_mlperf, 1) {
  ModelConfig c = small_recipe(RECIPE_MLPERF);
  check_gradients(&c, 1);
}
TEST_TIER(model_gradients_r50_frozen_bn, 1) {
  ModelConfig c = small_r50(NORM_FROZEN_BN);
  check_gradients(&c, 1);
}
TEST_TIER(model_gradients_r50_bn, 1) {
  ModelConfig c = small_r50(NORM_BN);
  check_gradients(&c, 0);
}
TEST_TIER(model_gradients_r50_gn, 1) {
  ModelConfig c = small_r50(NORM_GN);
  check_gradients(&c, 0);
}

// ---- bits -----------------------------------------------------------------------------------------------------------

// Two walks are the same when the loss and every gradient are.
static void expect_same_walk(Trial *m, Use use, const double *loss, const double *gradient, size_t n) {
  size_t again;
  double *now = train(m, use, &again);
  EXPECT_INT(memcmp(losses_of(&m->use[use]), loss, LOSSES * sizeof *loss), 0);
  EXPECT(again == n && !memcmp(now, gradient, n * sizeof *now));
  free(now);
}

static void check_losses(const double *loss, bool objects) {
  for (int i = 0; i < LOSSES; i++) {
    bool about_objects = i == LOSS_RPN_BOX || i == LOSS_BOX || i == LOSS_MASK;
    if (about_objects && !objects)
      EXPECT(loss[i] == 0);
    else
      EXPECT(isfinite(loss[i]) && loss[i] > 0 && loss[i] < 100);
  }
}

static void check_bits(Trial *m, bool objects) {
  size_t n;
  int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  double *gradient = train(m, TRAIN, &n), loss[LOSSES];
  memcpy(loss, losses_of(&m->use[TRAIN]), sizeof loss);
  check_losses(loss, objects);
  bool finite = true;
  for (size_t i = 0; i < n; i++) finite &= isfinite(gradient[i]) != 0;
  EXPECT(finite);
  for (int walk = 0; walk < 2; walk++) expect_same_walk(m, TRAIN_POISONED, loss, gradient, n);
  for (int t = 1; t <= MAX_THREADS; t += MAX_THREADS - 1) {
    omp_set_num_threads(t);
    expect_same_walk(m, TRAIN, loss, gradient, n);
  }
  omp_set_num_threads(threads);
  free(gradient);
}

// ---- inference ------------------------------------------------------------------------------------------------------

static void check_detections(const Trial *m, int image) {
  const Network *r = &m->use[INFER];
  const Boxes *d = &maskrcnn_of(r)->detections->boxes;
  const ImageInfo *info = &m->batch.info[image];
  const int classes = r->config.classes;
  EXPECT(info->h > 0 ? d->count[image] > 0 && d->count[image] <= r->config.detections : d->count[image] == 0);
  for (int i = 0; i < d->count[image]; i++) {
    int row = image * d->capacity + i;
    const double *box = (double *)d->box.data + 4 * row, *score = (double *)d->score.data + row;
    EXPECT(0 <= box[0] && box[2] <= info->rw && box[2] - box[0] + r->config.box_extra >= r->config.min_size);
    EXPECT(0 <= box[1] && box[3] <= info->rh && box[3] - box[1] + r->config.box_extra >= r->config.min_size);
    EXPECT(*score > r->config.min_score && *score <= (i ? score[-1] : 1));
    EXPECT(d->index[row] % classes >= 1);
  }
}

static void check_inference(Trial *m) {
  Graph *poisoned_graph = &m->use[INFER_POISONED].graph;
  const MaskRcnn *plain = maskrcnn_of(&m->use[INFER]), *poisoned = maskrcnn_of(&m->use[INFER_POISONED]);
  const Boxes *a = &plain->detections->boxes, *b = &poisoned->detections->boxes;
  graph_forward(&m->use[INFER].graph);
  int masks = 0;
  for (int i = 0; i < a->groups; i++) {
    check_detections(m, i);
    masks += a->count[i];
  }
  EXPECT_INT(*plain->mask_rois->rois.count, masks);
  EXPECT_INT(valid_rows(&plain->mask_probs->x), masks);
  const Tensor *probs = &plain->mask_probs->x;
  for (int i = 0; i < masks; i++)
    EXPECT(get(probs, i, 0, 0, 0) > 0 && get(probs, i, probs->h - 1, probs->w - 1, 0) < 1);

  for (int walk = 0; walk < 2; walk++) {
    graph_forward(poisoned_graph);
    EXPECT_INT(memcmp(a->count, b->count, (size_t)a->groups * sizeof(int)), 0);
    for (int i = 0; i < a->groups; i++) {
      size_t first = (size_t)i * (size_t)a->capacity, n = (size_t)a->count[i];
      EXPECT(!memcmp((double *)a->box.data + 4 * first, (double *)b->box.data + 4 * first, 4 * n * sizeof(double)));
      EXPECT(!memcmp((double *)a->score.data + first, (double *)b->score.data + first, n * sizeof(double)));
      EXPECT(!memcmp(a->index + first, b->index + first, n * sizeof(int)));
    }
    EXPECT(same_bits(probs, &poisoned->mask_probs->x));
  }
}

// ---- declarations ---------------------------------------------------------------------------------------------------

// Every node reads and writes what it declares and nothing else: with all the rest hidden while it runs, a step gives
// the same bits.
static void check_declarations(const ModelConfig *config) {
  Trial m;
  model_open(&m, config, 2, (int[]){CAPACITY, 1});
  size_t n;
  double *gradient = train(&m, TRAIN, &n), loss[LOSSES];
  memcpy(loss, losses_of(&m.use[TRAIN]), sizeof loss);
  Isolation isolation;
  Graph *g = &m.use[TRAIN_POISONED].graph;
  isolation_start(&isolation, g);
  expect_same_walk(&m, TRAIN_POISONED, loss, gradient, n);
  EXPECT_INT(isolation.damaged, 0);
  isolation_stop(&isolation, g);
  free(gradient);
  g = &m.use[INFER_POISONED].graph;
  isolation_start(&isolation, g);
  check_inference(&m);
  EXPECT_INT(isolation.damaged, 0);
  isolation_stop(&isolation, g);
  model_close(&m);
}

TEST(model_nodes_declare_all) {
  ModelConfig c = synthetic_config(CANVAS_H, CANVAS_W, CLASSES);
  check_declarations(&c);
  c.full_masks = true;
  check_declarations(&c);
}
TEST_TIER(model_nodes_declare_all_recipes, 1) {
  for (Recipe r = RECIPE_TORCHVISION; r <= RECIPE_MLPERF; r++) {
    ModelConfig c = small_recipe(r);
    check_declarations(&c);
  }
  ModelConfig c = small_r50(NORM_BN);
  check_declarations(&c);
}

// Batches with images that hold objects, none, or are not there at all.
static void check_batches(const ModelConfig *config) {
  static const int batches[][MAX_IMAGES] = {
      {CAPACITY, 1, 2}, {2, 0, 1}, {SYNTHETIC_EMPTY, 3, 0}, {0, SYNTHETIC_EMPTY, SYNTHETIC_EMPTY}};
  Trial m;
  model_open(&m, config, MAX_IMAGES, batches[0]);
  for (int i = 0; i < COUNT(batches); i++) {
    feed(&m, MAX_IMAGES, batches[i]);
    bool objects = false;
    for (int j = 0; j < MAX_IMAGES; j++) objects |= batches[i][j] > 0;
    check_bits(&m, objects);
    check_inference(&m);
  }
  model_close(&m);
}

TEST(model_batches) {
  ModelConfig c = synthetic_config(CANVAS_H, CANVAS_W, CLASSES);
  check_batches(&c);
}
TEST_TIER(model_batches_r50, 1) {
  for (NormKind norm = NORM_FROZEN_BN; norm <= NORM_SYNC_BN; norm++) {
    ModelConfig c = small_r50(norm);
    check_batches(&c);
  }
}

// Nothing at all to learn from: every loss and gradient is 0, and nothing is found.
TEST(model_empty_batch) {
  ModelConfig c = synthetic_config(CANVAS_H, CANVAS_W, CLASSES);
  Trial m;
  model_open(&m, &c, 1, (int[]){SYNTHETIC_EMPTY});
  size_t n;
  double *gradient = train(&m, TRAIN_POISONED, &n);
  for (int i = 0; i < LOSSES; i++) EXPECT(losses_of(&m.use[TRAIN_POISONED])[i] == 0);
  bool zero = true;
  for (size_t i = 0; i < n; i++) zero &= gradient[i] == 0;
  EXPECT(zero);
  graph_forward(&m.use[INFER_POISONED].graph);
  EXPECT_INT(*maskrcnn_of(&m.use[INFER_POISONED])->detections->boxes.count, 0);
  free(gradient);
  model_close(&m);
}

// The tiny model as it is, unshrunk.
// Benchmarks with every row of the mask head full: the sampled RoIs stay what they are, an image with an object has as
// many of its candidates as there are rows for it, and nothing that was written after its life is read.
TEST(model_full_masks) {
  static const int objects[] = {2, 0, 1};
  ModelConfig config = synthetic_config(CANVAS_H, CANVAS_W, CLASSES);
  int per_image = (int)((float)config.roi_batch * config.roi_positive);
  int *label[2], rois[2];
  for (int full = 0; full < 2; full++) {
    Trial m;
    config.full_masks = full;
    model_open(&m, &config, COUNT(objects), objects);
    size_t n;
    double *gradients = train(&m, TRAIN_POISONED, &n);
    for (size_t i = 0; i < n; i++) EXPECT(isfinite(gradients[i]));
    EXPECT(isfinite(total_loss(&m.use[TRAIN_POISONED])));
    free(gradients);
    const MaskRcnn *t = maskrcnn_of(&m.use[TRAIN_POISONED]);
    const Rois *found = &t->objects->rois;
    const ObjectTargets *target = &t->object_targets->object_targets;
    rois[full] = *t->rois->rois.count;
    label[full] = copy_of(t->box_targets->box_targets.label, (size_t)rois[full] * sizeof(int));
    if (full) EXPECT_INT(*found->count, 2 * per_image);
    for (int i = 0; full && i < *found->count; i++) {
      EXPECT_INT(found->image[i], i < per_image ? 0 : 2);
      EXPECT(target->label[i] >= 1 && target->label[i] < CLASSES);
      EXPECT_INT(target->truth[i] / CAPACITY, found->image[i]);
    }
    model_close(&m);
  }
  EXPECT_INT(rois[0], rois[1]);
  EXPECT(!memcmp(label[0], label[1], (size_t)rois[0] * sizeof(int)));
  free(label[0]);
  free(label[1]);
}

TEST_TIER(model_tiny, 1) {
  ModelConfig c;
  Err err;
  CHECK(config_init(&c, "tiny", &err));
  c.classes = CLASSES;
  Trial m;
  model_open(&m, &c, 2, (int[]){CAPACITY, 0});
  check_bits(&m, true);
  check_inference(&m);
  model_close(&m);
}

// ---- validation -----------------------------------------------------------------------------------------------------

// Its losses are those of training to the bit where no norm has statistics of the batch; nothing of the model changes.
static void check_validation(NormKind norm) {
  const ModelConfig config = small_r50(norm);
  Trial m;
  model_open(&m, &config, 2, (int[]){3, 2});
  const size_t bytes = m.params.elements * sizeof(double);
  double *before = copy_of(m.params.master, bytes);
  graph_forward(&m.use[VALIDATE].graph);
  graph_forward(&m.use[VALIDATE_POISONED].graph);
  EXPECT(!memcmp(before, m.params.master, bytes));
  graph_forward(&m.use[TRAIN].graph);
  EXPECT_INT(memcmp(before, m.params.master, bytes) != 0, norm == NORM_BN);
  const double *validation = losses_of(&m.use[VALIDATE]), *training = losses_of(&m.use[TRAIN]);
  for (int i = 0; i < LOSSES; i++) {
    EXPECT(isfinite(validation[i]) && validation[i] > 0);
    EXPECT_NEAR(losses_of(&m.use[VALIDATE_POISONED])[i], validation[i], 0);
    if (norm != NORM_BN) EXPECT_NEAR(validation[i], training[i], 0);
  }
  if (norm == NORM_BN) EXPECT(validation[LOSS_OBJECTNESS] != training[LOSS_OBJECTNESS]);
  free(before);
  model_close(&m);
}
TEST(maskrcnn_validation_has_the_losses_of_training) { check_validation(NORM_GN); }
TEST(maskrcnn_validation_keeps_running_statistics) { check_validation(NORM_BN); }
