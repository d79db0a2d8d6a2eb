// Catches checkpoints that lose state, resumed runs that differ, and foreign checkpoints that are accepted.
#include "base/alloc.h"
#include "engine/state.h"
#include "models/rcnn.h"
#include "models/torchvision.h"
#include "test/harness/small_engine.h"
#include "test/harness/test.h"
#include "weights/verify.h"

// ---- saving and loading ---------------------------------------------------------------------------------------------

// What the convolutions of training read has followed the last update.
static const char *const nothing[] = {NULL}; // of a run may change

static void expect_folds_up_to_date(Engine *e) {
  for (int i = 0; i < e->params.n; i++) {
    const Param *q = e->params.list[i];
    const Tensor *folded = &q->folded;
    if (!q->fold || q->plain) continue;
    Tensor before = *folded;
    before.data = memcpy(xmalloc(tensor_bytes(folded)), folded->data, tensor_bytes(folded));
    params_refresh(&e->params);
    EXPECT(same_values(folded, &before));
    free(before.data);
  }
}

// Three steps, a checkpoint, a fresh engine: from there on both take the same steps, to the bit.
static void check_resumed(NormType norm, const Optimizer *optimizer) {
  ModelConfig config = small_config(norm, CLASSES);
  Engine whole, resumed;
  small_engine_with(&whole, &config, optimizer);
  small_engine_with(&resumed, &config, optimizer);
  params_randomise(&whole.params, 1);
  params_randomise(&resumed.params, 2);
  for (int step = 0; step < 3; step++) EXPECT(small_step(&whole, step).finite);
  expect_folds_up_to_date(&whole);
  const char *path = small_save(&whole, norm_names[norm], true);
  params_refresh(&whole.params); // as loading does
  EXPECT_STR(small_load(&resumed, path, (LoadOptions){.momentum = true}).msg, "");
  expect_same_params(&whole, &resumed, true);
  for (int step = 3; step < 5; step++) {
    StepResult a = small_step(&whole, step), b = small_step(&resumed, step);
    EXPECT(a.finite && !memcmp(a.loss, b.loss, sizeof a.loss) && a.grad_norm == b.grad_norm);
  }
  expect_same_params(&whole, &resumed, true);
  engine_close(&whole);
  engine_close(&resumed);
}
TEST(state_resumed_run_is_the_same) {
  for (NormType norm = NORM_FROZEN_BN; norm <= NORM_SYNC_BN; norm++) check_resumed(norm, &(Optimizer){0});
  check_resumed(NORM_BN, &small_adam);
  check_resumed(NORM_BN, &(Optimizer){.ema = 0.25});
}

// The averages of three steps by their definition; they are what a checkpoint's weights are, and what evaluation
// computes with between two exchanges. Running statistics are not averaged.
TEST(state_of_averages) {
  const double decay[] = {2 / 11.0, 0.25, 0.25};
  ModelConfig config = small_config(NORM_BN, CLASSES);
  Engine e, loaded, resumed;
  small_engine_with(&e, &config, &(Optimizer){.ema = 0.25});
  small_engine_with(&resumed, &config, &(Optimizer){.ema = 0.25});
  small_engine(&loaded, &config);
  params_randomise(&e.params, 1);
  float *want = memcpy(xmalloc(params_average_bytes(&e.params)), e.params.master, params_average_bytes(&e.params));
  for (int step = 0; step < 3; step++) {
    EXPECT(small_step(&e, step).finite);
    const float *w = e.params.master, share = (float)(1 - decay[step]);
    for (size_t i = 0; i < e.params.trainable; i++) want[i] += share * (w[i] - want[i]);
  }
  EXPECT(!memcmp(e.params.average, want, params_average_bytes(&e.params)));
  const char *path = small_save(&e, "averages", true);
  EXPECT_STR(small_load(&loaded, path, (LoadOptions){0}).msg, "");
  EXPECT_STR(small_load(&resumed, path, (LoadOptions){0}).msg, ""); // fine-tuning: averages begin as the weights
  EXPECT(!memcmp(resumed.params.average, want, params_average_bytes(&e.params)));
  Params *p = &e.params;
  const float *first = p->list[p->order[0]]->master.data, trained = first[0], averaged = want[0];
  params_exchange_averages(p);
  expect_same_params(&e, &loaded, false);
  EXPECT(first[0] == averaged && trained != averaged);
  params_exchange_averages(p);
  EXPECT(first[0] == trained && !memcmp(p->average, want, params_average_bytes(p)));
  path = small_save(&loaded, "unaveraged", true);
  EXPECT(strstr(small_load(&e, path, (LoadOptions){.momentum = true}).msg, "missing unaveraged.backbone.body."));
  free(want);
  engine_close(&e);
  engine_close(&loaded);
  engine_close(&resumed);
}

