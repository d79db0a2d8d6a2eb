// What a batch is made of on its way from files to the device; plain data, the same on the host and on the device.
#pragma once
#include <stdint.h>

typedef struct ImageInfo { // one image of the batch; h = w = rh = rw = 0: an empty place
  int64_t offset;          // its bytes in the batch's buffer: RGB [h, w, 3]
  int h, w;                // as decoded
  int rh, rw;              // after resizing; the rest of the canvas is zero
  int flip;                // mirrored left-right; everything in canvas coordinates is mirrored already
  uint64_t key;            // of its random numbers: (seed, epoch, image)
} ImageInfo;

// How images are resized, to whose pixel: each rounds in its own way.
typedef enum ResizeRule { RESIZE_TORCHVISION, RESIZE_DETECTRON2, RESIZE_BENCHMARK } ResizeRule;

typedef struct Bitmap { // an instance's mask, cropped, in the decoded image's pixels (not flipped)
  int64_t offset;       // of its first word in the batch's bits; rows of (w + 31) / 32 words, bit x % 32 of word x / 32
  int x, y, w, h;       // crop window in the image; outside it the mask is 0
  // > 0: no bits, but so many polygons in canvas pixels (resized, flipped): of each the number of points, then their x
  // and y as floats, a word each.
  int parts;
} Bitmap;
