// Catches gradients of several ranks that are not the mean, and ranks whose weights drift apart.
//
// Tests what CPU ranks exchange in a step: gradients are, bit for bit, the mean of those of each rank's batch, in
// whatever buckets; so are losses; all ranks continue with the same weights; stop requests and void steps apply to all
// ranks.
#include "base/alloc.h"
#include "engine/engine.h"
#include "engine/reduction.h"
#include "test/harness/ranks.h"
#include "test/harness/synthetic.h"
#include "test/harness/test.h"

enum { SIDE = 64, ONE = 1, ROOM = 3, CLASSES = 4 };

static const StepOptions still = {.momentum = 0.9f}; // gradients stay in their buffer, weights where they are
static const StepOptions moving = {.learning_rate = 0.01f, .momentum = 0.9f, .weight_decay = 1e-4f, .clip = 5};

static void open_rank(Engine *e, const char *device, NormType norm, const ReductionOptions *ranks) {
  ModelConfig config = synthetic_config(SIDE, SIDE, CLASSES);
  const Shapes shapes = {.canvases = 1,
                         .canvas = {{.h = SIDE, .w = SIDE}},
                         .images = ONE,
                         .max_objects = ROOM,
                         .max_bytes = 3 * SIDE * (SIDE + 32),
                         .max_words = ROOM * SIDE * 3};
  const Category names[CLASSES - 1] = {{0}};
  Err err;
  config.norm = norm;
  const Compute compute = {.device = device, .ranks = *ranks};
  if (!engine_open(e, &compute, model_of(&config), &config, names, &shapes, &(Shapes){0}, false, &err))
    die(EXIT_RUN, "%s", err.msg);
  params_randomise(&e->params, 5 + (uint64_t)comm_rank(ranks->comm)); // engine_share_state makes them the same
  engine_share_state(e);
}

// The batch of one rank in one step.
static StepResult step_of(Engine *e, int rank, int step, StepOptions o) {
  Batch b =
      synthetic_batch(ONE, SIDE, SIDE, ROOM, CLASSES, (int[]){1 + (rank + step) % 3}, (uint64_t)(10 * step + rank));
  StepResult r;
  engine_step(e, &b, &o, &r);
  synthetic_free(&b);
  return r;
}

// ---- the mean -----------------------------------------------------------------------------------------------------

// Gradients and losses of every rank's batch alone, added in the order of ranks and divided by their number.
static double *expected_mean(const char *device, NormType norm, int world, double loss[MAX_LOSSES]) {
  double *sum = NULL;
  memset(loss, 0, MAX_LOSSES * sizeof *loss);
  for (int rank = 0; rank < world; rank++) {
    Engine e;
    open_rank(&e, device, norm, &(ReductionOptions){0});
    const StepResult r = step_of(&e, rank, 0, still);
    const size_t n = e.params.trainable;
    if (!sum) sum = xcalloc(n, sizeof *sum);
    const bool wide = e.dev->real == F64;
    for (size_t i = 0; i < n; i++) {
      const double g = wide ? ((double *)e.params.grad)[i] : (double)((float *)e.params.grad)[i];
      sum[i] = wide ? sum[i] + g : (double)((float)sum[i] + (float)g);
      if (rank == world - 1) sum[i] = wide ? sum[i] / world : (double)((float)sum[i] / (float)world);
    }
    for (int k = 0; k < MAX_LOSSES; k++) {
      loss[k] = wide ? loss[k] + r.loss[k] : (double)((float)loss[k] + (float)r.loss[k]);
      if (rank == world - 1) loss[k] = wide ? loss[k] / world : (double)((float)loss[k] / (float)world);
    }
    engine_close(&e);
  }
  return sum;
}

typedef struct MeanCase {
  const char *device;
  NormType norm;
  double bucket_mb;
} MeanCase;

static void mean_of_ranks(Comm *c, void *context) {
  const MeanCase *m = context;
  double loss[MAX_LOSSES], *want = expected_mean(m->device, m->norm, comm_world(c), loss);
  Engine e;
  open_rank(&e, m->device, m->norm, &(ReductionOptions){.comm = c, .bucket_mb = m->bucket_mb});
  const StepResult r = step_of(&e, comm_rank(c), 0, still);
  size_t wrong = 0;
  for (size_t i = 0; i < e.params.trainable; i++) {
    const bool wide = e.dev->real == F64;
    wrong += (wide ? ((double *)e.params.grad)[i] : (double)((float *)e.params.grad)[i]) != want[i];
  }
  CHECK(wrong == 0);
  for (int k = 0; k < model_losses(e.model); k++) CHECK(r.loss[k] == loss[k]);
  CHECK(!r.stop && !r.is_void && r.finite);
  if (c && m->bucket_mb < 1e-3) CHECK(e.reduction.buckets > 10);
  if (c && m->bucket_mb > 1e3) CHECK(e.reduction.buckets == 1);
  engine_close(&e);
  free(want);
}