// Its corrections by the number of updates, too; and SGD does not go on where Adam stood.
TEST(state_of_adam) {
  ModelConfig config = small_config(NORM_GN, CLASSES);
  Engine adam, sgd;
  small_engine_with(&adam, &config, &small_adam);
  small_engine(&sgd, &config);
  params_randomise(&adam.params, 1);
  for (int step = 0; step < 3; step++) EXPECT(small_step(&adam, step).finite);
  const float *state = adam.params.adam_state, want[ADAM_STATE] = {state[0], state[1], state[2]};
  EXPECT(state[0] == 3 && state[1] == (float)(1 - pow(0.9, 3)) && state[2] == (float)(1 - pow(0.999, 3)));
  const char *path = small_save(&adam, "adam", true);
  memset(adam.params.adam_state, 0, sizeof want);
  EXPECT_STR(small_load(&adam, path, (LoadOptions){.momentum = true}).msg, "");
  EXPECT(!memcmp(adam.params.adam_state, want, sizeof want));
  EXPECT_STR(small_load(&sgd, path, (LoadOptions){0}).msg, "");
  EXPECT(strstr(small_load(&sgd, path, (LoadOptions){.momentum = true}).msg,
                "its run used --optimizer adam or adamw: give the same --optimizer"));
  path = small_save(&sgd, "sgd", true);
  EXPECT(strstr(small_load(&adam, path, (LoadOptions){.momentum = true}).msg, "missing second_moment.backbone.body."));
  engine_close(&adam);
  engine_close(&sgd);
}

TEST(state_without_momentum) {
  ModelConfig config = small_config(NORM_GN, CLASSES);
  Engine saved, loaded;
  small_engine_random(&saved, &config, 1);
  small_engine(&loaded, &config);
  small_step(&saved, 0);
  const char *path = small_save(&saved, "weights", false);
  EXPECT_STR(small_load(&loaded, path, (LoadOptions){0}).msg, "");
  expect_same_params(&saved, &loaded, false);
  Err err = small_load(&loaded, path, (LoadOptions){.momentum = true});
  EXPECT(strstr(err.msg, "missing momentum.backbone.body.") != NULL);
  engine_close(&saved);
  engine_close(&loaded);
}

// ---- what the file says ---------------------------------------------------------------------------------------------

