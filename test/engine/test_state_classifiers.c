// Catches pretrained classifier weights that load wrongly, or load into a net that they do not fit.
#include "engine/state.h"
#include "models/torchvision.h"
#include "test/harness/small_engine.h"
#include "test/harness/test.h"

static ModelConfig classifier_config(const char *variant) {
  ModelConfig c;
  CHECK(config_init(&c, variant, NULL));
  c.classes = CLASSES;
  c.width = 16;
  c.dense = 8;
  return c;
}

// torchvision's files of its classifiers tell which they are.
TEST(state_of_torchvisions_classifiers) {
  static const char *const variants[] = {"alexnet", "vgg11", "googlenet", "resnet18", "resnet50"};
  for (int v = 0; v < COUNT(variants); v++) {
    ModelConfig config = classifier_config(variants[v]), told, named;
    if (!strcmp(variants[v], "alexnet") || !strcmp(variants[v], "googlenet")) config.width = 64; // they have one
    config.aux_weight = 0;
    Engine saved, loaded;
    Err err = {""};
    small_engine_random(&saved, &config, 1);
    small_engine_random(&loaded, &config, 2);
    const char *path = small_save_bare(&saved, "net", NULL);
    Checkpoint c;
    Category *category = NULL;
    if (EXPECT(state_open(&c, path, &err))) {
      if (!EXPECT(state_config(&c, &told, &category, &err))) printf("    %s\n", err.msg);
      EXPECT_INT(told.model, config.model);
      EXPECT_INT(told.depth, config.depth);
      EXPECT_INT(told.classes, CLASSES);
      EXPECT_INT(told.width, config.width);
      if (category) EXPECT_STR(category[CLASSES - 1].name, "class 3");
      if (!EXPECT(state_load(&loaded, &c, &(LoadOptions){0}, &err))) printf("    %s\n", err.msg);
      expect_same_params(&saved, &loaded, false);
      named = classifier_config("vgg16"); // of another net: as it was named, and what does not fit is named, too
      EXPECT(state_config_for(&c, &named, &told, &err) && told.model == named.model && told.classes == 0);
      free(category);
      ckpt_close(&c);
    }
    engine_close(&saved);
    engine_close(&loaded);
  }
}
_Static_assert(CLASSES == 4, "the last is class 3");

typedef struct Bare {
  const char *name;
  int64_t dims[4];
} Bare;

static void expect_unknown(const Bare *tensor, int n, const char *says) {
  const char *path = small_checkpoint("unknown");
  CkptWriter w;
  Checkpoint c;
  ModelConfig told;
  Err err = {""};
  static const float zeros[64 * 64];
  CHECK(ckpt_begin(&w, path, &err));
  for (int i = 0; i < n; i++) ckpt_tensor(&w, tensor[i].name, CKPT_F32, 4, tensor[i].dims);
  for (int i = 0; i < n; i++) ckpt_data(&w, zeros);
  CHECK(ckpt_commit(&w, &err));
  if (!EXPECT(state_open(&c, path, &err))) return;
  if (!EXPECT(!state_config(&c, &told, NULL, &err) && strstr(err.msg, says))) printf("    %s\n", err.msg);
  ckpt_close(&c);
}

// Kin of ours: names of tensors are those of ResNet-18 and VGG-11, what they compute is not.
TEST(state_of_torchvisions_that_are_not_ours) {
  Bare resnet[] = {{"conv1.weight", {4, 1, 7, 7}},          {"layer1.0.conv1.weight", {4, 4, 3, 3}},
                   {"layer1.0.conv2.weight", {4, 4, 3, 3}}, {"layer3.0.conv1.weight", {1, 1, 1, 1}},
                   {"layer3.1.conv1.weight", {1, 1, 1, 1}}, {"fc.weight", {2, 4, 1, 1}}};
  resnet[2].dims[0] = resnet[2].dims[1] = 8; // wide
  expect_unknown(resnet, COUNT(resnet), "no wide ResNets or ResNeXts");
  resnet[2].dims[0] = 4;
  resnet[2].dims[1] = 1; // four groups
  expect_unknown(resnet, COUNT(resnet), "no wide ResNets or ResNeXts");
  const Bare vgg[] = {{"features.0.weight", {4, 1, 3, 3}},
                      {"features.1.weight", {4, 1, 1, 1}}, // of batch norm
                      {"features.18.weight", {1, 1, 1, 1}},
                      {"classifier.6.weight", {2, 4, 1, 1}}};
  expect_unknown(vgg, COUNT(vgg),
                 "not a Faster or Mask R-CNN or a supported classification network of torchvision (found no "
                 "backbone.body.conv1.weight, layer1.0.conv1.weight, features.0.weight or conv1.conv.weight with the "
                 "rest of its network); build/inspect lists the tensors");
}

