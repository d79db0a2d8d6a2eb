// Catches gradients of Mask R-CNN's losses that differ from finite differences.
#include <omp.h>
#include "base/alloc.h"
#include "base/rng.h"
#include "test/harness/maskrcnn_trial.h"
#include "test/harness/net.h"

// The gradient takes proposals as given, so the differences must, too: from now on the proposals are what they were.
static struct {
  const Network *n;
  Boxes saved;
} held;

static void held_forward(Graph *g, Node *n) {
  (void)g;
  (void)n;
  const Boxes *from = &held.saved, *to = &rcnn_of(held.n)->proposals->boxes;
  size_t rows = (size_t)to->groups * (size_t)to->capacity;
  memcpy(to->box.data, from->box.data, tensor_bytes(&to->box));
  memcpy(to->score.data, from->score.data, tensor_bytes(&to->score));
  memcpy(to->index, from->index, rows * sizeof(int));
  memcpy(to->count, from->count, (size_t)to->groups * sizeof(int));
}

static void hold_proposals(Network *n) {
  static const NodeType type = {.name = "proposals held", .forward = held_forward};
  const Boxes *b = &rcnn_of(n)->proposals->boxes;
  size_t rows = (size_t)b->groups * (size_t)b->capacity;
  held.n = n;
  held.saved = *b;
  held.saved.box.data = trial_copy(b->box.data, tensor_bytes(&b->box));
  held.saved.score.data = trial_copy(b->score.data, tensor_bytes(&b->score));
  held.saved.index = trial_copy(b->index, rows * sizeof(int));
  held.saved.count = trial_copy(b->count, (size_t)b->groups * sizeof(int));
  graph_find_node(&n->graph, "proposals")->type = &type;
}

static void release_proposals(void) {
  free(held.saved.box.data);
  free(held.saved.score.data);
  free(held.saved.index);
  free(held.saved.count);
}

// Moves the parameter along `way` (logical elements) by `step` and returns the loss; puts it back.
static double loss_at(MaskrcnnTrial *m, const Param *q, const double *way, double step) {
  double *w = q->master.data;
  size_t n = param_elements(q);
  double *before = trial_copy(w, tensor_bytes(&q->master));
  for (size_t i = 0; i < n; i++) w[param_element(q, i)] += step * way[i];
  params_refresh(&m->params);
  graph_forward(&m->use[TRAIN].graph);
  memcpy(w, before, tensor_bytes(&q->master));
  params_refresh(&m->params);
  free(before);
  return trial_loss(&m->use[TRAIN]);
}

typedef struct Slopes {
  double here; // the loss
  int checked, rough;
  int zero; // whole parameters that the loss does not depend on
} Slopes;

// The slope along `way`, as test/harness/net.c's check_element argues: off by no more than the one-sided ones disagree,
// and by rounding. The losses are means of terms that reach through at most 1000 operations.
static void check_slope(MaskrcnnTrial *m, const Param *q, const double *way, double slope, Slopes *s) {
  const double h = 0x1p-21, rounding = 2 * 1000 * unit_roundoff(F64) * s->here / h;
  double above = (loss_at(m, q, way, h) - s->here) / h, below = (s->here - loss_at(m, q, way, -h)) / h;
  double apart = fabs(above - below);
  if (!EXPECT_NEAR(slope, (above + below) / 2, rounding + apart)) printf("    along %s\n", q->name);
  s->checked++;
  s->rough += apart > 1e-3 * (fabs(slope) + rounding);
}

// Every parameter: along one random direction, which every element takes part in, and along a few elements alone.
static void check_gradients(const ModelConfig *config, int elements) {
  MaskrcnnTrial m;
  trial_open(&m, config, 2, (int[]){3, 2});
  int threads = omp_get_max_threads();
  omp_set_num_threads(1); // the maps are so small that starting threads takes longer than the work
  size_t n;
  free(trial_train(&m, TRAIN, &n));
  Slopes s = {.here = trial_loss(&m.use[TRAIN])};
  hold_proposals(&m.use[TRAIN]);
  double *gradient = trial_train(&m, TRAIN, &n), *next = gradient;
  EXPECT_NEAR(trial_loss(&m.use[TRAIN]), s.here, 0);
  EXPECT(*rcnn_of(&m.use[TRAIN])->objects->rois.count > 0);
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
  trial_close(&m);
}

TEST_TIER(model_gradients, 1) {
  ModelConfig c = synthetic_config(CANVAS_H, CANVAS_W, CLASSES);
  check_gradients(&c, 3);
}
TEST_TIER(model_gradients_detectron2, 1) {
  ModelConfig c = trial_conventions(CONVENTIONS_DETECTRON2);
  check_gradients(&c, 1);
}
TEST_TIER(model_gradients_mlperf, 1) {
  ModelConfig c = trial_conventions(CONVENTIONS_MLPERF);
  check_gradients(&c, 1);
}
TEST_TIER(model_gradients_r50_frozen_bn, 1) {
  ModelConfig c = trial_r50(NORM_FROZEN_BN);
  check_gradients(&c, 1);
}
TEST_TIER(model_gradients_r50_bn, 1) {
  ModelConfig c = trial_r50(NORM_BN);
  check_gradients(&c, 0);
}
TEST_TIER(model_gradients_r50_gn, 1) {
  ModelConfig c = trial_r50(NORM_GN);
  check_gradients(&c, 0);
}
