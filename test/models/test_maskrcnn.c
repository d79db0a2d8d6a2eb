// Catches Mask R-CNN nodes that use memory they do not declare, and images without objects that break a step.
#include <omp.h>
#include "test/harness/isolation.h"
#include "test/harness/maskrcnn_trial.h"
#include "test/harness/net.h"

// ---- bits -----------------------------------------------------------------------------------------------------------

// Two walks are the same when the loss and every gradient are.
static void expect_same_walk(MaskrcnnTrial *m, Use use, const double *loss, const double *gradient, size_t n) {
  size_t again;
  double *now = trial_train(m, use, &again);
  EXPECT_INT(memcmp(trial_losses(&m->use[use]), loss, LOSSES * sizeof *loss), 0);
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

static void check_bits(MaskrcnnTrial *m, bool objects) {
  size_t n;
  int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  double *gradient = trial_train(m, TRAIN, &n), loss[LOSSES];
  memcpy(loss, trial_losses(&m->use[TRAIN]), sizeof loss);
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

static void check_detections(const MaskrcnnTrial *m, int image) {
  const Network *r = &m->use[INFER];
  const Boxes *d = &rcnn_of(r)->detections->boxes;
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

static void check_inference(MaskrcnnTrial *m) {
  Graph *poisoned_graph = &m->use[INFER_POISONED].graph;
  const Rcnn *plain = rcnn_of(&m->use[INFER]), *poisoned = rcnn_of(&m->use[INFER_POISONED]);
  const Boxes *a = &plain->detections->boxes, *b = &poisoned->detections->boxes;
  graph_forward(&m->use[INFER].graph);
  int masks = 0;
  for (int i = 0; i < a->groups; i++) {
    check_detections(m, i);
    masks += a->count[i];
  }
  EXPECT_INT(*plain->objects->rois.count, masks);
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
  MaskrcnnTrial m;
  trial_open(&m, config, 2, (int[]){CAPACITY, 1});
  size_t n;
  double *gradient = trial_train(&m, TRAIN, &n), loss[LOSSES];
  memcpy(loss, trial_losses(&m.use[TRAIN]), sizeof loss);
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
  trial_close(&m);
}

TEST(model_nodes_declare_all) {
  ModelConfig c = synthetic_config(CANVAS_H, CANVAS_W, CLASSES);
  check_declarations(&c);
  c.full_masks = true;
  check_declarations(&c);
}
TEST_TIER(model_nodes_declare_all_conventions, 1) {
  for (Conventions r = CONVENTIONS_TORCHVISION; r <= CONVENTIONS_MLPERF; r++) {
    ModelConfig c = trial_conventions(r);
    check_declarations(&c);
  }
  ModelConfig c = trial_r50(NORM_BN);
  check_declarations(&c);
}

// Batches with images that hold objects, none, or are not there at all.
static void check_batches(const ModelConfig *config) {
  static const int batches[][MAX_IMAGES] = {
      {CAPACITY, 1, 2}, {2, 0, 1}, {SYNTHETIC_EMPTY, 3, 0}, {0, SYNTHETIC_EMPTY, SYNTHETIC_EMPTY}};
  MaskrcnnTrial m;
  trial_open(&m, config, MAX_IMAGES, batches[0]);
  for (int i = 0; i < COUNT(batches); i++) {
    trial_feed(&m, MAX_IMAGES, batches[i]);
    bool objects = false;
    for (int j = 0; j < MAX_IMAGES; j++) objects |= batches[i][j] > 0;
    check_bits(&m, objects);
    check_inference(&m);
  }
  trial_close(&m);
}

TEST(model_batches) {
  ModelConfig c = synthetic_config(CANVAS_H, CANVAS_W, CLASSES);
  check_batches(&c);
}
TEST_TIER(model_batches_r50, 1) {
  for (NormType norm = NORM_FROZEN_BN; norm <= NORM_SYNC_BN; norm++) {
    ModelConfig c = trial_r50(norm);
    check_batches(&c);
  }
}

// Nothing at all to learn from: every loss and gradient is 0, and nothing is found.
TEST(model_empty_batch) {
  ModelConfig c = synthetic_config(CANVAS_H, CANVAS_W, CLASSES);
  MaskrcnnTrial m;
  trial_open(&m, &c, 1, (int[]){SYNTHETIC_EMPTY});
  size_t n;
  double *gradient = trial_train(&m, TRAIN_POISONED, &n);
  for (int i = 0; i < LOSSES; i++) EXPECT(trial_losses(&m.use[TRAIN_POISONED])[i] == 0);
  bool zero = true;
  for (size_t i = 0; i < n; i++) zero &= gradient[i] == 0;
  EXPECT(zero);
  graph_forward(&m.use[INFER_POISONED].graph);
  EXPECT_INT(*rcnn_of(&m.use[INFER_POISONED])->detections->boxes.count, 0);
  free(gradient);
  trial_close(&m);
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
    MaskrcnnTrial m;
    config.full_masks = full;
    trial_open(&m, &config, COUNT(objects), objects);
    size_t n;
    double *gradients = trial_train(&m, TRAIN_POISONED, &n);
    for (size_t i = 0; i < n; i++) EXPECT(isfinite(gradients[i]));
    EXPECT(isfinite(trial_loss(&m.use[TRAIN_POISONED])));
    free(gradients);
    const Rcnn *t = rcnn_of(&m.use[TRAIN_POISONED]);
    const Rois *found = &t->objects->rois;
    const ObjectTargets *target = &t->object_targets->object_targets;
    rois[full] = *t->rois->rois.count;
    label[full] = trial_copy(t->box_targets->box_targets.label, (size_t)rois[full] * sizeof(int));
    if (full) EXPECT_INT(*found->count, 2 * per_image);
    for (int i = 0; full && i < *found->count; i++) {
      EXPECT_INT(found->image[i], i < per_image ? 0 : 2);
      EXPECT(target->label[i] >= 1 && target->label[i] < CLASSES);
      EXPECT_INT(target->truth[i] / CAPACITY, found->image[i]);
    }
    trial_close(&m);
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
  MaskrcnnTrial m;
  trial_open(&m, &c, 2, (int[]){CAPACITY, 0});
  check_bits(&m, true);
  check_inference(&m);
  trial_close(&m);
}

// ---- validation -----------------------------------------------------------------------------------------------------

// Its losses are those of training to the bit where no norm has statistics of the batch; nothing of the model changes.
static void check_validation(NormType norm) {
  const ModelConfig config = trial_r50(norm);
  MaskrcnnTrial m;
  trial_open(&m, &config, 2, (int[]){3, 2});
  const size_t bytes = m.params.elements * sizeof(double);
  double *before = trial_copy(m.params.master, bytes);
  graph_forward(&m.use[VALIDATE].graph);
  graph_forward(&m.use[VALIDATE_POISONED].graph);
  EXPECT(!memcmp(before, m.params.master, bytes));
  graph_forward(&m.use[TRAIN].graph);
  EXPECT_INT(memcmp(before, m.params.master, bytes) != 0, norm == NORM_BN);
  const double *validation = trial_losses(&m.use[VALIDATE]), *training = trial_losses(&m.use[TRAIN]);
  for (int i = 0; i < LOSSES; i++) {
    EXPECT(isfinite(validation[i]) && validation[i] > 0);
    EXPECT_NEAR(trial_losses(&m.use[VALIDATE_POISONED])[i], validation[i], 0);
    if (norm != NORM_BN) EXPECT_NEAR(validation[i], training[i], 0);
  }
  if (norm == NORM_BN) EXPECT(validation[LOSS_OBJECTNESS] != training[LOSS_OBJECTNESS]);
  free(before);
  trial_close(&m);
}
TEST(maskrcnn_validation_has_the_losses_of_training) { check_validation(NORM_GN); }
TEST(maskrcnn_validation_keeps_running_statistics) { check_validation(NORM_BN); }
