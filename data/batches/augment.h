// Data augmentation: which part of an image a canvas shows, and how it is rotated: one affine map per image, a pure
// function of its key. The device applies it while resizing (nn/ops.h, preprocess_affine).
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "data/batches/canvas.h"

typedef struct Augment { // drawn uniformly for every image and epoch; all zero: no augmentation
  float rotate;          // degrees, in both directions
  float shift;           // fraction of the canvas's width and height, in both directions, independently
  float shear;           // degrees below 80, in both directions: shifts rows along themselves
  float zoom;            // scale change below 1, in both directions, width and height independently
  float crop; // random resized crop: the smallest fraction of the image's area that fills the canvas; 0: none
} Augment;

// Computes the map of an image, `size` pixels large, to a canvas: canvas pixel (x, y) shows the image at (map[0] x +
// map[1] y + map[2], map[3] x + map[4] y + map[5]), pixel centres at half-integers.
//
// Without a crop, the canvas shows the largest centred part of its own shape times `view`: 1 is all of a square image,
// 0.875 is the centre crop of 224 after resizing the shorter side to 256. With a crop, it shows a random part as drawn
// by torchvision's RandomResizedCrop (Szegedy et al., "Going Deeper with Convolutions", 2014): with `crop` to 1 of the
// image's area, and an aspect ratio from 3:4 to 4:3, uniform on a logarithmic scale. The canvas is then zoomed, sheared
// and rotated about its centre, and shifted. a NULL: only the view; flip: horizontally.
void augment_map(const Augment *a, float view, uint64_t key, bool flip, Size size, Size canvas, float map[6]);
