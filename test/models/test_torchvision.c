// Catches names of torchvision's tensors that are not recognised behind what PyTorch's wrappers put before them, and a
// ResNet that is taken for one of another depth, for a wide one or for a ResNeXt.
#include "base/basics.h"
#include "models/torchvision.h"
#include "test/harness/test.h"
#include "weights/formats.h"

static void expect_renamed(const char *const *names, const char *const *want, int n) {
  Checkpoint c = {0};
  Err err = {""};
  for (int i = 0; i < n; i++) ckpt_add(&c, &(CkptTensor){.name = names[i]});
  if (!EXPECT(torchvision_rename(&c, "FILE", &err))) printf("    %s\n", err.msg);
  for (int i = 0; i < n; i++)
    if (want[i] && !EXPECT(ckpt_find(&c, want[i]))) printf("    %s is not %s\n", names[i], want[i]);
  ckpt_close(&c);
}

TEST(torchvision_drops_the_names_of_wrappers) {
  static const char *const plain[] = {"backbone.body.conv1.weight", "backbone.fpn.layer_blocks.0.0.bias",
                                      "rpn.head.conv.0.0.weight"};
  static const char *const wrapped[][COUNT(plain)] = {
      {"module.backbone.body.conv1.weight", "module.backbone.fpn.layer_blocks.0.bias", "module.rpn.head.conv.weight"},
      {"_orig_mod.backbone.body.conv1.weight", "_orig_mod.backbone.fpn.layer_blocks.0.0.bias",
       "_orig_mod.rpn.head.conv.weight"},
      {"module._orig_mod.backbone.body.conv1.weight", "module._orig_mod.backbone.fpn.layer_blocks.0.bias",
       "module._orig_mod.rpn.head.conv.0.0.weight"},
      {"_orig_mod.module.backbone.body.conv1.weight", "_orig_mod.module.backbone.fpn.layer_blocks.0.bias",
       "_orig_mod.module.rpn.head.conv.weight"},
      {"backbone._orig_mod.body.conv1.weight", "backbone._orig_mod.fpn.layer_blocks.0.bias", "rpn.head.conv.weight"}};
  for (int i = 0; i < COUNT(wrapped); i++) expect_renamed(wrapped[i], plain, COUNT(plain));
  static const char *const others[] = {"a_module.weight", "_orig_mod", "module"}; // of which no part is a wrapper's
  expect_renamed(others, others, COUNT(others));
}

TEST(torchvision_drops_the_names_of_wrappers_of_classifiers) {
  static const char *const names[] = {"_orig_mod.layer1.0.conv1.weight", "_orig_mod.conv1.weight"};
  expect_renamed(names, (const char *const[]){"backbone.body.layer1.0.conv1.weight", "backbone.body.conv1.weight"}, 2);
  static const char *const whole[] = {"_orig_mod.module.layer1.0.conv1.weight", "_orig_mod.module.fc.weight"};
  expect_renamed(whole, (const char *const[]){"layer1.0.conv1.weight", "fc.weight"}, 2);
}

// The depth of a ResNet whose layer3 has so many blocks, with filters of layer1.0.conv2 of `in` channels.
static int depth_of(int blocks, bool bottleneck, int in) {
  Checkpoint c = {0};
  char names[64][32];
  ckpt_add(&c, &(CkptTensor){.name = "conv1.weight", .ndim = 4, .dims = {64, 3, 7, 7}});
  ckpt_add(&c, &(CkptTensor){.name = "layer1.0.conv2.weight", .ndim = 4, .dims = {64, in, 3, 3}});
  if (bottleneck) ckpt_add(&c, &(CkptTensor){.name = "layer1.0.conv3.weight", .ndim = 4, .dims = {256, 64, 1, 1}});
  CHECK(blocks <= COUNT(names));
  for (int i = 0; i < blocks; i++) {
    snprintf(names[i], sizeof names[i], "layer3.%d.conv1.weight", i);
    ckpt_add(&c, &(CkptTensor){.name = names[i]});
  }
  Err err = {""};
  if (!EXPECT(torchvision_rename(&c, "FILE", &err))) printf("    %s\n", err.msg); // renames none, but sorts
  const int depth = torchvision_depth(&c, "");
  ckpt_close(&c);
  return depth;
}

TEST(torchvision_depth_by_blocks) {
  EXPECT_INT(depth_of(1, false, 64), 10);
  EXPECT_INT(depth_of(2, false, 64), 18);
  EXPECT_INT(depth_of(6, false, 64), 34);
  EXPECT_INT(depth_of(6, true, 64), 50);
  EXPECT_INT(depth_of(23, true, 64), 101);
  EXPECT_INT(depth_of(36, true, 64), 152);
  EXPECT_INT(depth_of(22, true, 64), 0);
  EXPECT_INT(depth_of(23, false, 64), 0);
  EXPECT_INT(depth_of(6, true, 4), 0); // ResNeXt: 32 groups
}
