// Inference over a data set: it stops between batches when it is told to, and images that cannot be read count neither
// among the detections nor in the ground truth.
#include <unistd.h>
#include "base/alloc.h"
#include "evaluation/evaluate.h"
#include "evaluation/task.h"
#include "test/harness/child.h"
#include "test/harness/ranks.h"
#include "test/harness/small_set.h"
#include "test/harness/synthetic.h"
#include "test/harness/test.h"

enum { CLASSES = 3, BATCH = 3 };

// A model of random weights whose inference has the shapes and the categories of the data set.
static void open_engine(Engine *e, const Dataset *d) {
  Err err;
  ModelConfig config = synthetic_config(d->resize.size, d->resize.max_size, CLASSES);
  Category category[CLASSES - 1] = {{.id = 3, .name = "a"}, {.id = 8, .name = "b"}};
  Shapes none = {0}, shapes = shapes_of(d, BATCH);
  if (!engine_open(e, &(Compute){.device = "cpu"}, model_of(&config), &config, category, &none, &shapes, false, &err))
    die(EXIT_RUN, "%s", err.msg);
  params_randomise(&e->params, 1);
}

static int asked;
static bool stop_third_time(void) { return ++asked == 3; }

static void count_batch(void *context, const Dataset *d, const Batch *b, const Detections *found, int64_t before) {
  (void)d;
  (void)found;
  (void)before;
  *(int *)context += b->used > 0;
}

TEST(evaluate_stops_between_batches) {
  Dataset d;
  Engine e;
  if (!open_set(&d, small_set("stops"), &small_options)) return;
  open_engine(&e, &d);
  Evaluation some;
  int batches = 0;
  asked = 0;
  Err err = {"what stood here"};
  EXPECT(!evaluate_run(&e, &d, 1, &(Visitor){.context = &batches, .batch = count_batch, .stopped = stop_third_time},
                       &some, &err));
  EXPECT_STR(err.msg, "");
  EXPECT_INT(batches, 2);
  evaluation_free(&some);
  asked = 0;
  err = (Err){"what stood here"};
  EXPECT(!task_detection.collect(&e, &d, 1, stop_third_time, &err));
  EXPECT_STR(err.msg, "");
  EXPECT_INT(asked, 3);
  void *all = task_detection.collect(&e, &d, 1, NULL, &err);
  EXPECT(all);
  task_detection.release(all);
  engine_close(&e);
  dataset_close(&d);
}

// A finder that counts what it is asked for.
typedef struct Counted {
  Finder engine;
  int started, taken, most; // batches; at a time
} Counted;

static void count_find(void *context, const Batch *batch) {
  Counted *c = context;
  c->started++;
  c->most = MAX(c->most, c->started - c->taken);
  c->engine.find(c->engine.context, batch);
}
static bool count_found(void *context, Found *out) {
  Counted *c = context;
  const bool found = c->engine.found(c->engine.context, out);
  c->taken += found;
  return found;
}

// Several batches are under way, none is left behind when the evaluation is stopped, and any finder will do.
TEST(evaluate_keeps_batches_under_way) {
  Dataset d;
  Engine e;
  if (!open_set(&d, small_set("under-way"), &small_options)) return;
  open_engine(&e, &d);
  Evaluation all, want;
  Err err;
  EXPECT(evaluate_run(&e, &d, 1, NULL, &want, &err));
  for (int stops = 0; stops < 2; stops++) {
    Counted c = {.engine = finder_of(&e)};
    Finder counting = c.engine;
    counting.context = &c;
    counting.find = count_find;
    counting.found = count_found;
    asked = 0;
    const Visitor visitor = {.stopped = stops ? stop_third_time : NULL};
    EXPECT(evaluate_with(&counting, NULL, &d, 1, &visitor, &all, &err) == !stops);
    EXPECT_INT(c.taken, c.started);
    EXPECT_INT(c.most, counting.ahead);
    if (!stops) EXPECT(all.found.n == want.found.n && all.images == want.images);
    EXPECT(all.found.n > 0);
    evaluation_free(&all);
  }
  evaluation_free(&want);
  engine_close(&e);
  dataset_close(&d);
}

