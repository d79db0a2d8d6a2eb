// Converts a JPEG's decoded components to RGB with libjpeg's arithmetic: ITU-T T.871 and, for chroma at half
// resolution, a triangle filter.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/scratch.h"
#include "data/images/row_target.h"

typedef enum JpegColors { JPEG_GRAY, JPEG_YCC, JPEG_RGB, JPEG_CMYK, JPEG_YCCK } JpegColors; // CMYK inverted, as Adobe's

typedef struct JpegPlane {
  const uint8_t *at; // [h, pitch], of which w columns are used
  int h, w, pitch;
  int down, right; // pixels of the image per sample: 1 … 4
} JpegPlane;

typedef struct JpegPlanes {
  int h, w; // the image
  JpegColors colors;
  JpegPlane plane[4];
} JpegPlanes;

// False if out of memory.
bool jpeg_planes_to_rgb(const JpegPlanes *p, const RowTarget *to, Scratch *scratch);
