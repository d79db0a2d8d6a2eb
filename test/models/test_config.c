// Catches model fields with wrong defaults, ranges or text, and presets that leave fields of another preset set.
#include <float.h>
#include <limits.h>
#include <stddef.h>
#include "models/model.h"
#include "test/harness/test.h"

static const char *const variants[] = {"tiny", "maskrcnn-r18-fpn", "maskrcnn-r50-fpn", "maskrcnn-r152-fpn"};
enum { MAX_TEXT = 256 };

// In how many fields two configurations differ; *first is the first of them, "" for none.
static int differences(const ModelConfig *a, const ModelConfig *b, const char **first) {
  int count = 0;
  *first = "";
  for (int i = 0; i < config_fields(); i++) {
    char text[2][MAX_TEXT];
    config_get(a, i, text[0], MAX_TEXT);
    config_get(b, i, text[1], MAX_TEXT);
    if (!strcmp(text[0], text[1])) continue;
    if (!count) *first = config_field_name(i);
    count++;
  }
  return count;
}

static const char *difference(const ModelConfig *a, const ModelConfig *b) {
  const char *first;
  differences(a, b, &first);
  return first;
}

static ModelConfig with_conventions(const char *model, Conventions whose) {
  ModelConfig c;
  CHECK(config_init(&c, model, NULL));
  config_conventions(&c, whose);
  return c;
}

// ---- conventions ----------------------------------------------------------------------------------------------------

TEST(config_conventions_replace_one_another) {
  for (int m = 0; m < COUNT(variants); m++) {
    ModelConfig plain;
    CHECK(config_init(&plain, variants[m], NULL));
    for (Conventions to = 0; conventions_names[to]; to++) {
      ModelConfig want = with_conventions(variants[m], to);
      if (to == CONVENTIONS_TORCHVISION) {
        ModelConfig own = plain;
        if (!strcmp(variants[m], "tiny")) own.rpn_post_nms_train = want.rpn_post_nms_train; // tiny trains on fewer
        EXPECT_STR(difference(&want, &own), "");
      }
      for (Conventions from = 0; conventions_names[from]; from++) {
        ModelConfig c = with_conventions(variants[m], from);
        config_conventions(&c, to);
        EXPECT_STR(difference(&c, &want), "");
      }
      Err err = {""};
      EXPECT(config_check(&want, &err));
      EXPECT_STR(err.msg, "");
    }
  }
}

// README's table, row by row, of maskrcnn-r50-fpn; what is in no row is the same in all conventions.
static const struct {
  const char *field, *value[CONVENTION_SETS];
} readme[] = {
    // input
    {"bgr", {"0", "1", "1"}},
    {"pixel_unit", {"255", "1", "1"}},
    {"mean", {"0.485,0.456,0.406", "103.53,116.28,123.675", "102.9801,115.9465,122.7717"}},
    {"std", {"0.229,0.224,0.225", "1,1,1", "1,1,1"}},
    // resize
    {"resize_rule", {"torchvision", "detectron2", "maskrcnn-benchmark"}},
    {"antialias", {"0", "1", "1"}},
    {"train_size_min", {"800", "640", "800"}},
    {"train_sizes", {"1", "6", "1"}},
    // stride of a bottleneck; frozen batch norm's ε
    {"stride_in_1x1", {"0", "1", "1"}},
    {"norm_eps", {"1e-5", "1e-5", "0"}},
    // a box's width
    {"box_extra", {"0", "0", "1"}},
    // anchors
    {"anchor_kind", {"rounded", "exact", "legacy"}},
    {"anchor_grid_stride", {"1", "0", "0"}},
    {"rpn_inside", {"0", "0", "1"}},
    // proposals in training; smallest side
    {"rpn_post_nms_train", {"2000", "1000", "1000"}},
    {"rpn_post_nms_by_batch", {"0", "0", "1"}},
    {"rpn_min_size", {"0.001", "1.17549435e-38", "0"}},
    // RPN losses: box; divided by
    {"rpn_beta", {"0.111111111", "0", "0.111111111"}},
    {"rpn_loss_by_batch", {"0", "1", "0"}},
    // head's box loss
    {"box_beta", {"0.111111111", "0", "1"}},
    // RoIAlign; FPN level
    {"roi_sampling", {"2", "0", "2"}},
    {"roi_aligned", {"0", "1", "0"}},
    {"roi_size_eps", {"0", "1e-8", "1e-6"}},
    {"roi_level_eps", {"1e-6", "0", "0"}},
    // mask targets
    {"mask_source", {"soft", "polygon", "polygon"}},
    {"mask_least_side", {"0", "0.1", "1"}},
    // box once augmentation moved an image
    {"moved_boxes", {"mask", "polygon", "box"}},
    // smallest side of a detection; mask paste
    {"min_size", {"0.01", "0", "0"}},
    {"mask_paste_exact", {"0", "1", "0"}},
};

