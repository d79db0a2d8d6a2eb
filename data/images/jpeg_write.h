// Baseline JPEG files of RGB images, made in memory: many small pictures for a page, where PNG would take ten times the
// room.
// ITU-T T.81, with the example tables of its annex K.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "data/images/image.h"

// quality: 1 … 100, as libjpeg scales it. Caller frees.
uint8_t *jpeg_encode(const Image *im, int quality, size_t *size);