TEST(reduction_is_the_mean_in_any_buckets) {
  const MeanCase cases[] = {
      {"cpu", NORM_GN, 1e-9}, {"cpu", NORM_GN, 0.01}, {"cpu", NORM_GN, 1e9}, {"cpu64", NORM_BN, 0.01}};
  for (int i = 0; i < COUNT(cases); i++)
    for (int world = 1; world <= 3; world++) expect_ranks(world, mean_of_ranks, (void *)&cases[i]);
}

// ---- the run ------------------------------------------------------------------------------------------------------

// Whether all ranks hold the same bytes.
static bool everywhere(Comm *c, const void *p, size_t bytes) {
  enum { MOST = 8 };
  CommPart part[MOST] = {{0}};
  bool same = true;
  if (comm_gather_equal(c, p, bytes, part))
    for (int i = 0; i < comm_world(c); i++) {
      same &= part[i].bytes == bytes && !memcmp(part[i].data, p, bytes);
      free(part[i].data);
    }
  comm_broadcast_bytes(c, &same, sizeof same);
  return same;
}

static void run_of_ranks(Comm *c, void *context) {
  const NormType *norm = context;
  Engine e;
  open_rank(&e, "cpu", *norm, &(ReductionOptions){.comm = c, .bucket_mb = 0.02});
  const Params *p = &e.params;
  CHECK((p->moving > 0) == (*norm == NORM_BN));
  for (int step = 0; step < 4; step++) {
    const StepResult r = step_of(&e, comm_rank(c), step, moving);
    const double told[] = {r.total, r.grad_norm, r.finite};
    CHECK(everywhere(c, told, sizeof told));
    CHECK(everywhere(c, p->master, p->elements * sizeof(float))); // running statistics included
    CHECK(everywhere(c, p->momentum, p->trainable * sizeof(float)));
  }
  engine_close(&e);
}

TEST(reduction_leaves_every_rank_the_same_state) {
  for (NormType norm = NORM_FROZEN_BN; norm <= NORM_GN; norm++) expect_ranks(3, run_of_ranks, &norm);
}

static void requests(Comm *c, void *context) {
  Engine e;
  (void)context;
  open_rank(&e, "cpu", NORM_GN, &(ReductionOptions){.comm = c, .bucket_mb = 0.02});
  const size_t bytes = e.params.elements * sizeof(float);
  float *before = xmalloc(bytes);
  for (int asking = 0; asking < comm_world(c); asking++) {
    StepOptions o = moving;
    o.stop = comm_rank(c) == asking;
    StepResult r = step_of(&e, comm_rank(c), asking, o);
    CHECK(r.stop && !r.is_void && r.finite);
    o = moving;
    o.batchless = comm_rank(c) == asking;
    memcpy(before, e.params.master, bytes);
    r = step_of(&e, comm_rank(c), asking, o);
    CHECK(!r.stop && r.is_void && !r.finite && !memcmp(before, e.params.master, bytes));
    r = step_of(&e, comm_rank(c), asking, moving);
    CHECK(!r.stop && !r.is_void && r.finite && memcmp(before, e.params.master, bytes));
  }
  free(before);
  engine_close(&e);
}

TEST(reduction_asks_to_stop_and_voids_on_all_ranks) { expect_ranks(3, requests, NULL); }

// A gradient that is not finite on one rank updates nothing anywhere.
static void poisoned(Comm *c, void *context) {
  Engine e;
  (void)context;
  open_rank(&e, "cpu", NORM_GN, &(ReductionOptions){.comm = c, .bucket_mb = 0.02});
  const size_t bytes = e.params.elements * sizeof(float);
  float *before = xmalloc(bytes), *bias = params_find(&e.params, "rpn.head.cls_logits.bias")->master.data;
  if (comm_rank(c) == 1) bias[0] = INFINITY; // of that rank's forward alone
  memcpy(before, e.params.master, bytes);
  const StepResult r = step_of(&e, comm_rank(c), 0, moving);
  CHECK(!r.finite && !r.is_void && !memcmp(before, e.params.master, bytes));
  free(before);
  engine_close(&e);
}

TEST(reduction_updates_nothing_where_one_rank_is_not_finite) { expect_ranks(2, poisoned, NULL); }
