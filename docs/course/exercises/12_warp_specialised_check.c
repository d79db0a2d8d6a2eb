// Runs one producer and two consumers over a ring of stages, in random orders, with barriers that behave like
// mbarriers: a full barrier completes a phase when the producer has filled the stage, an empty one when both consumers
// have read it.
#include "base/rng.h"
#include "docs/course/exercises/check.h"
#include "docs/course/exercises/conv.h"

enum { MOST_STAGES = 6, CONSUMERS = 2, ACTORS = 1 + CONSUMERS };

typedef struct StageRing {
  int stages, tiles;
  int full[MOST_STAGES], empty[MOST_STAGES];   // completed phases
  int tile[MOST_STAGES], readers[MOST_STAGES]; // the tile in each stage, and how many consumers have read it
  int at[ACTORS];                              // tiles that each of them has done
} StageRing;

static const char *const names[] = {"the producer", "consumer 0", "consumer 1"};

static PipelineWait wait_of(const StageRing *r, int actor) {
  const PipelineWait w = pipeline_wait(actor == 0, r->stages, r->at[actor]);
  if (w.stage < 0 || w.stage >= r->stages || (w.parity & ~1))
    difference("%d stages, tile %d: %s waits for parity %d of stage %d", r->stages, r->at[actor], names[actor],
               w.parity, w.stage);
  return w;
}
static bool can_go(const StageRing *r, int actor) {
  if (r->at[actor] == r->tiles) return false;
  const PipelineWait w = wait_of(r, actor);
  const int complete = actor == 0 ? r->empty[w.stage] : r->full[w.stage];
  return complete % 2 != w.parity; // the current, incomplete phase has the opposite parity
}

static void fill(StageRing *r, int stage) {
  const int i = r->at[0], before = r->tile[stage];
  if (before >= 0 && r->readers[stage] < CONSUMERS)
    difference("%d stages: the producer writes tile %d over tile %d, which %d of %d consumers have read", r->stages, i,
               before, r->readers[stage], CONSUMERS);
  r->tile[stage] = i;
  r->readers[stage] = 0;
  r->full[stage]++;
}
static void read_stage(StageRing *r, int actor, int stage) {
  if (r->tile[stage] != r->at[actor])
    difference("%d stages: %s reads tile %d where tile %d should be", r->stages, names[actor], r->tile[stage],
               r->at[actor]);
  if (++r->readers[stage] == CONSUMERS) r->empty[stage]++;
}

static void run(int stages, int tiles, uint64_t seed) {
  StageRing r = {.stages = stages, .tiles = tiles};
  for (int s = 0; s < stages; s++) r.tile[s] = -1;
  for (uint64_t step = 0; r.at[0] + r.at[1] + r.at[2] < ACTORS * tiles; step++) {
    const int first = (int)(rng_u32(seed, step) % ACTORS);
    int actor = -1;
    for (int i = 0; i < ACTORS && actor < 0; i++)
      if (can_go(&r, (first + i) % ACTORS)) actor = (first + i) % ACTORS;
    if (actor < 0)
      difference("%d stages: a deadlock, tiles of %s: %d, of %s: %d, of %s: %d, of %d", stages, names[0], r.at[0],
                 names[1], r.at[1], names[2], r.at[2], tiles);
    const int stage = wait_of(&r, actor).stage;
    if (actor == 0)
      fill(&r, stage);
    else
      read_stage(&r, actor, stage);
    r.at[actor]++;
  }
}

int main(void) {
  static const int stages[] = {3, 2, 1, 4, MOST_STAGES};
  for (int s = 0; s < (int)(sizeof stages / sizeof *stages); s++)
    for (int tiles = 0; tiles <= 5 * stages[s] + 1; tiles++)
      for (uint64_t seed = 0; seed < 8; seed++) run(stages[s], tiles, seed);
  return solved();
}
