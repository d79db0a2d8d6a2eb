// Catches shared evaluation work out of order, and ranks that wait forever when one of them fails.
#include <unistd.h>
#include "data/batches/sampler.h"
#include "evaluation/distribute.h"
#include "test/harness/child.h"
#include "test/harness/ranks.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

enum { BATCH = 2, MAX_PARTS = 32 };

// What a test asks for, and what its work leaves behind.
typedef struct Case {
  const Dataset *d;
  bool settles, strict;
  int ahead;              // batches that are started before the first of them is asked for; 0: it has no start
  int stops_on, stops_at; // which rank is asked to stop, before which of its batches; -1: none
  int lacks;              // the rank whose loader finds no memory; -1: none
  int spoils;             // the rank that packs something else than it should; -1: none
  const char *message;    // what all ranks return; NULL: the end of the data set
  int parts;              // that rank 0 is to unpack, at least
  bool all;               // … and at most
} Case;

typedef struct Tally {
  const Case *c;
  int rank, asked;
  int64_t images;
  int parts, first[MAX_PARTS]; // on rank 0: the first image of each batch
  int settled;
  const Batch *started[MAX_PARTS]; // that were not computed, the oldest first
  int ahead, most;                 // how many; at a time
} Tally;

static Tally *running; // `stopped` has no context

static bool stopped(void) { return running->c->stops_on == running->rank && running->asked++ == running->c->stops_at; }

static void start(void *context, const Batch *batch) {
  Tally *t = context;
  t->started[t->ahead++] = batch;
  t->most = MAX(t->most, t->ahead);
}

static void drop(void *context) { ((Tally *)context)->ahead = 0; }

static void compute(void *context, const Batch *batch, ByteBuffer *buffer) {
  Tally *t = context;
  const int first = MAX(batch->index[0], batch->index[1]);
  if (t->c->ahead) {
    EXPECT(t->ahead && t->started[0] == batch);
    t->ahead--;
    for (int i = 0; i < t->ahead; i++) t->started[i] = t->started[i + 1];
  }
  CHECK(batch->used > 0);
  byte_buffer_put(buffer, &first, t->c->spoils == t->rank ? 1 : sizeof first);
  byte_buffer_put(buffer, &batch->used, sizeof batch->used);
}

static bool unpack(void *context, ByteReader *reader) {
  Tally *t = context;
  int used;
  if (!byte_reader_take(reader, &t->first[t->parts], sizeof *t->first)) return false;
  if (!byte_reader_take(reader, &used, sizeof used)) return false;
  t->parts++;
  t->images += used;
  return true;
}

static void settle(void *context, const Batch *batch, int64_t before) {
  Tally *t = context;
  if (t->rank == 0) EXPECT(before + batch->used <= t->images);
  int64_t sooner = 0; // by canvas and, within one, in ascending order
  const Dataset *d = t->c->d;
  const int first = batch->index[0], canvas = d->image_canvas[MAX(first, 0)];
  for (int i = 0; i < d->num_images; i++)
    sooner += d->image_canvas[i] < canvas || (d->image_canvas[i] == canvas && i < first);
  if (first >= 0) EXPECT_INT(before, sooner);
  t->settled++;
}

static void *no_memory(void *context, size_t bytes) {
  (void)context;
  (void)bytes;
  return NULL;
}
static void no_release(void *context, void *p) {
  (void)context;
  (void)p;
}

// By canvas and, within one, in ascending order.
static bool in_order(const Dataset *d, const int *first, int n) {
  for (int i = 1; i < n; i++) {
    const int a = d->image_canvas[first[i - 1]], b = d->image_canvas[first[i]];
    if (a > b || (a == b && first[i - 1] >= first[i])) return false;
  }
  return true;
}

static bool share(Comm *comm, void *context) {
  const Case *c = context;
  Tally t = {.c = c, .rank = comm_rank(comm)};
  LoaderOptions options = {.batch = BATCH, .threads = 1, .prefetch = 1, .held = c->ahead, .strict = c->strict};
  if (c->lacks == t.rank) options.memory = (HostMemory){no_memory, no_release, NULL};
  running = &t;
  const BatchWork work = {.context = &t,
                          .start = c->ahead ? start : NULL,
                          .ahead = c->ahead,
                          .drop = drop,
                          .compute = compute,
                          .unpack = unpack,
                          .settle = c->settles ? settle : NULL,
                          .stopped = stopped};
  Err err = {"what stood here"};
  bool complete = distribute_batches(comm, c->d, &options, &work, &err);
  bool ok = EXPECT(complete == !c->message);
  if (c->message && *c->message) ok = EXPECT(strstr(err.msg, c->message)) && ok;
  if (c->message && !*c->message) ok = EXPECT_STR(err.msg, "") && ok;
  if (!ok) printf("    rank %d of %d: %s\n", t.rank, comm_world(comm), err.msg);
  ok = EXPECT(t.most <= c->ahead && t.ahead == 0) && ok;
  if (comm_world(comm) == 1) ok = EXPECT_INT(t.most, c->ahead) && ok;
  if (t.rank) return EXPECT(!t.parts) && ok;
  ok = EXPECT(t.parts >= c->parts && (!c->all || t.parts == c->parts)) && ok;
  return EXPECT(in_order(c->d, t.first, t.parts)) && ok;
}

