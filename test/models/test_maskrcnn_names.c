// Catches parameter names and shapes that differ from torchvision's.
#include "models/model.h"
#include "test/harness/test.h"

typedef struct Expected {
  const Params *params;
  int found;
  size_t parameters; // elements, without buffers
} Expected;

static void expect_param(Expected *e, const char *name, bool buffer, int ndim, const int *dims) {
  const Param *q = params_find(e->params, name);
  if (!EXPECT(q != NULL)) {
    printf("    %s is missing\n", name);
    return;
  }
  bool same = q->ndim == ndim && q->buffer == buffer;
  for (int i = 0; i < ndim; i++) same &= q->dims[i] == dims[i];
  if (!EXPECT(same)) printf("    %s has another shape\n", name);
  e->found++;
  if (!buffer) e->parameters += param_elements(q);
}

static void expect_conv_norm(Expected *e, const char *conv, const char *norm, int k, int c, int taps) {
  static const char *const parts[] = {"weight", "bias", "running_mean", "running_var"};
  char name[128];
  snprintf(name, sizeof name, "backbone.body.%s.weight", conv);
  expect_param(e, name, false, 4, (int[]){k, c, taps, taps});
  for (int i = 0; i < COUNT(parts); i++) {
    snprintf(name, sizeof name, "backbone.body.%s.%s", norm, parts[i]);
    expect_param(e, name, true, 1, &k);
  }
}

static void expect_block_conv(Expected *e, int layer, int block, const char *conv, const char *norm, int k, int c,
                              int taps) {
  char names[2][64];
  snprintf(names[0], sizeof names[0], "layer%d.%d.%s", layer, block, conv);
  snprintf(names[1], sizeof names[1], "layer%d.%d.%s", layer, block, norm);
  expect_conv_norm(e, names[0], names[1], k, c, taps);
}

static void expect_resnet50(Expected *e) {
  static const int blocks[] = {3, 4, 6, 3};
  expect_conv_norm(e, "conv1", "bn1", 64, 3, 7);
  int in = 64;
  for (int layer = 1; layer <= COUNT(blocks); layer++)
    for (int b = 0; b < blocks[layer - 1]; b++) {
      int planes = 32 << layer, out = 4 * planes;
      expect_block_conv(e, layer, b, "conv1", "bn1", planes, in, 1);
      expect_block_conv(e, layer, b, "conv2", "bn2", planes, planes, 3);
      expect_block_conv(e, layer, b, "conv3", "bn3", out, planes, 1);
      if (b == 0) expect_block_conv(e, layer, b, "downsample.0", "downsample.1", out, in, 1);
      in = out;
    }
}

static const struct {
  const char *name; // and the same with .bias, of dims[0]
  int ndim, dims[4];
} rest[] = {
    {"backbone.fpn.inner_blocks.0.0", 4, {256, 256, 1, 1}},
    {"backbone.fpn.inner_blocks.1.0", 4, {256, 512, 1, 1}},
    {"backbone.fpn.inner_blocks.2.0", 4, {256, 1024, 1, 1}},
    {"backbone.fpn.inner_blocks.3.0", 4, {256, 2048, 1, 1}},
    {"backbone.fpn.layer_blocks.0.0", 4, {256, 256, 3, 3}},
    {"backbone.fpn.layer_blocks.1.0", 4, {256, 256, 3, 3}},
    {"backbone.fpn.layer_blocks.2.0", 4, {256, 256, 3, 3}},
    {"backbone.fpn.layer_blocks.3.0", 4, {256, 256, 3, 3}},
    {"rpn.head.conv.0.0", 4, {256, 256, 3, 3}},
    {"rpn.head.cls_logits", 4, {3, 256, 1, 1}},
    {"rpn.head.bbox_pred", 4, {12, 256, 1, 1}},
    {"roi_heads.box_head.fc6", 2, {1024, 12544}},
    {"roi_heads.box_head.fc7", 2, {1024, 1024}},
    {"roi_heads.box_predictor.cls_score", 2, {91, 1024}},
    {"roi_heads.box_predictor.bbox_pred", 2, {364, 1024}},
    {"roi_heads.mask_head.0.0", 4, {256, 256, 3, 3}},
    {"roi_heads.mask_head.1.0", 4, {256, 256, 3, 3}},
    {"roi_heads.mask_head.2.0", 4, {256, 256, 3, 3}},
    {"roi_heads.mask_head.3.0", 4, {256, 256, 3, 3}},
    {"roi_heads.mask_predictor.conv5_mask", 4, {256, 256, 2, 2}},
    {"roi_heads.mask_predictor.mask_fcn_logits", 4, {91, 256, 1, 1}},
};

static void check_names(bool training) {
  ModelConfig config;
  Network m;
  Params params;
  Err err;
  Device *dev = device_open("cpu", &err);
  CHECK(dev && config_init(&config, "maskrcnn-r50-fpn", &err));
  params_init(&params, dev, F32);
  network_build(&m, model_of(&config), &config, dev, &params, NULL, training ? FOR_TRAINING : FOR_INFERENCE, 1, 64, 64,
                4);
  Expected e = {.params = &params};
  expect_resnet50(&e);
  for (int i = 0; i < COUNT(rest); i++) {
    char name[128];
    snprintf(name, sizeof name, "%s.weight", rest[i].name);
    expect_param(&e, name, false, rest[i].ndim, rest[i].dims);
    snprintf(name, sizeof name, "%s.bias", rest[i].name);
    // A transposed convolution's filter is [in, out, …] and its bias of length out; here both are 256.
    expect_param(&e, name, false, 1, rest[i].dims);
  }
  EXPECT_INT(params.n, e.found);
  EXPECT_INT(e.found, 307);
  EXPECT_INT(e.parameters, 44401393); // "num_params" of MaskRCNN_ResNet50_FPN_Weights.COCO_V1

  // Trained: all but the stem and layer1, in torchvision's words the last three layers.
  for (int i = 0; i < params.n; i++) {
    const Param *q = params.list[i];
    bool frozen = q->buffer || !strncmp(q->name, "backbone.body.conv1", 19) || strstr(q->name, "body.layer1.");
    EXPECT(q->trainable == (training && !frozen));
  }
  network_free(&m);
  params_free(&params);
  device_close(dev);
}

TEST(model_names_of_torchvision) {
  check_names(true);
  check_names(false);
}
