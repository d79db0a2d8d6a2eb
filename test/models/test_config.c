// Recipes: what each sets, that nothing of another one is left, and that the text of a field gives it back.
#include <float.h>
#include "models/config.h"
#include "test/harness/test.h"

static const char *const models[] = {"tiny", "maskrcnn-r18-fpn", "maskrcnn-r50-fpn", "maskrcnn-r152-fpn"};

// The first field in which two configurations differ, "" for none.
static const char *difference(const ModelConfig *a, const ModelConfig *b) {
  for (int i = 0; i < config_fields(); i++) {
    char text[2][256];
    config_get(a, i, text[0], sizeof text[0]);
    config_get(b, i, text[1], sizeof text[1]);
    if (strcmp(text[0], text[1])) return config_field_name(i);
  }
  return "";
}

static ModelConfig with_recipe(const char *model, Recipe recipe) {
  ModelConfig c;
  CHECK(config_init(&c, model, NULL));
  config_recipe(&c, recipe);
  return c;
}

TEST(config_recipes_replace_one_another) {
  for (int m = 0; m < COUNT(models); m++) {
    ModelConfig plain;
    CHECK(config_init(&plain, models[m], NULL));
    for (Recipe to = 0; recipe_names[to]; to++) {
      ModelConfig want = with_recipe(models[m], to);
      if (to == RECIPE_TORCHVISION) EXPECT_STR(difference(&want, &plain), "");
      for (Recipe from = 0; recipe_names[from]; from++) {
        ModelConfig c = with_recipe(models[m], from);
        config_recipe(&c, to);
        EXPECT_STR(difference(&c, &want), "");
      }
      Err err = {""};
      EXPECT(config_check(&want, &err));
      EXPECT_STR(err.msg, "");
    }
  }
}

TEST(config_fields_survive_as_text) {
  for (Recipe r = 0; recipe_names[r]; r++) {
    ModelConfig c = with_recipe("maskrcnn-r50-fpn", r), back;
    CHECK(config_init(&back, "tiny", NULL));
    for (int i = 0; i < config_fields(); i++) {
      char text[256];
      config_get(&c, i, text, sizeof text);
      EXPECT(config_set(&back, config_field_name(i), text, NULL));
    }
    EXPECT_STR(difference(&back, &c), "");
    EXPECT(back.rpn_min_size == c.rpn_min_size); // FLT_MIN to the bit
  }
  ModelConfig c = with_recipe("tiny", RECIPE_TORCHVISION);
  Err err;
  EXPECT(!config_set(&c, "mask_source", "bitmaps", &err) && strstr(err.msg, "mask_source = 'bitmaps'"));
  EXPECT(!config_set(&c, "anchor_kind", "2", &err));
}

// What a name in a checkpoint says, against the numbers of the three sources.
TEST(config_of_each_recipe) {
  ModelConfig t = with_recipe("maskrcnn-r50-fpn", RECIPE_TORCHVISION),
              d = with_recipe("maskrcnn-r50-fpn", RECIPE_DETECTRON2),
              m = with_recipe("maskrcnn-r50-fpn", RECIPE_MLPERF);
  EXPECT(t.rpn_post_nms_train == 2000 && d.rpn_post_nms_train == 1000 && m.rpn_post_nms_train == 1000);
  EXPECT(!t.rpn_post_nms_by_batch && !d.rpn_post_nms_by_batch && m.rpn_post_nms_by_batch);
  EXPECT(t.train_sizes == 1 && d.train_sizes == 6 && m.train_sizes == 1);
  EXPECT(t.train_size_min == 800 && d.train_size_min == 640 && m.train_size_min == 800);
  EXPECT(t.norm_eps == 1e-5f && d.norm_eps == 1e-5f && m.norm_eps == 0);
  EXPECT(t.rpn_beta == 1 / 9.f && d.rpn_beta == 0 && m.rpn_beta == 1 / 9.f);
  EXPECT(t.box_beta == 1 / 9.f && d.box_beta == 0 && m.box_beta == 1);
  EXPECT(t.mean[0] == 0.485f && d.mean[0] == 103.53f && m.mean[0] == 102.9801f);
  EXPECT(!t.stride_in_1x1 && d.stride_in_1x1 && m.stride_in_1x1);
  m.norm = NORM_GN;
  config_recipe(&m, RECIPE_MLPERF);
  EXPECT(m.norm_eps == 1e-5f); // of its group norm
}

TEST(config_refuses_what_cannot_be) {
  Err err;
  ModelConfig c = with_recipe("tiny", RECIPE_MLPERF);
  c.anchor_grid_stride = true;
  EXPECT(!config_check(&c, &err) && strstr(err.msg, "legacy anchors"));
  c = with_recipe("tiny", RECIPE_MLPERF);
  c.mask_pool = 33;
  EXPECT(!config_check(&c, &err) && strstr(err.msg, "mask_pool = 33"));
  c = with_recipe("tiny", RECIPE_DETECTRON2);
  c.train_size_min = c.size + 1;
  EXPECT(!config_check(&c, &err) && strstr(err.msg, "train_size_min"));
  c = with_recipe("tiny", RECIPE_TORCHVISION);
  c.box_extra = 0.5f;
  EXPECT(!config_check(&c, &err) && strstr(err.msg, "box_extra"));
  EXPECT(!config_init(&c, "resnet", &err));
}