TEST(state_metadata) {
  ModelConfig config = small_config(NORM_GN, CLASSES), read;
  config.roi_aligned = true;
  config.rpn_beta = 0.1f;
  config.anchor_ratio[0] = 1 / 3.f;
  config.label_smoothing = 0.25f; // the last field
  Engine e;
  small_engine_random(&e, &config, 1);
  engine_set_scale(&e, (double[]){65536, 3, 0.25});
  const char *path = small_save(&e, "metadata", false);
  Checkpoint c;
  Category *category = NULL;
  RunState state;
  Err err = {""};
  EXPECT(ckpt_open(&c, path, &err) && state_config(&c, &read, &category, &err) && state_resume(&c, &state, &err));
  EXPECT_STR(err.msg, "");
  for (int i = 0; i < config_fields(); i++) {
    char want[256], got[256];
    config_get(&config, i, want, sizeof want);
    config_get(&read, i, got, sizeof got);
    EXPECT_STR(got, want);
  }
  for (int i = 0; i < CLASSES - 1; i++) {
    EXPECT_INT(category[i].id, 10 * i + 7);
    EXPECT_STR(category[i].name, e.category[i].name);
  }
  EXPECT(state.scale[0] == 65536 && state.scale[1] == 3 && state.scale[2] == 0.25);
  EXPECT_INT(state.step, 3);
  EXPECT_STR(state.run, "{\"seed\":1}");

  // Only the same model and the same options go on where this run stood.
  EXPECT(state_continues(&c, &config, "{\"seed\":1}", nothing, NULL, &err));
  EXPECT(!state_continues(&c, &config, "{\"seed\":12}", nothing, NULL, &err));
  EXPECT(strstr(err.msg, "it was made with \"seed\":1, but this run has \"seed\":12: "));
  config.max_size++;
  EXPECT(!state_continues(&c, &config, "{\"seed\":1}", nothing, NULL, &err));
  EXPECT(strstr(err.msg, "max_size = "));
  free(category);
  ckpt_close(&c);
  engine_close(&e);
}

static bool is_known(const char *key) {
  for (const char *const *known = verify_keys; *known; known++)
    if (!strcmp(*known, key)) return true;
  return !strcmp(key, "format") || !strncmp(key, "config.", 7);
}

// By each of its keys the reader knows that a file is ours, and needs digests.
TEST(state_is_known_by_every_key) {
  ModelConfig config = small_config(NORM_GN, CLASSES);
  Engine e;
  small_engine_with(&e, &config, &small_adam);
  RunState state = {.run = "{}", .trained_on = "[]"};
  const char *path = small_checkpoint("keys");
  Checkpoint c;
  Err err;
  state_take(&e, &state);
  CHECK(state_write(&e, &state, &(StateFile){.path = path, .momentum = true}, &err) && ckpt_open(&c, path, &err));
  EXPECT(c.has_digests && ckpt_find_meta(&c, "adam") && ckpt_find_meta(&c, "trained_on"));
  EXPECT_STR(ckpt_find_meta(&c, "format"), "maskrcnn.c 2");
  for (size_t i = 0; i < c.num_meta; i++)
    if (!EXPECT(is_known(c.meta[i].key))) printf("    %s\n", c.meta[i].key);
  ckpt_close(&c);
  engine_close(&e);
}

// A checkpoint that holds nothing but where a run stood; "" when it can be resumed.
static Err resume_at(const char *step, const char *scale) {
  const char *path = small_checkpoint("stood");
  CkptWriter w;
  Checkpoint c;
  RunState state;
  Err err = {""};
  CHECK(ckpt_begin(&w, path, &err));
  ckpt_meta(&w, "step", step);
  ckpt_meta(&w, "run", "{}");
  if (scale) ckpt_meta(&w, "loss_scale", scale);
  CHECK(ckpt_commit(&w, &err) && ckpt_open(&c, path, &err));
  EXPECT(state_resume(&c, &state, &err) == !*err.msg);
  ckpt_close(&c);
  return err;
}

TEST(state_resumes_at_whole_steps) {
  static const char *const steps[] = {"abc", "", "-5", "3.5", "7 ", "99999999999999999999"};
  static const char *const scales[] = {"1 2", "0 0 0", "-2 0 0", "nan 0 0", "inf 0 0", "1 0 nan"};
  EXPECT_STR(resume_at("0", NULL).msg, "");
  EXPECT_STR(resume_at("123456789012", "65536 3 1").msg, "");
  for (int i = 0; i < COUNT(steps); i++)
    EXPECT(strstr(resume_at(steps[i], NULL).msg, "' is not a whole number of at least 0; use an earlier checkpoint"));
  for (int i = 0; i < COUNT(scales); i++)
    EXPECT(strstr(resume_at("3", scales[i]).msg, "is not three numbers, the first above 0"));
}