static Case whole(const Dataset *d) { return (Case){.d = d, .stops_on = -1, .lacks = -1, .spoils = -1}; }

// Batches that one rank makes of the set.
static int batches_of(const Dataset *d) {
  int n = 0;
  for (int c = 0; c < d->num_canvases; c++) {
    int images = 0;
    for (int i = 0; i < d->num_images; i++) images += d->image_canvas[i] == c;
    n += (images + BATCH - 1) / BATCH;
  }
  return n;
}

TEST(distribute_end_together) {
  Dataset d;
  if (!open_set(&d, small_set("exchange"), &small_options)) return;
  Case c = whole(&d);
  c.parts = batches_of(&d);
  c.all = true;
  for (int world = 1; world <= 12; world += world < 3 ? 1 : 9)
    for (int k = 0; k < 4; k++) {
      c.settles = k & 1;
      c.ahead = k & 2 ? 3 : 0;
      EXPECT(true_on_ranks(world, share, &c));
    }
  dataset_close(&d);
}

// Whoever is asked: what comes before it in the order is there, nothing after it.
TEST(distribute_stop_on_all_ranks) {
  Dataset d;
  if (!open_set(&d, small_set("exchange-stop"), &small_options)) return;
  Case c = whole(&d);
  c.message = "";
  c.all = true;
  for (c.stops_on = 0; c.stops_on < 3; c.stops_on++)
    for (c.stops_at = 0; c.stops_at < 2; c.stops_at++) {
      c.parts = 3 * c.stops_at + c.stops_on;
      c.settles = c.stops_on == 1;
      EXPECT(true_on_ranks(3, share, &c));
    }
  c.stops_on = 0;
  c.parts = c.stops_at = batches_of(&d); // when all is done
  EXPECT(true_on_ranks(1, share, &c));
  dataset_close(&d);
}

TEST(distribute_fail_on_all_ranks) {
  const char *dir = small_set("exchange-fail");
  Dataset d;
  if (!open_set(&d, dir, &small_options)) return;
  for (int rank = 0; rank < 3; rank++) {
    Case c = whole(&d);
    c.lacks = rank;
    c.parts = rank;
    c.message = "out of memory: ";
    c.all = true;
    EXPECT(true_on_ranks(3, share, &c));
    c.lacks = -1;
    c.spoils = rank;
    c.message = "that are not evaluation results";
    EXPECT(true_on_ranks(3, share, &c));
  }
  dataset_close(&d);
}

// An image that stops one rank under `strict` is named once, the same on all, by its rank and the batch of one rank.
TEST(distribute_name_what_stops_a_rank) {
  const char *dir = small_set("exchange-strict");
  Dataset d;
  if (!open_set(&d, dir, &small_options)) return;
  char path[1024];
  int index[BATCH];
  Sampler s;
  const SamplerOptions order = {.batch = BATCH, .world = 1};
  sampler_open(&s, d.image_canvas, d.num_images, d.num_canvases, &order);
  sampler_batch(&s, 4, index, NULL); // rank 1's second
  sampler_close(&s);
  snprintf(path, sizeof path, "%s/train/%d.png", dir, image_number(&d, index[0]));
  CHECK(!unlink(path));
  Case c = whole(&d);
  c.strict = c.all = true;
  c.parts = 4;
  c.message = "rank 1 on ";
  EXPECT(true_on_ranks(3, share, &c));
  c.message = ": step 5: ";
  EXPECT(true_on_ranks(3, share, &c));
  c.message = path;
  EXPECT(true_on_ranks(3, share, &c) && true_on_ranks(1, share, &c));
  dataset_close(&d);
}

TEST(distribute_need_an_image) {
  const char *dir = small_set("exchange-none");
  char path[1024];
  Dataset d;
  if (!open_set(&d, dir, &small_options)) return;
  for (int i = 0; i < d.num_images; i++) {
    snprintf(path, sizeof path, "%s/train/%d.png", dir, image_number(&d, i));
    CHECK(!unlink(path));
  }
  snprintf(path, sizeof path, "%s/stderr", dir);
  int kept = quiet_begin(path);
  Case c = whole(&d);
  c.message = "images can be read";
  EXPECT(true_on_ranks(1, share, &c) && true_on_ranks(2, share, &c));
  quiet_end(kept);
  dataset_close(&d);
}