// What torchvision's maskrcnn_resnet50_fpn is made with (v0.26), and the name of each argument there.
static const struct {
  const char *field, *value;
} constructed[] = {
    {"size", "800"},                      // min_size
    {"max_size", "1333"},                 // max_size
    {"classes", "91"},                    // num_classes
    {"depth", "50"},                      // resnet50
    {"width", "64"},                      // inplanes
    {"norm", "frozen-bn"},                // norm_layer
    {"trainable_layers", "3"},            // trainable_layers
    {"fpn_channels", "256"},              // out_channels
    {"anchor_size", "32,64,128,256,512"}, // sizes
    {"anchor_ratio", "0.5,1,2"},          // aspect_ratios
    {"rpn_pre_nms_train", "2000"},        // rpn_pre_nms_top_n_train
    {"rpn_pre_nms_test", "1000"},         // rpn_pre_nms_top_n_test
    {"rpn_post_nms_train", "2000"},       // rpn_post_nms_top_n_train
    {"rpn_post_nms_test", "1000"},        // rpn_post_nms_top_n_test
    {"rpn_nms", "0.7"},                   // rpn_nms_thresh
    {"rpn_high", "0.7"},                  // rpn_fg_iou_thresh
    {"rpn_low", "0.3"},                   // rpn_bg_iou_thresh
    {"rpn_low_quality", "1"},             // Matcher's allow_low_quality_matches
    {"rpn_batch", "256"},                 // rpn_batch_size_per_image
    {"rpn_positive", "0.5"},              // rpn_positive_fraction
    {"rpn_min_score", "0"},               // rpn_score_thresh
    {"box_pool", "7"},                    // box_roi_pool's output_size
    {"box_dim", "1024"},                  // representation_size
    {"min_score", "0.05"},                // box_score_thresh
    {"nms", "0.5"},                       // box_nms_thresh
    {"detections", "100"},                // box_detections_per_img
    {"roi_high", "0.5"},                  // box_fg_iou_thresh
    {"roi_low", "0.5"},                   // box_bg_iou_thresh
    {"roi_batch", "512"},                 // box_batch_size_per_image
    {"roi_positive", "0.25"},             // box_positive_fraction
    {"box_weight", "10,10,5,5"},          // bbox_reg_weights
    {"roi_canonical_size", "224"},        // MultiScaleRoIAlign's canonical_scale
    {"mask_pool", "14"},                  // mask_roi_pool's output_size
    {"mask_layers", "4"},                 // mask_layers = (256, 256, 256, 256)
    {"mask_dim", "256"},                  // mask_dim_reduced
};

TEST(config_defaults_are_those_of_torchvision) {
  ModelConfig got = with_conventions("maskrcnn-r50-fpn", CONVENTIONS_TORCHVISION), want = got;
  for (int i = 0; i < COUNT(constructed); i++) {
    EXPECT(config_set(&want, constructed[i].field, constructed[i].value, NULL));
    EXPECT_STR(difference(&got, &want), "");
  }
  EXPECT_INT(got.norm_groups, 32); // Wu and He, "Group Normalization", 2018
}

// Anchors of the small model, from 12 pixels on; they double from level to level.
TEST(config_of_the_small_model) {
  ModelConfig c;
  char text[256];
  CHECK(config_init(&c, "tiny", NULL));
  for (int i = 0; i < config_fields(); i++) {
    if (strcmp(config_field_name(i), "anchor_size")) continue;
    config_get(&c, i, text, sizeof text);
    EXPECT_STR(text, "12,24,48,96,192");
  }
}

TEST(config_of_each_set_of_conventions) {
  ModelConfig torchvision = with_conventions("maskrcnn-r50-fpn", CONVENTIONS_TORCHVISION);
  for (Conventions r = 0; conventions_names[r]; r++) {
    ModelConfig want = torchvision, got = with_conventions("maskrcnn-r50-fpn", r);
    for (int i = 0; i < COUNT(readme); i++) EXPECT(config_set(&want, readme[i].field, readme[i].value[r], NULL));
    EXPECT_STR(difference(&got, &want), "");
  }
}