// A field that is younger than the checkpoint has its default there.
TEST(state_continues_with_more_fields) {
  ModelConfig config;
  Err err = {""};
  CkptWriter w;
  Checkpoint c;
  const char *path = small_checkpoint("fields");
  EXPECT(config_init(&config, DEFAULT_MODEL, &err) && ckpt_begin(&w, path, &err));
  ckpt_meta(&w, "format", "maskrcnn.c 1");
  ckpt_meta(&w, "run", "{}");
  EXPECT(ckpt_commit(&w, &err) && ckpt_open(&c, path, &err));
  EXPECT_STR(err.msg, "");
  EXPECT(state_continues(&c, &config, "{}", nothing, NULL, &err));
  config.nms = 0.25f;
  EXPECT(!state_continues(&c, &config, "{}", nothing, NULL, &err) &&
         strstr(err.msg, "nms = 0.5, but this run's has 0.25"));
  ckpt_close(&c);
}

// A run of version 1.1 is not resumed, and the message names the version that does.
TEST(state_of_an_older_run) {
  ModelConfig config;
  Err err = {""};
  CkptWriter w;
  Checkpoint c;
  const char *path = small_checkpoint("older");
  CHECK(config_init(&config, DEFAULT_MODEL, &err) && ckpt_begin(&w, path, &err));
  ckpt_meta(&w, "run", "{\"seed\":1,\"recipe\":\"auto\"}");
  CHECK(ckpt_commit(&w, &err) && ckpt_open(&c, path, &err));
  EXPECT(!state_continues(&c, &config, "{\"seed\":1}", nothing, NULL, &err));
  EXPECT(
      strstr(err.msg, "it is of a run of version 1.1 or older: continue it with version 1.2, or start a new run in "));
  ckpt_close(&c);
}

// Weights of elsewhere: a file without this program's metadata.
TEST(state_of_another_program) {
  const char *path = small_checkpoint("foreign");
  CkptWriter w;
  Checkpoint c;
  Err err = {""};
  CHECK(ckpt_begin(&w, path, &err));
  ckpt_tensor(&w, "weight", CKPT_F32, 1, (int64_t[]){2});
  ckpt_data(&w, (float[]){1, 2});
  CHECK(ckpt_commit(&w, &err) && ckpt_open(&c, path, &err));
  ModelConfig config;
  Category *category;
  RunState state;
  EXPECT(!state_config(&c, &config, &category, &err));
  EXPECT(strstr(err.msg, "not a Faster or Mask R-CNN or a supported classification network of torchvision (found no "
                         "backbone.body.conv1.weight, layer1.0.conv1.weight, features.0.weight or conv1.conv.weight "
                         "with the rest of its network); build/inspect lists the tensors") != NULL);
  EXPECT(!state_resume(&c, &state, &err));
  EXPECT(strstr(err.msg, "--resume") != NULL);
  ckpt_close(&c);
}

// ---- another model --------------------------------------------------------------------------------------------------

TEST(state_of_another_model) {
  ModelConfig config = small_config(NORM_GN, CLASSES), wider = config;
  wider.box_dim = 20;
  Engine saved, other;
  small_engine_random(&saved, &config, 1);
  const char *path = small_save(&saved, "model", false);
  small_engine(&other, &wider);
  Err err = small_load(&other, path, (LoadOptions){0});
  EXPECT(strstr(err.msg, "misshaped roi_heads.box_head.fc6.weight (F32 [") != NULL);
  EXPECT(strstr(err.msg, "; tensors that do not match: ") != NULL);
  engine_close(&other);

  ModelConfig normed = small_config(NORM_BN, CLASSES);
  small_engine(&other, &normed);
  err = small_load(&other, path, (LoadOptions){0});
  EXPECT(strstr(err.msg, "missing backbone.body.bn1.running_mean") != NULL);
  engine_close(&other);
  engine_close(&saved);
}

