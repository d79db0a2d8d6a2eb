// Inference over a data set: it stops between batches when it is told to, and images that cannot be read count neither
// among the detections nor in the ground truth.
#include <unistd.h>
#include "engine/evaluate.h"
#include "test/harness/child.h"
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

static void count_batch(void *context, const Dataset *d, const Batch *b, const Detections *found, double seconds) {
  (void)d;
  (void)found;
  (void)seconds;
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
  EXPECT(!evaluate_run(&e, &d, 1, &(Visitor){count_batch, &batches, stop_third_time}, &some, &err));
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