// Fields in no row of README's table stay as they are, and values that depend on others follow them.
TEST(config_conventions_keep_the_rest) {
  ModelConfig c = with_conventions("maskrcnn-r50-fpn", CONVENTIONS_TORCHVISION);
  c.norm = NORM_GN;
  c.rpn_nms = 0.25f;
  c.rpn_post_nms_test = 300;
  c.classes = 7;
  c.full_masks = true;
  config_resize(&c, 600);
  ModelConfig before = c;
  config_conventions(&c, CONVENTIONS_DETECTRON2);
  EXPECT_INT(c.train_size_min, 480);
  EXPECT_INT(c.rpn_post_nms_train, 300);
  config_conventions(&c, CONVENTIONS_MLPERF);
  EXPECT_INT(c.train_size_min, 600);
  EXPECT(c.norm_eps == 1e-5f); // of its group norm
  EXPECT(c.full_masks);
  for (int i = 0; i < COUNT(readme); i++) EXPECT(config_set(&before, readme[i].field, readme[i].value[2], NULL));
  before.train_size_min = 600;
  before.rpn_post_nms_train = 300;
  before.norm_eps = 1e-5f;
  EXPECT_STR(difference(&c, &before), "");
  config_conventions(&c, CONVENTIONS_TORCHVISION);
  EXPECT_INT(c.rpn_post_nms_train, 600);
}

// ---- text -------------------------------------------------------------------------------------------------------

TEST(config_fields_survive_as_text) {
  for (Conventions r = 0; conventions_names[r]; r++) {
    ModelConfig c = with_conventions("maskrcnn-r50-fpn", r), back;
    CHECK(config_init(&back, "tiny", NULL));
    for (int i = 0; i < config_fields(); i++) {
      char text[MAX_TEXT];
      config_get(&c, i, text, sizeof text);
      EXPECT(config_set(&back, config_field_name(i), text, NULL));
    }
    EXPECT_STR(difference(&back, &c), "");
    EXPECT(back.rpn_min_size == c.rpn_min_size); // FLT_MIN to the bit
    EXPECT(back.rpn_beta == c.rpn_beta);
    EXPECT(!memcmp(back.mean, c.mean, sizeof c.mean));
  }
}

// Every field takes at least two values of these, gives them back as they are, and changes no other.
TEST(config_fields_are_apart) {
  static const char *const texts[] = {"0",          "1",       "2147483647", "0.25",      "1,2,3",       "0.5,0,-4",
                                      "1,2,3,4",    "4,3,2,1", "1,2,3,4,5",  "5,4,3,2,1", "bn",          "gn",
                                      "detectron2", "rounded", "legacy",     "bitmap",    "polygon",     "nan",
                                      "",           "1 ",      "1,2",        "frozen-bn", "torchvision", "mask"};
  for (int i = 0; i < config_fields(); i++) {
    const char *name = config_field_name(i);
    int taken = 0;
    for (int t = 0; t < COUNT(texts); t++) {
      ModelConfig c = with_conventions("tiny", CONVENTIONS_TORCHVISION), before = c;
      Err err = {""};
      char text[MAX_TEXT];
      if (config_set(&c, name, texts[t], &err)) {
        config_get(&c, i, text, sizeof text);
        bool rounded = !strcmp(texts[t], "2147483647") && !strcmp(text, "2.14748365e+09"); // the float next to it
        EXPECT(rounded || !strcmp(text, texts[t]));
        taken++;
      } else {
        snprintf(text, sizeof text, "model configuration: %s = '%s' is not a valid value", name, texts[t]);
        EXPECT_STR(err.msg, text);
      }
      const char *first;
      EXPECT(differences(&c, &before, &first) <= 1);
      if (*first) EXPECT_STR(first, name);
    }
    EXPECT(taken >= 2);
  }
}

TEST(config_text_that_is_no_value) {
  static const struct {
    const char *name, *text;
  } unusable[] = {
      {"size", "-1"},       {"size", "2147483648"},     {"size", "12x"},    {"bgr", "2"},        {"bgr", "true"},
      {"anchor_kind", "2"}, {"mask_source", "bitmaps"}, {"mean", "1,2,3,"}, {"mean", "1,2,3,4"}, {"rpn_nms", "0.5 "},
      {"norm", ""}};
  for (int i = 0; i < COUNT(unusable); i++) {
    ModelConfig c = with_conventions("tiny", CONVENTIONS_TORCHVISION);
    EXPECT(!config_set(&c, unusable[i].name, unusable[i].text, NULL));
  }
  ModelConfig c = with_conventions("tiny", CONVENTIONS_TORCHVISION);
  Err err = {""};
  EXPECT(!config_set(&c, "full_masks", "1", &err)); // in no checkpoint
  EXPECT_STR(err.msg, "model configuration: unknown field 'full_masks'");
}