// Faster R-CNN takes a Mask R-CNN's weights but for the mask head; the other way, missing tensors are named.
TEST(state_of_a_detector_with_or_without_masks) {
  const ModelConfig masks = small_config(NORM_GN, CLASSES);
  ModelConfig boxes = masks, chosen;
  Engine saved, other;
  Checkpoint c;
  const char *names = "";
  Err err = {""};
  CHECK(model_choose(&boxes, "fasterrcnn", &err));
  small_engine_random(&saved, &masks, 1);
  const char *path = small_save(&saved, "masks", false);
  small_engine(&other, &boxes);
  CHECK(ckpt_open(&c, path, &err));
  EXPECT(state_config_for(&c, &boxes, &chosen, &err) && chosen.model == boxes.model && chosen.box_dim == boxes.box_dim);
  EXPECT_STR(small_load(&other, path, (LoadOptions){0}).msg, "");
  EXPECT_INT(state_ignored(&other, &c, &names), saved.params.n - other.params.n);
  EXPECT_STR(names, "roi_heads.mask_");
  ckpt_close(&c);
  path = small_save(&other, "boxes", false);
  err = small_load(&saved, path, (LoadOptions){0});
  EXPECT(strstr(err.msg, "missing roi_heads.mask_head.0.0.weight") && !strstr(err.msg, "box_head"));
  engine_close(&other);
  engine_close(&saved);
}

// One value that is no number, in the weights or, for who resumes, in the momentum, and the tensor is named.
TEST(state_that_diverged) {
  static const char head[] = "roi_heads.box_predictor.cls_score.bias";
  static const float bad[] = {NAN, INFINITY, -INFINITY};
  ModelConfig config = small_config(NORM_GN, CLASSES);
  Engine saved, loaded;
  small_engine(&saved, &config);
  small_engine(&loaded, &config);
  for (int i = 0; i < COUNT(bad); i++) {
    params_randomise(&saved.params, 1);
    ((float *)params_find(&saved.params, head)->master.data)[1] = bad[i];
    const char *path = small_save(&saved, "diverged", true);
    Err err = small_load(&loaded, path, (LoadOptions){0});
    EXPECT(strstr(err.msg, "earlier checkpoint; tensors: 1, roi_heads.box_predictor.cls_score.bias"));
    EXPECT_STR(small_load(&loaded, path, (LoadOptions){.reset_heads = true}).msg, ""); // which takes no head
  }
  params_randomise(&saved.params, 1);
  ((float *)params_find(&saved.params, head)->momentum.data)[0] = NAN;
  const char *path = small_save(&saved, "diverged", true);
  EXPECT_STR(small_load(&loaded, path, (LoadOptions){0}).msg, "");
  Err err = small_load(&loaded, path, (LoadOptions){.momentum = true});
  EXPECT(strstr(err.msg, "tensors: 1, momentum.roi_heads.box_predictor.cls_score.bias") != NULL);
  engine_close(&saved);
  engine_close(&loaded);
}

// Another number of classes: what depends on it keeps its initialisation, the rest is loaded.
TEST(state_reset_heads) {
  ModelConfig config = small_config(NORM_GN, CLASSES), more = small_config(NORM_GN, CLASSES + 3);
  Engine saved, other, fresh;
  small_engine_random(&saved, &config, 1);
  small_engine_random(&other, &more, 2);
  small_engine_random(&fresh, &more, 2);
  const char *path = small_save(&saved, "heads", false);
  EXPECT_STR(small_load(&other, path, (LoadOptions){.reset_heads = true}).msg, "");
  int heads = 0;
  for (int i = 0; i < other.params.n; i++) {
    const Param *p = other.params.list[i];
    bool head = strstr(p->name, "box_predictor.") || strstr(p->name, "mask_fcn_logits.");
    const Param *want = params_find(head ? &fresh.params : &saved.params, p->name);
    EXPECT(same_values(&p->master, &want->master));
    heads += head;
  }
  EXPECT_INT(heads, 6);
  Err err = small_load(&other, path, (LoadOptions){0});
  EXPECT(strstr(err.msg, "roi_heads.box_predictor.cls_score.weight") != NULL);
  EXPECT(strstr(err.msg, "; tensors that do not match: 6, ") != NULL);
  err = small_load(&saved, small_save(&other, "more-heads", false), (LoadOptions){0}); // larger ones fit no better
  EXPECT(strstr(err.msg, "; tensors that do not match: 6, ") != NULL);
  engine_close(&saved);
  engine_close(&other);
  engine_close(&fresh);
}