// Every object of the images that were read, found where it is.
static void find_all(const Dataset *d, Evaluation *v) {
  coco_results_free(&v->found);
  v->found.items = xcalloc((size_t)d->first_object[d->num_images], sizeof *v->found.items);
  for (int i = 0; i < d->num_images; i++)
    for (int k = d->first_object[i]; v->read[i] && k < d->first_object[i + 1]; k++) {
      const Object *o = &d->object[k];
      v->found.items[v->found.n++] =
          (CocoResult){.image_id = d->coco.images[d->image[i]].id,
                       .category_id = d->coco.categories[o->label - 1].id,
                       .score = 1,
                       .has_bbox = true,
                       .bbox = {o->box[0], o->box[1], o->box[2] - o->box[0], o->box[3] - o->box[1]},
                       .has_segm = true,
                       .rle = dataset_mask(d, i, o)};
    }
}

static void remove_image(const char *dir, int image) {
  char path[1024];
  snprintf(path, sizeof path, "%s/train/%d.png", dir, image);
  CHECK(unlink(path) == 0);
}

TEST(evaluate_scores_the_images_that_were_read) {
  enum { GONE = 5 };
  const char *dir = small_set("unread");
  char log[1024];
  snprintf(log, sizeof log, "%s/stderr", dir);
  Dataset d;
  Engine e;
  Evaluation v;
  Scores s;
  Metrics m;
  Err err;
  if (!open_set(&d, dir, &small_options)) return;
  open_engine(&e, &d);
  for (int i = 0; i < GONE - 1; i++) remove_image(dir, i);
  int kept = quiet_begin(log);
  d.bad_images = 1; // as if one had been left out from the start
  EXPECT(evaluate_run(&e, &d, 1, NULL, &v, &err));
  EXPECT_INT(v.images, d.num_images + 1 - GONE);
  EXPECT_INT(v.left_out, GONE);
  for (int i = 0; i < d.num_images; i++) EXPECT_INT(v.read[i], image_number(&d, i) >= GONE - 1);
  for (int i = 0; i < v.found.n; i++) EXPECT(v.found.items[i].image_id >= 100 + GONE - 1);
  find_all(&d, &v);
  EXPECT(evaluate_score(&d, &v, &s, &err));
  EXPECT_NEAR(s.bbox.stats[0], 1, 1e-12);
  EXPECT_NEAR(s.segm.stats[0], 1, 1e-12);
  scores_free(&s);
  EXPECT(task_detection.score(&d, &v, &m, &err));
  EXPECT_INT(m.images, v.images);
  EXPECT_INT(m.left_out, GONE);
  evaluation_free(&v);
  for (int i = GONE - 1; i < IMAGES; i++) remove_image(dir, i);
  EXPECT(!task_detection.collect(&e, &d, 1, NULL, &err));
  EXPECT(strstr(err.msg, "instances_train.json: none of its 13 images can be read"));
  quiet_end(kept);
  engine_close(&e);
  dataset_close(&d);
}

// ---- several ranks ----------------------------------------------------------------------------------------------

typedef struct Expected { // of one rank
  const Dataset *d;
  bool watched;
  Evaluation all;
} Expected;

// What a visitor is told, which is to be in the order of one rank.
typedef struct Watched {
  const Expected *want;
  int rank, images, found, batches, own;
} Watched;

static bool same_result(const CocoResult *a, const CocoResult *b) {
  return a->image_id == b->image_id && a->category_id == b->category_id && a->score == b->score &&
         !memcmp(a->bbox, b->bbox, sizeof a->bbox) && a->has_bbox == b->has_bbox && a->has_segm == b->has_segm &&
         a->rle.h == b->rle.h && a->rle.w == b->rle.w && a->rle.n == b->rle.n &&
         !memcmp(a->rle.runs, b->rle.runs, (size_t)a->rle.n * sizeof *a->rle.runs);
}

static void watch_image(void *context, const Dataset *d, int i, const CocoResult *found, int n) {
  Watched *w = context;
  const CocoResults *all = &w->want->all.found;
  EXPECT(w->rank == 0 && w->found + n <= all->n && w->want->all.read[i]);
  for (int k = 0; k < n; k++) {
    EXPECT(found[k].image_id == d->coco.images[d->image[i]].id);
    EXPECT(same_result(&found[k], &all->items[w->found + k]));
  }
  w->found += n;
  w->images++;
}

