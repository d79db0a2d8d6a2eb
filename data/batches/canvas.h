// The shapes of network inputs: images are resized as in torchvision, then padded to one of a few canvases, because
// memory and launches are planned once per shape.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/error.h"
#include "nn/batch.h"

enum { MAX_CANVASES = 8, CANVAS_MULTIPLE = 32 };

typedef struct Size {
  int h, w;
} Size;

// The shorter side becomes `size` unless the longer would exceed `max_size`.
typedef struct Resize {
  int size, max_size;
  ResizeRule rule;
} Resize;
// The resized height and width of an h × w image, equal to the last pixel to those of torchvision 0.26's
// GeneralizedRCNNTransform (eager mode), detectron2's ResizeShortestEdge or maskrcnn-benchmark's Resize, except that a
// side never vanishes.
void resize_shape(const Resize *r, int h, int w, int *rh, int *rw);

// Shorter sides of multi-scale training, which draws one of them for every image and epoch; n = 0: Resize.size alone.
enum { MAX_SIZES = 64, MAX_SHORTER_SIDE = 8192 };
typedef struct Sizes {
  int n;
  int side[MAX_SIZES];
} Sizes;
// Parses "640,672,800"; a side listed twice is drawn twice as often.
bool sizes_parse(Sizes *s, const char *text, Err *err);
int sizes_largest(const Sizes *s); // 0 if there are none

typedef struct Canvas {
  int h, w;   // multiples of CANVAS_MULTIPLE
  int images; // images of the data set padded to it
} Canvas;

// Chooses at most `max` canvases for images of the given resized sizes with little padding: starts from the sizes
// rounded up and repeatedly merges the pair whose common canvas adds the fewest padded pixels over all images.
// canvas[max] receives them ascending by height, then width; canvas_of[n] the smallest one that holds each image.
// Returns their number. The result does not depend on the order of the sizes.
int canvas_choose(Canvas *canvas, int max, const Size *size, int n, uint8_t *canvas_of);