// ---- torchvision's weights ------------------------------------------------------------------------------------------

// As torchvision called them in 2019, and as DataParallel calls them.
static void rename_to_2019(const char *name, char to[256]) {
  int i, used = 0;
  char last[16];
  if (sscanf(name, "backbone.fpn.inner_blocks.%d.0.%15s", &i, last) == 2)
    snprintf(to, 256, "module.backbone.fpn.inner_blocks.%d.%s", i, last);
  else if (sscanf(name, "backbone.fpn.layer_blocks.%d.0.%15s", &i, last) == 2)
    snprintf(to, 256, "module.backbone.fpn.layer_blocks.%d.%s", i, last);
  else if (sscanf(name, "roi_heads.mask_head.%d.0.%15s", &i, last) == 2)
    snprintf(to, 256, "module.roi_heads.mask_head.mask_fcn%d.%s", i + 1, last);
  else if (sscanf(name, "rpn.head.conv.0.0.%n%15s", &used, last) == 1)
    snprintf(to, 256, "module.rpn.head.conv.%s", name + used);
  else
    snprintf(to, 256, "module.%s", name);
}

static void rename_to_classifier(const char *name, char to[256]) {
  static const char body[] = "backbone.body.";
  bool ours = !strncmp(name, body, sizeof body - 1);
  snprintf(to, 256, "%s", ours ? name + sizeof body - 1 : "");
  if (!strcmp(name, "rpn.head.conv.0.0.bias")) strcpy(to, "fc.bias"); // any tensor will do: it is dropped
}

static bool load_torchvision(Engine *e, const char *path, ModelConfig *config, Err *err) {
  Checkpoint c;
  if (!EXPECT(state_open(&c, path, err))) return false;
  bool ok = EXPECT(torchvision_config(&c, config, err)) && state_load(e, &c, &(LoadOptions){0}, err);
  ckpt_close(&c);
  return ok;
}

// The older names, no metadata: the same values, and the same model as far as tensors tell.
static void check_torchvision(NormType norm) {
  ModelConfig config = small_config(norm, CLASSES), told;
  config.width = config.norm_groups = 32; // no tensor tells the groups
  Engine saved, loaded;
  Err err = {""};
  small_engine_random(&saved, &config, 1);
  small_engine_random(&loaded, &config, 2);
  const char *path = small_save_bare(&saved, "torchvision", rename_to_2019);
  if (!EXPECT(load_torchvision(&loaded, path, &told, &err))) printf("    %s\n", err.msg);
  expect_same_params(&saved, &loaded, false);
  EXPECT_INT(told.depth, config.depth);
  EXPECT_INT(told.width, config.width);
  EXPECT_INT(told.norm, norm);
  EXPECT_INT(told.fpn_channels, config.fpn_channels);
  EXPECT_INT(told.box_dim, config.box_dim);
  EXPECT_INT(told.box_pool, config.box_pool);
  EXPECT_INT(told.mask_dim, config.mask_dim);
  EXPECT_INT(told.mask_layers, config.mask_layers);
  EXPECT_INT(told.classes, config.classes);
  EXPECT(told.norm_eps == (norm == NORM_FROZEN_BN ? 0 : 1e-5f));
  engine_close(&saved);
  engine_close(&loaded);
}
TEST(state_of_torchvision) {
  check_torchvision(NORM_FROZEN_BN);
  check_torchvision(NORM_GN);
}

