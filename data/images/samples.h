// The samples of an image file as they are stored, for masks and label images, whose values are no colours.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Samples {
  int h, w;
  int channels;            // 1 grey or an index, 2 with alpha, 3 RGB, 4 with alpha
  int bits;                // of a sample
  bool indexed;            // the sample is an index into the palette
  uint8_t palette[256][3]; // RGB; entries that the file lacks are black
  bool clear[256];         // entries of the palette that are wholly transparent
  uint32_t *v;             // [h, w, channels]; owned
} Samples;
