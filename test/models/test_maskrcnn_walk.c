// Catches steps beside others that wait for too little, or whose memory others take meanwhile; gradients of parameters
// likewise.
#include "base/alloc.h"
#include "base/rng.h"
#include "test/harness/maskrcnn_trial.h"
#include "test/harness/net.h"
#include "test/harness/test.h"

// ---- queues ---------------------------------------------------------------------------------------------------------

enum { SIDES = QUEUE_SIDE, AT_RANDOM }; // queues of a walk; which of them goes on where several could, or this

typedef struct Queues {
  int next[SIDES]; // step
  bool *done, *gradients_done;
} Queues;

static bool is_of(const Step *s, Queue q) {
  return q == QUEUE_GRADIENTS ? s->splits : s->beside == (q == QUEUE_BESIDE);
}

// Steps whose gradients QUEUE_OPS has waited for when it comes to step i: of those before that split, all but the last;
// all, if it adds to gradients itself.
static bool gradients_waited_for(const Graph *g, const Queues *q, int i) {
  const Step *s = &g->walk[i];
  const bool adds = s->pass == PASS_BACKWARD && s->node->type->gradients && !s->splits;
  bool last = true;
  for (int j = i - 1; j >= 0; j--) {
    if (!g->walk[j].splits) continue;
    if ((!last || adds) && !q->gradients_done[j]) return false;
    last = false;
  }
  return true;
}

static bool may_run(const Graph *g, const Queues *q, Queue queue) {
  const int i = q->next[queue];
  if (i == g->steps) return false;
  if (queue == QUEUE_GRADIENTS) return q->next[QUEUE_OPS] >= i;
  if (queue == QUEUE_OPS && i >= g->forward_steps && g->last_beside >= 0 && !q->done[g->last_beside]) return false;
  const int after = g->walk[i].after;
  return (after < 0 || q->done[after]) && (queue == QUEUE_BESIDE || gradients_waited_for(g, q, i));
}

static void run_next(Graph *g, Queues *q, Queue queue) {
  const int i = q->next[queue]++;
  if (queue == QUEUE_GRADIENTS)
    graph_run_gradients(g, i);
  else if (g->walk[i].splits)
    graph_run_backward(g, i);
  else
    graph_run_step(g, i);
  (queue == QUEUE_GRADIENTS ? q->gradients_done : q->done)[i] = true;
}

// A walk as queues would take it that heed nothing but what they wait for.
static void run_queues(Graph *g, int turns, uint64_t key) {
  Queues q = {.done = xcalloc((size_t)g->steps, sizeof *q.done),
              .gradients_done = xcalloc((size_t)g->steps, sizeof *q.gradients_done)};
  for (int ran = 0;; ran++) {
    Queue may[SIDES], chosen;
    int count = 0;
    for (Queue k = 0; k < QUEUE_SIDE; k++) {
      while (q.next[k] < g->steps && !is_of(&g->walk[q.next[k]], k)) q.next[k]++;
      if (may_run(g, &q, k)) may[count++] = k;
    }
    if (!count) break;
    chosen = may[rng_u32(key, (uint64_t)ran) % (uint32_t)count];
    for (int k = 0; k < count; k++)
      if ((int)may[k] == turns) chosen = may[k];
    run_next(g, &q, chosen);
  }
  for (Queue k = 0; k < QUEUE_SIDE; k++) CHECK(q.next[k] == g->steps);
  free(q.done);
  free(q.gradients_done);
}

static void check_queues(const ModelConfig *config) {
  enum { ROUNDS = AT_RANDOM + 2 };
  MaskrcnnTrial m;
  size_t n, again;
  trial_open(&m, config, 2, (int[]){CAPACITY, 1});
  Graph *g = &m.use[TRAIN].graph;
  double *want = trial_train(&m, TRAIN, &n), loss[LOSSES];
  memcpy(loss, trial_losses(&m.use[TRAIN]), sizeof loss);
  for (int round = 0; round < ROUNDS; round++) {
    memset(m.arena[TRAIN], 0xff, g->bytes); // NaN: nothing is left of the walk before
    memset(m.params.grad, 0xff, m.params.trainable * sizeof(double));
    run_queues(g, MIN(round, AT_RANDOM), rng_key(RNG_TEST, (uint64_t)round));
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
  const Step *rpn = step_of(g, "rpn_patches.conv", PASS_BACKWARD), *box = step_of(g, "box_roi_align", PASS_FORWARD);
  EXPECT(match->beside && match->first == 0 && match->after == WALK_BEGIN);
  EXPECT(match->last == step_of(g, "rpn_patches", PASS_FORWARD)->first - 1);
  EXPECT(&g->walk[select->after] == step_of(g, "rpn.head.bbox_pred", PASS_FORWARD));
  EXPECT(select->first <= rpn->first && rpn->last <= sample->last && rpn->lent > 0);
  EXPECT(&g->walk[box->after] == sample && sample->awaited && rpn < box);
  EXPECT(target->first <= box->first && target->last == step_of(g, "mask_loss", PASS_FORWARD)->first - 1);
  EXPECT(box->lent == 0 && g->walk[0].lent == 0);
  EXPECT(g->last_beside == NO_STEP);
  const Step *fc7 = step_of(g, "roi_heads.box_head.fc7", PASS_BACKWARD);
  const Step *fc6 = step_of(g, "roi_heads.box_head.fc6", PASS_BACKWARD);
  EXPECT(!rpn->splits && fc7->splits && fc6->splits && &g->walk[fc7->last] == fc6); // rpn: beside proposals
  for (int i = 0; i < g->steps; i++) EXPECT(g->walk[i].first <= i && i <= g->walk[i].last);
  trial_close(&m);
}