// A ResNet for classification fills the backbone and leaves the rest as it was.
TEST(state_of_a_classifier) {
  ModelConfig config = small_config(NORM_FROZEN_BN, CLASSES), told;
  Engine saved, loaded, fresh;
  Err err = {""};
  small_engine_random(&saved, &config, 1);
  small_engine_random(&loaded, &config, 2);
  small_engine_random(&fresh, &config, 2);
  const char *path = small_save_bare(&saved, "classifier", rename_to_classifier);
  if (!EXPECT(load_torchvision(&loaded, path, &told, &err))) printf("    %s\n", err.msg);
  EXPECT(told.classes == 0 && told.depth == config.depth && told.norm == NORM_FROZEN_BN && told.norm_eps == 1e-5f);
  for (int i = 0; i < loaded.params.n; i++) {
    const Param *p = loaded.params.list[i];
    bool body = !strncmp(p->name, "backbone.body.", 14);
    EXPECT(same_values(&p->master, &params_find(body ? &saved.params : &fresh.params, p->name)->master));
  }
  Checkpoint c;
  Category *category;
  if (EXPECT(state_open(&c, path, &err))) {
    EXPECT(
        !state_config(&c, &told, &category, &err) &&
        strstr(
            err.msg,
            "it holds a ResNet backbone without detection heads; train a model from it first, with ./train --weights"));
    ckpt_close(&c);
  }
  engine_close(&saved);
  engine_close(&loaded);
  engine_close(&fresh);
}

static void rename_to_odd(const char *name, char to[256]) {
  bool body = !strncmp(name, "backbone.body.layer", 19);
  snprintf(to, 256, "%s%s", body ? "odd." : "", name);
}

// Of many names, the first ten of each list and how many there are in all.
TEST(state_names_what_does_not_fit) {
  ModelConfig config = small_config(NORM_GN, CLASSES);
  Engine e;
  Err err = {""};
  small_engine_random(&e, &config, 1);
  const char *path = small_save_bare(&e, "odd", rename_to_odd);
  err = small_load(&e, path, (LoadOptions){0});
  int body = 0, missing = 0, unexpected = 0;
  for (int i = 0; i < e.params.n; i++) {
    char part[256];
    bool layer = !strncmp(e.params.list[i]->name, "backbone.body.layer", 19);
    body += layer;
    snprintf(part, sizeof part, " %s,", e.params.list[i]->name);
    missing += strstr(err.msg, part) != NULL;
    snprintf(part, sizeof part, " odd.%s,", e.params.list[i]->name);
    unexpected += strstr(err.msg, part) != NULL;
  }
  EXPECT(body > 10);
  EXPECT_INT(missing, 10);
  EXPECT_INT(unexpected, 10);
  char all[64];
  snprintf(all, sizeof all, "; tensors that do not match: %d, ", 2 * body);
  EXPECT(strstr(err.msg, all) != NULL);
  // Near the beginning, where a caller's 512 bytes hold it.
  const char *advice = strstr(err.msg, "build/inspect lists the file's tensors; choose --model and --norm to match");
  EXPECT(advice && advice - err.msg < 200);
  engine_close(&e);
}

// BatchNorm2d's counter goes on from where it stood; other norms have none.
TEST(state_counts_batches) {
  for (NormType norm = NORM_FROZEN_BN; norm <= NORM_SYNC_BN; norm++) {
    ModelConfig config = small_config(norm, CLASSES);
    Engine e;
    small_engine_random(&e, &config, 1);
    small_step(&e, 0);
    EXPECT_STR(small_load(&e, small_save(&e, "batches", false), (LoadOptions){0}).msg, "");
    small_step(&e, 1);
    Checkpoint c;
    Err err;
    if (!EXPECT(ckpt_open(&c, small_save(&e, "batches", false), &err))) return;
    const CkptTensor *t = ckpt_find(&c, "backbone.body.layer1.0.bn1.num_batches_tracked");
    EXPECT(config_batch_norm(&config) ? t && t->type == CKPT_I64 && t->ndim == 0 && *(const int64_t *)t->data == 2
                                      : !t);
    ckpt_close(&c);
    engine_close(&e);
  }
}