static void watch_time(void *context, double seconds) {
  EXPECT(seconds > 0);
  ((Watched *)context)->batches++;
}

// How many images of the set come before this batch, when rank 0 has been told of them.
static void watch_batch(void *context, const Dataset *d, const Batch *b, const Detections *found, int64_t before) {
  Watched *w = context;
  const Evaluation *all = &w->want->all;
  int64_t sooner = 0;
  const int canvas = d->image_canvas[b->index[0] < 0 ? b->index[1] : b->index[0]];
  for (int i = 0; i < d->num_images; i++) {
    const bool precedes = d->image_canvas[i] == canvas ? i < MAX(b->index[0], 0) : d->image_canvas[i] < canvas;
    sooner += all->read[i] && precedes;
  }
  if (b->index[0] >= 0) EXPECT_INT(before, sooner);
  if (w->rank == 0) EXPECT(w->images >= before + b->used);
  for (int i = 0; i < found->n; i++) EXPECT(found->items[i].mask.n > 0);
  w->own++;
}

static bool same_evaluation(const Evaluation *got, const Expected *want) {
  const Evaluation *all = &want->all;
  bool same = got->images == all->images && got->left_out == all->left_out && got->found.n == all->found.n &&
              !memcmp(got->read, all->read, (size_t)want->d->num_images * sizeof *all->read);
  for (int i = 0; same && i < all->found.n; i++) same = same_result(&got->found.items[i], &all->found.items[i]);
  return same;
}

static bool evaluate_on_a_rank(Comm *comm, void *context) {
  const Expected *want = context;
  const int rank = comm_rank(comm);
  Engine e;
  Evaluation v;
  Err err = {""};
  Watched w = {.want = want, .rank = rank};
  const Visitor visitor = {&w, watch_image, watch_time, watch_batch, NULL};
  open_engine(&e, want->d);
  e.comm = comm;
  bool ok = EXPECT(evaluate_run(&e, want->d, 1, want->watched ? &visitor : NULL, &v, &err));
  if (rank == 0)
    ok = EXPECT(same_evaluation(&v, want)) && ok;
  else
    ok = EXPECT(!v.images && !v.left_out && !v.found.n) && ok;
  if (want->watched && rank == 0) ok = EXPECT(w.images == v.images && w.found == v.found.n && w.batches > 0) && ok;
  int expected_bad = v.left_out - want->d->bad_images;
  if (rank == 0) ok = EXPECT_INT(dataset_bad_images(want->d) - want->d->bad_images, expected_bad) && ok;
  evaluation_free(&v);
  engine_close(&e);
  return ok;
}

static void expect_same_on_ranks(Expected *want) {
  Engine e;
  Err err;
  open_engine(&e, want->d);
  EXPECT(evaluate_run(&e, want->d, 1, NULL, &want->all, &err));
  EXPECT(want->all.found.n > 0);
  engine_close(&e);
  static const int world[] = {1, 2, 3, 7}; // 14 images in 5 batches or so: more ranks than batches, too
  for (int i = 0; i < COUNT(world); i++)
    for (int watched = 0; watched < 2; watched++) {
      want->watched = watched;
      EXPECT(true_on_ranks(world[i], evaluate_on_a_rank, want));
    }
  evaluation_free(&want->all);
}

TEST(evaluate_is_the_same_on_several_ranks) {
  Dataset d;
  if (!open_set(&d, small_set("evaluate-ranks"), &small_options)) return;
  expect_same_on_ranks(&(Expected){.d = &d});
  dataset_close(&d);
}

TEST(evaluate_leaves_out_what_a_rank_cannot_read) {
  const char *dir = small_set("evaluate-unread");
  char log[1024];
  snprintf(log, sizeof log, "%s/stderr", dir);
  Dataset d;
  if (!open_set(&d, dir, &small_options)) return;
  remove_image(dir, 1);
  remove_image(dir, 5);
  remove_image(dir, 6);
  int kept = quiet_begin(log);
  expect_same_on_ranks(&(Expected){.d = &d});
  quiet_end(kept);
  dataset_close(&d);
}
