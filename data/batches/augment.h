// Which part of an image a canvas shows, and how it is turned: one affine map for each image, a pure function of its
// key. The device applies it as it resizes (nn/ops.h, preprocess_affine).
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "data/batches/canvas.h"

typedef struct Augment { // drawn for every image and epoch, evenly over the range; all zero: none
  float rotate;          // degrees, to either side
  float shift;           // of the canvas's width and height, to either side, each by itself
  float shear;           // degrees below 80, to either side: rows are pushed along themselves
  float zoom;            // larger or smaller by this share, below 1, width and height each by itself
  float crop;            // random resized crop: the smallest share of the image's area that fills the canvas; 0: none
} Augment;

// The map of an image, `size` pixels large, to a canvas: what canvas pixel (x, y) shows is at (map[0] x + map[1] y +
// map[2], map[3] x + map[4] y + map[5]) of the image, pixel centres at half-integers.
//
// Without a crop, the canvas shows the largest centred part of its own shape times `view`: 1 is all of a square image,
// 0.875 what is left when the shorter side becomes 256 and the middle 224 are cut out. With one, it shows a part as
// torchvision's RandomResizedCrop draws it (Szegedy et al., "Going Deeper with Convolutions", 2014): its area between
// `crop` and 1 of the image's, its aspect between 3:4 and 4:3, evenly on a logarithmic scale. The canvas is then
// zoomed, sheared and turned about its middle, and shifted. a NULL: only the view; flip: mirrored left-right.
void augment_map(const Augment *a, float view, uint64_t key, bool flip, Size size, Size canvas, float map[6]);
