// Encodes RGB images as baseline JPEG files in memory, for pages with many small pictures, where PNG would be ten times
// larger. ITU-T T.81, with the example tables of its annex K.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "data/images/image.h"

// quality: 1 … 100, scaled as in libjpeg. Caller frees.
uint8_t *jpeg_encode(const Image *im, int quality, size_t *size);
