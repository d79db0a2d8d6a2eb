// Catches steps beside others that wait for too little, or whose memory others take meanwhile.
#include "base/alloc.h"
#include "base/rng.h"
#include "test/harness/maskrcnn_trial.h"
#include "test/harness/net.h"
#include "test/harness/test.h"

// ---- two queues -----------------------------------------------------------------------------------------------------

typedef enum Turns { BESIDE_FIRST, OTHERS_FIRST, AT_RANDOM } Turns; // where both queues could go on

typedef struct Queue {
  bool beside;
  int next; // step
} Queue;

static void skip_other_queue(const Graph *g, Queue *q) {
  while (q->next < g->steps && g->walk[q->next].beside != q->beside) q->next++;
}

static bool may_run(const Graph *g, const Queue *q, const bool *done) {
  if (q->next == g->steps) return false;
  if (!q->beside && q->next >= g->forward_steps && g->last_beside >= 0 && !done[g->last_beside]) return false;
  const int after = g->walk[q->next].after;
  return after < 0 || done[after];
}

// A walk as two queues would take it that heed nothing but what they wait for.
static void run_queues(Graph *g, Turns turns, uint64_t key) {
  bool *done = xcalloc((size_t)g->steps, sizeof *done);
  Queue queue[] = {{.beside = false}, {.beside = true}};
  for (int ran = 0; ran < g->steps; ran++) {
    bool may[2];
    for (int i = 0; i < 2; i++) {
      skip_other_queue(g, &queue[i]);
      may[i] = may_run(g, &queue[i], done);
    }
    CHECK(may[0] || may[1]);
    const bool wanted = turns == AT_RANDOM ? rng_u32(key, (uint64_t)ran) % 2 : turns == BESIDE_FIRST;
    const bool beside = may[0] && may[1] ? wanted : may[1];
    const int step = queue[beside].next++;
    graph_run_step(g, step);
    done[step] = true;
  }
  free(done);
}

static void check_queues(const ModelConfig *config) {
  enum { ROUNDS = 4 };
  MaskrcnnTrial m;
  size_t n, again;
  trial_open(&m, config, 2, (int[]){CAPACITY, 1});
  Graph *g = &m.use[TRAIN].graph;
  double *want = trial_train(&m, TRAIN, &n), loss[LOSSES];
  memcpy(loss, trial_losses(&m.use[TRAIN]), sizeof loss);
  for (int round = 0; round < ROUNDS; round++) {
    memset(m.arena[TRAIN], 0xff, g->bytes); // NaN: nothing is left of the walk before
    memset(m.params.grad, 0xff, m.params.trainable * sizeof(double));
    run_queues(g, (Turns)MIN(round, AT_RANDOM), rng_key(RNG_TEST, (uint64_t)round));
    double *got = copy_gradients(&m.params, &again);
    EXPECT(again == n && !memcmp(got, want, n * sizeof *got));
    EXPECT(!memcmp(trial_losses(&m.use[TRAIN]), loss, sizeof loss));
    free(got);
  }
  free(want);
  trial_close(&m);
}

TEST(maskrcnn_steps_beside_wait_for_enough) {
  ModelConfig c = synthetic_config(CANVAS_H, CANVAS_W, CLASSES);
  check_queues(&c);
  c.full_masks = true; // samples twice
  check_queues(&c);
}

// ---- the plan -------------------------------------------------------------------------------------------------------

static const Step *step_of(const Graph *g, const char *node, Pass pass) {
  const Node *n = graph_find_node(g, node);
  CHECK(n && n->step[pass] >= 0);
  return &g->walk[n->step[pass]];
}

// The RPN runs backward at once, proposals and targets beside it; matches are made from the begin on, mask targets
// beside the box head. Only products beside proposals leave multiprocessors.
TEST(maskrcnn_plan_of_steps_beside) {
  const ModelConfig c = synthetic_config(CANVAS_H, CANVAS_W, CLASSES);
  MaskrcnnTrial m;
  trial_open(&m, &c, 2, (int[]){CAPACITY, 1});
  const Graph *g = &m.use[TRAIN].graph;
  const Step *match = step_of(g, "rpn_match", PASS_FORWARD), *select = step_of(g, "rpn_select", PASS_FORWARD);
  const Step *sample = step_of(g, "roi_sample", PASS_FORWARD), *target = step_of(g, "mask_target", PASS_FORWARD);
  const Step *rpn = step_of(g, "rpn.head.conv.0.0", PASS_BACKWARD), *box = step_of(g, "box_roi_align", PASS_FORWARD);
  EXPECT(match->beside && match->first == 0 && match->after == WALK_BEGIN);
  EXPECT(match->last == step_of(g, "rpn_loss", PASS_FORWARD)->first - 1);
  EXPECT(&g->walk[select->after] == step_of(g, "rpn.head.bbox_pred", PASS_FORWARD));
  EXPECT(select->first <= rpn->first && rpn->last <= sample->last && rpn->lent > 0);
  EXPECT(&g->walk[box->after] == sample && sample->awaited && rpn < box);
  EXPECT(target->first <= box->first && target->last == step_of(g, "mask_loss", PASS_FORWARD)->first - 1);
  EXPECT(box->lent == 0 && g->walk[0].lent == 0);
  EXPECT(g->last_beside == NO_STEP);
  for (int i = 0; i < g->steps; i++) EXPECT(g->walk[i].first <= i && i <= g->walk[i].last);
  trial_close(&m);
}
