// Every convolution of Mask R-CNN R50-FPN on a canvas of 800 × 1344, for benchmarks: torchvision's network, whose
// stride is in the 3 × 3; the first proposals and masks of training, 512 and 128 an image.
#pragma once

typedef struct ConvCase {
  const char *name;
  int per_image; // 1, or RoIs
  int h, w;      // of x
  int cin, cout, k, stride, pad;
  int count;  // how often it occurs in a forward pass
  int frozen; // of those, how many have no backward pass with stem and res2 frozen
} ConvCase;

static const ConvCase conv_cases[] = {
    {"stem", 1, 800, 1344, 3, 64, 7, 2, 3, 1, 1},
    {"res2.1x1.first", 1, 200, 336, 64, 64, 1, 1, 0, 1, 1},
    {"res2.1x1.in", 1, 200, 336, 256, 64, 1, 1, 0, 2, 2},
    {"res2.3x3", 1, 200, 336, 64, 64, 3, 1, 1, 3, 3},
    {"res2.1x1.out", 1, 200, 336, 64, 256, 1, 1, 0, 4, 4}, // the shortcut is of the same shape
    {"res3.1x1.first", 1, 200, 336, 256, 128, 1, 1, 0, 1, 0},
    {"res3.3x3.stride", 1, 200, 336, 128, 128, 3, 2, 1, 1, 0},
    {"res3.shortcut", 1, 200, 336, 256, 512, 1, 2, 0, 1, 0},
    {"res3.1x1.in", 1, 100, 168, 512, 128, 1, 1, 0, 3, 0},
    {"res3.3x3", 1, 100, 168, 128, 128, 3, 1, 1, 3, 0},
    {"res3.1x1.out", 1, 100, 168, 128, 512, 1, 1, 0, 4, 0},
    {"res4.1x1.first", 1, 100, 168, 512, 256, 1, 1, 0, 1, 0},
    {"res4.3x3.stride", 1, 100, 168, 256, 256, 3, 2, 1, 1, 0},
    {"res4.shortcut", 1, 100, 168, 512, 1024, 1, 2, 0, 1, 0},
    {"res4.1x1.in", 1, 50, 84, 1024, 256, 1, 1, 0, 5, 0},
    {"res4.3x3", 1, 50, 84, 256, 256, 3, 1, 1, 5, 0},
    {"res4.1x1.out", 1, 50, 84, 256, 1024, 1, 1, 0, 6, 0},
    {"res5.1x1.first", 1, 50, 84, 1024, 512, 1, 1, 0, 1, 0},
    {"res5.3x3.stride", 1, 50, 84, 512, 512, 3, 2, 1, 1, 0},
    {"res5.shortcut", 1, 50, 84, 1024, 2048, 1, 2, 0, 1, 0},
    {"res5.1x1.in", 1, 25, 42, 2048, 512, 1, 1, 0, 2, 0},
    {"res5.3x3", 1, 25, 42, 512, 512, 3, 1, 1, 2, 0},
    {"res5.1x1.out", 1, 25, 42, 512, 2048, 1, 1, 0, 3, 0},
    {"fpn.p2.lateral", 1, 200, 336, 256, 256, 1, 1, 0, 1, 0},
    {"fpn.p3.lateral", 1, 100, 168, 512, 256, 1, 1, 0, 1, 0},
    {"fpn.p4.lateral", 1, 50, 84, 1024, 256, 1, 1, 0, 1, 0},
    {"fpn.p5.lateral", 1, 25, 42, 2048, 256, 1, 1, 0, 1, 0},
    // a level's output convolution and the RPN's are of the same shape; P6 is P5 subsampled, with an RPN alone
    {"p2.3x3", 1, 200, 336, 256, 256, 3, 1, 1, 2, 0},
    {"p3.3x3", 1, 100, 168, 256, 256, 3, 1, 1, 2, 0},
    {"p4.3x3", 1, 50, 84, 256, 256, 3, 1, 1, 2, 0},
    {"p5.3x3", 1, 25, 42, 256, 256, 3, 1, 1, 2, 0},
    {"p6.3x3", 1, 13, 21, 256, 256, 3, 1, 1, 1, 0},
    {"rpn.p2.logits", 1, 200, 336, 256, 3, 1, 1, 0, 1, 0},
    {"rpn.p3.logits", 1, 100, 168, 256, 3, 1, 1, 0, 1, 0},
    {"rpn.p4.logits", 1, 50, 84, 256, 3, 1, 1, 0, 1, 0},
    {"rpn.p5.logits", 1, 25, 42, 256, 3, 1, 1, 0, 1, 0},
    {"rpn.p6.logits", 1, 13, 21, 256, 3, 1, 1, 0, 1, 0},
    {"rpn.p2.deltas", 1, 200, 336, 256, 12, 1, 1, 0, 1, 0},
    {"rpn.p3.deltas", 1, 100, 168, 256, 12, 1, 1, 0, 1, 0},
    {"rpn.p4.deltas", 1, 50, 84, 256, 12, 1, 1, 0, 1, 0},
    {"rpn.p5.deltas", 1, 25, 42, 256, 12, 1, 1, 0, 1, 0},
    {"rpn.p6.deltas", 1, 13, 21, 256, 12, 1, 1, 0, 1, 0},
    {"box.fc6", 512, 7, 7, 256, 1024, 7, 1, 0, 1, 0},
    {"box.fc7", 512, 1, 1, 1024, 1024, 1, 1, 0, 1, 0},
    {"box.logits", 512, 1, 1, 1024, 91, 1, 1, 0, 1, 0},
    {"box.deltas", 512, 1, 1, 1024, 364, 1, 1, 0, 1, 0},
    {"mask.3x3", 128, 14, 14, 256, 256, 3, 1, 1, 4, 0},
    // transposed, so that its forward pass is this one's dgrad and the other way round
    {"mask.deconv", 128, 28, 28, 256, 256, 2, 2, 0, 1, 0},
    {"mask.logits", 128, 28, 28, 256, 91, 1, 1, 0, 1, 0},
};
