// Catches evaluations that count unreadable images, depend on the number of ranks, or cannot be interrupted.
#include <math.h>
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

TEST(evaluate_stops_between_batches) {
  Dataset d;
  Engine e;
  if (!open_set(&d, small_set("stops"), &small_options)) return;
  open_engine(&e, &d);
  Evaluation some;
  asked = 0;
  Err err = {"what stood here"};
  EXPECT(!evaluate_run(&e, &d, 1, stop_third_time, &some, &err));
  EXPECT_STR(err.msg, "");
  EXPECT(some.images > 0 && some.images <= 2 * BATCH); // of two batches
  EXPECT_INT(engine_detecting(&e), 0);                 // none is left behind
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
  EXPECT_NEAR(s.of[EVAL_BBOX].stats[0], 1, 1e-12);
  EXPECT_NEAR(s.of[EVAL_SEGM].stats[0], 1, 1e-12);
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

// Annotations numbered anew: n → n % cycle.
static void renumber(const char *dir, int cycle) {
  char path[1024];
  size_t size;
  snprintf(path, sizeof path, "%s/annotations/instances_train.json", dir);
  char *text = file_read(path, &size, NULL), *at = text;
  CHECK(text);
  FILE *f = fopen(path, "w");
  CHECK(f);
  for (const char *const key = ",\"image_id\""; *at;) {
    char *end = at;
    const long id = strncmp(at, "\"id\":", 5) ? 0 : strtol(at + 5, &end, 10);
    if (end > at && !strncmp(end, key, strlen(key)))
      fprintf(f, "\"id\":%ld", id % cycle);
    else
      fwrite(at, 1, (size_t)((end = at + 1) - at), f);
    at = end;
  }
  CHECK(fclose(f) == 0);
  free(text);
}

// Ids from 0 and ids that come again: an evaluation finds and reports all objects as with ids from 1.
TEST(evaluate_scores_do_not_depend_on_annotation_ids) {
  static const int cycles[] = {1000, 30, 5}; // as they are; the last one of 30 has 0; each several times
  for (int i = 0; i < COUNT(cycles); i++) {
    const char *dir = small_set("annotation-ids");
    Dataset d;
    Evaluation v;
    Metrics m;
    EvaluationReport r = {0};
    Err err;
    renumber(dir, cycles[i]);
    if (!open_set(&d, dir, &small_options)) return;
    bool has_zero = false;
    for (int k = 0; k < d.coco.num_anns; k++) has_zero |= d.coco.anns[k].id == 0;
    EXPECT_INT(has_zero, i > 0);
    evaluation_begin(&v, &d, &(ModelConfig){0}, true);
    for (int k = 0; k < d.num_images; k++) v.read[k] = true;
    find_all(&d, &v);
    EXPECT(task_detection.score(&d, &v, &m, &err));
    EXPECT_NEAR(v.scores.of[EVAL_BBOX].stats[0], 1, 1e-12);
    EXPECT_NEAR(v.scores.of[EVAL_SEGM].stats[0], 1, 1e-12);
    EXPECT_INT(v.scores.of[EVAL_BBOX].duplicate_ids + v.scores.of[EVAL_BBOX].zero_ids, 0);
    task_detection.report(&d, &v, 0.5, &r);
    EXPECT_INT(confusion_right(&r.confusion), d.first_object[d.num_images]);
    EXPECT_INT(confusion_detections(&r.confusion), d.first_object[d.num_images]);
    report_free(&r);
    evaluation_free(&v);
    dataset_close(&d);
  }
}

// Objects that have a mask alone are scored by the boxes that training takes.
TEST(evaluate_boxes_are_the_masks_where_there_are_none) {
  const char *dir = small_set("no-boxes");
  char path[1024];
  snprintf(path, sizeof path, "%s/annotations/instances_train.json", dir);
  write_text(path, "{\"categories\":[{\"id\":3,\"name\":\"a\"}],\"images\":[{\"id\":1,\"file_name\":\"1.png\"},"
                   "{\"id\":2,\"file_name\":\"2.png\",\"height\":42,\"width\":60}],\"annotations\":["
                   "{\"id\":1,\"image_id\":1,\"category_id\":3,\"segmentation\":[[1,1,30,1,30,30,1,30]]},"
                   "{\"id\":2,\"image_id\":2,\"category_id\":3,\"segmentation\":[[20,10,50,10,50,40,20,40]]}]}");
  Dataset d;
  Evaluation v;
  Scores s;
  Err err;
  if (!open_set(&d, dir, &small_options)) return;
  EXPECT_INT(d.first_object[d.num_images], 2);
  evaluation_begin(&v, &d, &(ModelConfig){0}, true);
  for (int k = 0; k < d.num_images; k++) v.read[k] = true;
  find_all(&d, &v);
  EXPECT(evaluate_score(&d, &v, &s, &err));
  EXPECT_NEAR(s.of[EVAL_BBOX].stats[0], 1, 1e-12);
  EXPECT_NEAR(s.of[EVAL_SEGM].stats[0], 1, 1e-12);
  scores_free(&s);
  evaluation_free(&v);
  dataset_close(&d);
}

// Without an object to find no figure is a score, and the summary says why.
TEST(evaluate_says_why_there_is_no_score) {
  static const struct {
    const char *annotations, *says;
  } cases[] = {{"", "no AP: the 2 images have no annotations"},
               {"{\"id\":1,\"image_id\":1,\"category_id\":3,\"iscrowd\":1,\"bbox\":[1,1,30,30]},"
                "{\"id\":2,\"image_id\":2,\"category_id\":3,\"iscrowd\":1,\"bbox\":[1,1,30,30]},"
                "{\"id\":3,\"image_id\":2,\"category_id\":77,\"bbox\":[1,1,30,30]}",
                "no AP: the 3 annotations in 2 images include no object to score; crowds: 2 (set iscrowd to 0 if they "
                "are objects); unknown "
                "category: 1"}};
  for (int i = 0; i < COUNT(cases); i++) {
    const char *dir = small_set("no-objects");
    DatasetOptions options = small_options;
    Dataset d;
    Evaluation v;
    Metrics m;
    Err err;
    char path[1024];
    options.keep_empty = true;
    snprintf(path, sizeof path, "%s/annotations/instances_train.json", dir);
    char *text = xasprintf("{\"categories\":[{\"id\":3,\"name\":\"a\"}],\"images\":[{\"id\":1,\"file_name\":\"1.png\"},"
                           "{\"id\":2,\"file_name\":\"2.png\"}],\"annotations\":[%s]}",
                           cases[i].annotations);
    write_text(path, text);
    free(text);
    if (!open_set(&d, dir, &options)) return;
    evaluation_begin(&v, &d, &(ModelConfig){0}, true);
    for (int k = 0; k < d.num_images; k++) evaluation_add(&v, k, NULL, 0);
    EXPECT(task_detection.score(&d, &v, &m, &err));
    EXPECT_STR(m.summary, cases[i].says);
    EXPECT_INT(m.n, 2 * EVAL_STATS);
    for (int k = 0; k < m.n; k++) EXPECT(isnan(m.metric[k].value));
    evaluation_free(&v);
    dataset_close(&d);
  }
}

// ---- several ranks ----------------------------------------------------------------------------------------------

typedef struct Expected { // of one rank
  const Dataset *d;
  Evaluation all;
} Expected;

static bool same_result(const CocoResult *a, const CocoResult *b) {
  return a->image_id == b->image_id && a->category_id == b->category_id && a->score == b->score &&
         !memcmp(a->bbox, b->bbox, sizeof a->bbox) && a->has_bbox == b->has_bbox && a->has_segm == b->has_segm &&
         a->rle.h == b->rle.h && a->rle.w == b->rle.w && a->rle.n == b->rle.n &&
         !memcmp(a->rle.runs, b->rle.runs, (size_t)a->rle.n * sizeof *a->rle.runs);
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
  open_engine(&e, want->d);
  e.comm = comm;
  bool ok = EXPECT(evaluate_run(&e, want->d, 1, NULL, &v, &err));
  if (rank == 0)
    ok = EXPECT(same_evaluation(&v, want)) && ok;
  else
    ok = EXPECT(!v.images && !v.left_out && !v.found.n) && ok;
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
  for (int i = 0; i < COUNT(world); i++) EXPECT(true_on_ranks(world[i], evaluate_on_a_rank, want));
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
