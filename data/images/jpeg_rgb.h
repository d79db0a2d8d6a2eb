// From the decoded components of a JPEG to RGB, by the arithmetic of libjpeg: ITU-T T.871 and, for chroma of half the
// resolution, a triangle filter.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/scratch.h"

typedef enum JpegColors { JPEG_GRAY, JPEG_YCC, JPEG_RGB, JPEG_CMYK, JPEG_YCCK } JpegColors; // CMYK inverted, as Adobe's

typedef struct JpegPlane {
  const uint8_t *at; // [h, pitch], of which w count
  int h, w, pitch;
  int down, right; // pixels of the picture that a sample stands for: 1 … 4
} JpegPlane;

typedef struct JpegPlanes {
  int h, w; // the picture
  JpegColors colors;
  JpegPlane plane[4];
} JpegPlanes;

// To rgb[h, w, 3]; false when there is no memory.
bool jpeg_planes_to_rgb(const JpegPlanes *p, uint8_t *rgb, Scratch *scratch);