// ---- ranges -----------------------------------------------------------------------------------------------------

#define ENDS(name, low, high)                                                                                          \
  { #name, offsetof(ModelConfig, name), low, high }
// Of maskrcnn-r50-fpn; max_size's and train_size_min's depend on other fields.
static const struct {
  const char *name;
  size_t offset;
  int low, high;
} ranges[] = {
    ENDS(size, 32, 8192),
    ENDS(max_size, 800, 16384),
    ENDS(train_size_min, 1, 8192),
    ENDS(train_sizes, 1, 64),
    ENDS(width, 1, 512),
    ENDS(norm_groups, 1, 512),
    ENDS(trainable_layers, 0, 5),
    ENDS(fpn_channels, 1, 2048),
    ENDS(rpn_batch, 1, 65536),
    ENDS(rpn_pre_nms_train, 1, 65536),
    ENDS(rpn_pre_nms_test, 1, 65536),
    ENDS(rpn_post_nms_train, 1, 65536),
    ENDS(rpn_post_nms_test, 1, 65536),
    ENDS(box_pool, 1, 64),
    ENDS(box_dim, 1, 16384),
    ENDS(roi_batch, 1, 8192),
    ENDS(roi_sampling, 0, 16),
    ENDS(mask_pool, 1, 128),
    ENDS(mask_dim, 1, 2048),
    ENDS(mask_layers, 1, 16),
    ENDS(detections, 1, 10000),
    ENDS(classes, 2, 65536),
};

// config_check's message where the field at `offset` is `value`, "" where it has none.
static const char *complaint(size_t offset, int value, Err *err) {
  ModelConfig c = with_conventions("maskrcnn-r50-fpn", CONVENTIONS_TORCHVISION);
  if (offset == offsetof(ModelConfig, size)) c.max_size = 16384;
  memcpy((char *)&c + offset, &value, sizeof value);
  err->msg[0] = '\0';
  EXPECT(config_check(&c, err) == !err->msg[0]);
  return err->msg;
}

TEST(config_ranges_end_where_they_say) {
  for (int i = 0; i < COUNT(ranges); i++) {
    Err err;
    EXPECT_STR(complaint(ranges[i].offset, ranges[i].low, &err), "");
    EXPECT_STR(complaint(ranges[i].offset, ranges[i].high, &err), "");
    const int outside[] = {ranges[i].low - 1, ranges[i].high + 1, INT_MIN, INT_MAX};
    for (int o = 0; o < COUNT(outside); o++) {
      char want[MAX_TEXT];
      snprintf(want, sizeof want, "model configuration: %s = %d is outside %d … %d", ranges[i].name, outside[o],
               ranges[i].low, ranges[i].high);
      EXPECT_STR(complaint(ranges[i].offset, outside[o], &err), want);
    }
  }
}

TEST(config_ranges_of_other_fields) {
  ModelConfig c = with_conventions("tiny", CONVENTIONS_DETECTRON2);
  Err err = {""};
  c.train_sizes = 2;
  c.train_size_min = c.size; // of several sizes, the least
  EXPECT(config_check(&c, &err));
  c.train_size_min = c.size + 1;
  EXPECT(!config_check(&c, &err));
  EXPECT_STR(err.msg, "model configuration: train_size_min = 129 is outside 1 … 128");
  c = with_conventions("tiny", CONVENTIONS_TORCHVISION);
  c.max_size = c.size;
  EXPECT(config_check(&c, &err));
  c.max_size = c.size - 1;
  EXPECT(!config_check(&c, &err));
  EXPECT_STR(err.msg, "model configuration: max_size = 127 is outside 128 … 16384");

  static const struct {
    float value;
    bool unit, extra; // whether pixel_unit, box_extra may be that
  } floats[] = {{-1, false, false}, {0, false, true},   {FLT_MIN, true, false}, {0.5f, true, false},
                {1, true, true},    {255, true, false}, {NAN, false, false}};
  for (int i = 0; i < COUNT(floats); i++) {
    c = with_conventions("tiny", CONVENTIONS_TORCHVISION);
    c.pixel_unit = floats[i].value;
    EXPECT(config_check(&c, &err) == floats[i].unit);
    if (!floats[i].unit) EXPECT_STR(err.msg, "model configuration: pixel_unit must be above 0");
    c = with_conventions("tiny", CONVENTIONS_TORCHVISION);
    c.box_extra = floats[i].value;
    EXPECT(config_check(&c, &err) == floats[i].extra);
    if (!floats[i].extra) EXPECT(strstr(err.msg, ": expected 0 or 1") && strstr(err.msg, "box_extra = "));
  }
  c = with_conventions("tiny", CONVENTIONS_TORCHVISION);
  c.roi_positive = 1.5f; // more objects than RoIs
  EXPECT(!config_check(&c, &err) && strstr(err.msg, "roi_positive = 1.5 is outside 0 … 1"));
  c.roi_positive = NAN;
  EXPECT(!config_check(&c, &err));
  c.roi_positive = 1;
  EXPECT(config_check(&c, &err));
  for (int depth = 0; depth < 200; depth++) {
    c.box_extra = 0;
    c.depth = depth;
    bool known = depth == 10 || depth == 18 || depth == 34 || depth == 50 || depth == 101 || depth == 152;
    EXPECT(config_check(&c, &err) == known);
    if (!known) EXPECT(strstr(err.msg, "model configuration: maskrcnn has no variant of depth "));
  }
}

// As a checkpoint may have it: text that is a number, and no value that means anything.
TEST(config_values_that_mean_nothing) {
  static const struct {
    const char *name, *text, *says;
  } unusable[] = {{"anchor_size", "32,64,0,256,512", "anchor_size = 0 is outside 1 … 65536"},
                  {"anchor_size", "-32,64,128,256,512", "anchor_size = -32 is outside"},
                  {"anchor_size", "32,64,128,256,inf", "anchor_size = inf is outside"},
                  {"anchor_ratio", "0,1,2", "anchor_ratio = 0 is outside 0.01 … 100"},
                  {"anchor_ratio", "0.5,nan,2", "anchor_ratio = nan is outside"},
                  {"mean", "0,nan,0", "mean = nan is not a finite number"},
                  {"mean", "0,0,-inf", "mean = -inf is not a finite number"},
                  {"std", "1,0,1", "std must be above 0"},
                  {"std", "-1,1,1", "std must be above 0"},
                  {"std", "1,1,nan", "std must be above 0"},
                  {"std", "1,inf,1", "std = inf is not a finite number"},
                  {"pixel_unit", "inf", "pixel_unit = inf is not a finite number"},
                  {"box_weight", "10,10,0,5", "box_weight must be above 0"},
                  {"norm_eps", "-1", "norm_eps = -1 is outside 0 … 1"},
                  {"nms", "nan", "nms = nan is outside 0 … 1"},
                  {"rpn_nms", "1.5", "rpn_nms = 1.5 is outside 0 … 1"},
                  {"min_score", "-0.5", "min_score = -0.5 is outside 0 … 1"},
                  {"min_size", "nan", "min_size = nan is outside"},
                  {"rpn_beta", "-1", "rpn_beta = -1 is outside"},
                  {"roi_canonical_size", "0", "roi_canonical_size must be above 0"},
                  {"roi_level_eps", "nan", "roi_level_eps = nan is outside"},
                  {"box_extra", "nan", "model configuration: box_extra = nan: expected 0 or 1"},
                  {"classes", "1", "classes = 1 is outside 2 … 65536"},
                  {"classes", "-3", "classes = '-3' is not a valid value"}};
  for (int i = 0; i < COUNT(unusable); i++) {
    ModelConfig c = with_conventions("maskrcnn-r50-fpn", CONVENTIONS_TORCHVISION);
    Err err = {""};
    EXPECT(!config_set(&c, unusable[i].name, unusable[i].text, &err) || !config_check(&c, &err));
    if (!EXPECT(strstr(err.msg, unusable[i].says))) printf("    %s\n", err.msg);
  }
}

TEST(config_refuses_what_cannot_be) {
  Err err;
  ModelConfig c = with_conventions("tiny", CONVENTIONS_MLPERF);
  c.anchor_grid_stride = true;
  EXPECT(!config_check(&c, &err) && strstr(err.msg, "legacy anchors"));
  c = with_conventions("tiny", CONVENTIONS_MLPERF);
  c.mask_pool = 32;
  EXPECT(config_check(&c, &err));
  c.mask_pool = 33;
  EXPECT(!config_check(&c, &err) && strstr(err.msg, "mask_pool = 33"));
  c = with_conventions("tiny", CONVENTIONS_DETECTRON2);
  c.mask_least_side = 0;
  EXPECT(!config_check(&c, &err) && strstr(err.msg, "mask_least_side"));
  c = with_conventions("tiny", CONVENTIONS_TORCHVISION);
  c.norm_groups = 7; // of 24 channels
  EXPECT(!config_check(&c, &err) &&
         strstr(err.msg, "model configuration: width 24 is not divisible by norm_groups = 7"));
  EXPECT(!config_init(&c, "resnet", &err) && strstr(err.msg, "--model resnet"));
}

// Where more proposals are asked for than NMS gets of a level, it gets more; training keeps its multiple, and
// no fewer.
TEST(config_proposals_by_number) {
  ModelConfig torchvision = with_conventions("maskrcnn-r50-fpn", CONVENTIONS_TORCHVISION);
  ModelConfig mlperf = with_conventions("maskrcnn-r50-fpn", CONVENTIONS_MLPERF);
  ModelConfig tiny;
  CHECK(config_init(&tiny, "tiny", NULL));
  EXPECT(tiny.rpn_post_nms_test == 500 && tiny.rpn_post_nms_train == 200);
  config_set_proposals(&tiny, 600);
  EXPECT(tiny.rpn_post_nms_test == 600 && tiny.rpn_post_nms_train == 600);
  config_set_proposals(&torchvision, 3000);
  config_set_proposals(&mlperf, 500);
  EXPECT(torchvision.rpn_post_nms_test == 3000 && torchvision.rpn_post_nms_train == 6000);
  EXPECT(torchvision.rpn_pre_nms_test == 3000 && torchvision.rpn_pre_nms_train == 3000);
  EXPECT(mlperf.rpn_post_nms_test == 500 && mlperf.rpn_post_nms_train == 500 && mlperf.rpn_pre_nms_test == 1000);
}

// ---- lists ----------------------------------------------------------------------------------------------------------

static const char *refused(const char *list, bool trained) {
  static Err err;
  ModelConfig c = with_conventions("tiny", CONVENTIONS_TORCHVISION);
  err.msg[0] = '\0';
  EXPECT(model_set_list(&c, list, trained, &err) == !err.msg[0]);
  return err.msg;
}

TEST(config_lists_set_what_they_name) {
  ModelConfig c = with_conventions("tiny", CONVENTIONS_TORCHVISION);
  const ModelConfig before = c;
  Err err;
  EXPECT(model_set_list(&c, "", false, &err) && !memcmp(&c, &before, sizeof c));
  EXPECT(model_set_list(&c, " nms=0.4  bgr=true norm=bn detections=7 mean=1,2,3 nms=0.3 ", false, &err));
  EXPECT(c.nms == 0.3f && c.bgr && c.norm == NORM_BN && c.detections == 7 && c.mean[2] == 3);
  EXPECT(model_set_list(&c, "nms=0.6 size=64", true, &err) && c.nms == 0.6f && c.size == 64);
  EXPECT_STR(refused("nms", false), "--set nms: expected FIELD=VALUE; train --help model lists the fields");
  EXPECT_STR(refused("grey=true", false), "--set grey: it is for classifiers; leave it out");
  EXPECT_STR(refused("score=0.3", true),
             "--set score: unknown field; did you mean min_score? train --help model lists the fields");
  EXPECT_STR(refused("xyzzy=1", false), "--set xyzzy: unknown field; train --help model lists the fields");
  EXPECT_STR(refused("nms=1.01", false), "--set nms=1.01: expected a number, 0 to 1");
  EXPECT_STR(refused("nms=nan", false), "--set nms=nan: expected a number, 0 to 1");
  EXPECT_STR(refused("mean=1,2,inf", false), "--set mean=1,2,inf: expected 3 numbers separated by commas");
  EXPECT_STR(refused("detections=1.5", false), "--set detections=1.5: expected an integer, 1 to 10000");
  EXPECT_STR(refused("norm=no", false), "--set norm=no: expected frozen-bn, bn, gn, syncbn");
  EXPECT_STR(refused("bgr=2", false), "--set bgr=2: expected true or false");
  EXPECT(strstr(refused("classes=3", false), "that of the data"));
  EXPECT(strstr(refused("nms=0.4 detction=5", false), "--set detction: unknown field; did you mean detections?"));
  EXPECT(strstr(refused("anchor_size=8,16,32,64,128", true), "set it in training only"));
}