TEST(state_of_another_net_names_what_does_not_fit) {
  ModelConfig resnet = classifier_config("resnet18"), vgg = classifier_config("vgg11");
  Engine saved, loaded;
  Err err = {""};
  small_engine_random(&saved, &resnet, 1);
  small_engine(&loaded, &vgg);
  Checkpoint c;
  if (EXPECT(state_open(&c, small_save_bare(&saved, "other", NULL), &err))) {
    EXPECT(!state_load(&loaded, &c, &(LoadOptions){0}, &err));
    EXPECT(strstr(err.msg, "the weights do not fit the model: "));
    EXPECT(strstr(err.msg, "missing features.0.weight"));
    EXPECT(!strchr(err.msg, '\n'));
    ckpt_close(&c);
  }
  engine_close(&saved);
  engine_close(&loaded);
}

// A ResNet that was trained here, or torchvision's with its head, begins a detector; another net does not.
TEST(state_backbone_of_a_trained_classifier) {
  for (int ours = 0; ours < 2; ours++) {
    ModelConfig resnet = classifier_config("resnet18"), detector = small_config(NORM_FROZEN_BN, CLASSES), told;
    detector.depth = 18;
    detector.width = 16;
    Engine saved, loaded, fresh;
    Err err = {""};
    small_engine_random(&saved, &resnet, 1);
    small_engine_random(&loaded, &detector, 2);
    small_engine_random(&fresh, &detector, 2);
    const char *path = ours ? small_save(&saved, "classifier", false) : small_save_bare(&saved, "backbone", NULL);
    Checkpoint c;
    if (EXPECT(state_open(&c, path, &err))) {
      if (!EXPECT(state_config_for(&c, &detector, &told, &err))) printf("    %s\n", err.msg);
      EXPECT(told.model == 0 && told.depth == 18 && told.width == 16 && told.classes == 0);
      EXPECT(told.norm == NORM_FROZEN_BN && told.norm_eps == 1e-5f);
      EXPECT(state_holds_backbone(&c, loaded.model) && !state_holds_backbone(&c, saved.model));
      if (!EXPECT(state_load(&loaded, &c, &(LoadOptions){0}, &err))) printf("    %s\n", err.msg);
      ckpt_close(&c);
    }
    for (int i = 0; i < loaded.params.n; i++) {
      const Param *p = loaded.params.list[i];
      const bool body = !strncmp(p->name, "backbone.body.", 14);
      const Param *want = body ? params_find(&saved.params, p->name + 14) : params_find(&fresh.params, p->name);
      EXPECT(want && same_values(&p->master, &want->master));
    }
    engine_close(&saved);
    engine_close(&loaded);
    engine_close(&fresh);
  }
}

TEST(state_backbone_is_a_resnet) {
  ModelConfig vgg = classifier_config("vgg11"), detector = small_config(NORM_FROZEN_BN, CLASSES), told;
  Engine saved;
  Err err = {""};
  small_engine(&saved, &vgg);
  Checkpoint c;
  if (EXPECT(state_open(&c, small_save(&saved, "vgg", false), &err))) {
    EXPECT(!state_config_for(&c, &detector, &told, &err));
    EXPECT_STR(err.msg, "its model, vgg, cannot be a detector's backbone; use a ResNet's weights");
    ckpt_close(&c);
  }
  engine_close(&saved);
}
