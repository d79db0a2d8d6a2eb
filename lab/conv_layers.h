// Every convolution of Mask R-CNN R50-FPN, for benchmarks, as in torchvision, which has the stride in the 3 × 3.
#pragma once

typedef enum ConvOn { ON_MAP, ON_BOXES, ON_MASKS } ConvOn; // of images; of sampled proposals; of positive ones

typedef struct ConvCase {
  const char *name;
  ConvOn on;
  int size; // ON_MAP: pixels of the canvas per pixel of x, rounded up; otherwise height and width of x
  int cin, cout, k, stride, pad;
  int count;  // occurrences in a forward pass
  int frozen; // occurrences without a backward pass when stem and res2 are frozen
} ConvCase;

static const ConvCase conv_cases[] = {
    {"stem", ON_MAP, 1, 3, 64, 7, 2, 3, 1, 1},
    {"res2.1x1.first", ON_MAP, 4, 64, 64, 1, 1, 0, 1, 1},
    {"res2.1x1.in", ON_MAP, 4, 256, 64, 1, 1, 0, 2, 2},
    {"res2.3x3", ON_MAP, 4, 64, 64, 3, 1, 1, 3, 3},
    {"res2.1x1.out", ON_MAP, 4, 64, 256, 1, 1, 0, 4, 4}, // the shortcut has the same shape
    {"res3.1x1.first", ON_MAP, 4, 256, 128, 1, 1, 0, 1, 0},
    {"res3.3x3.stride", ON_MAP, 4, 128, 128, 3, 2, 1, 1, 0},
    {"res3.shortcut", ON_MAP, 4, 256, 512, 1, 2, 0, 1, 0},
    {"res3.1x1.in", ON_MAP, 8, 512, 128, 1, 1, 0, 3, 0},
    {"res3.3x3", ON_MAP, 8, 128, 128, 3, 1, 1, 3, 0},
    {"res3.1x1.out", ON_MAP, 8, 128, 512, 1, 1, 0, 4, 0},
    {"res4.1x1.first", ON_MAP, 8, 512, 256, 1, 1, 0, 1, 0},
    {"res4.3x3.stride", ON_MAP, 8, 256, 256, 3, 2, 1, 1, 0},
    {"res4.shortcut", ON_MAP, 8, 512, 1024, 1, 2, 0, 1, 0},
    {"res4.1x1.in", ON_MAP, 16, 1024, 256, 1, 1, 0, 5, 0},
    {"res4.3x3", ON_MAP, 16, 256, 256, 3, 1, 1, 5, 0},
    {"res4.1x1.out", ON_MAP, 16, 256, 1024, 1, 1, 0, 6, 0},
    {"res5.1x1.first", ON_MAP, 16, 1024, 512, 1, 1, 0, 1, 0},
    {"res5.3x3.stride", ON_MAP, 16, 512, 512, 3, 2, 1, 1, 0},
    {"res5.shortcut", ON_MAP, 16, 1024, 2048, 1, 2, 0, 1, 0},
    {"res5.1x1.in", ON_MAP, 32, 2048, 512, 1, 1, 0, 2, 0},
    {"res5.3x3", ON_MAP, 32, 512, 512, 3, 1, 1, 2, 0},
    {"res5.1x1.out", ON_MAP, 32, 512, 2048, 1, 1, 0, 3, 0},
    {"fpn.p2.lateral", ON_MAP, 4, 256, 256, 1, 1, 0, 1, 0},
    {"fpn.p3.lateral", ON_MAP, 8, 512, 256, 1, 1, 0, 1, 0},
    {"fpn.p4.lateral", ON_MAP, 16, 1024, 256, 1, 1, 0, 1, 0},
    {"fpn.p5.lateral", ON_MAP, 32, 2048, 256, 1, 1, 0, 1, 0},
    // a level's output convolution and the RPN's have the same shape; P6 is P5 subsampled, with an RPN only
    {"p2.3x3", ON_MAP, 4, 256, 256, 3, 1, 1, 2, 0},
    {"p3.3x3", ON_MAP, 8, 256, 256, 3, 1, 1, 2, 0},
    {"p4.3x3", ON_MAP, 16, 256, 256, 3, 1, 1, 2, 0},
    {"p5.3x3", ON_MAP, 32, 256, 256, 3, 1, 1, 2, 0},
    {"p6.3x3", ON_MAP, 64, 256, 256, 3, 1, 1, 1, 0},
    {"rpn.p2.logits", ON_MAP, 4, 256, 3, 1, 1, 0, 1, 0},
    {"rpn.p3.logits", ON_MAP, 8, 256, 3, 1, 1, 0, 1, 0},
    {"rpn.p4.logits", ON_MAP, 16, 256, 3, 1, 1, 0, 1, 0},
    {"rpn.p5.logits", ON_MAP, 32, 256, 3, 1, 1, 0, 1, 0},
    {"rpn.p6.logits", ON_MAP, 64, 256, 3, 1, 1, 0, 1, 0},
    {"rpn.p2.deltas", ON_MAP, 4, 256, 12, 1, 1, 0, 1, 0},
    {"rpn.p3.deltas", ON_MAP, 8, 256, 12, 1, 1, 0, 1, 0},
    {"rpn.p4.deltas", ON_MAP, 16, 256, 12, 1, 1, 0, 1, 0},
    {"rpn.p5.deltas", ON_MAP, 32, 256, 12, 1, 1, 0, 1, 0},
    {"rpn.p6.deltas", ON_MAP, 64, 256, 12, 1, 1, 0, 1, 0},
    {"box.fc6", ON_BOXES, 1, 12544, 1024, 1, 1, 0, 1, 0}, // over 7 × 7 × 256, which conv.cu treats as this
    {"box.fc7", ON_BOXES, 1, 1024, 1024, 1, 1, 0, 1, 0},
    {"box.logits", ON_BOXES, 1, 1024, 91, 1, 1, 0, 1, 0},
    {"box.deltas", ON_BOXES, 1, 1024, 364, 1, 1, 0, 1, 0},
    {"mask.3x3", ON_MASKS, 14, 256, 256, 3, 1, 1, 4, 0},
    // transposed: its forward pass is this layer's dgrad and vice versa
    {"mask.deconv", ON_MASKS, 28, 256, 256, 2, 2, 0, 1, 0},
    {"mask.logits", ON_MASKS, 28, 256, 91, 1, 1, 0, 1, 0},
};
