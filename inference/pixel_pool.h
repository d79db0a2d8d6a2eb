// Pixels that were given back and are kept for images to come: fresh memory costs a page fault each 4 KB, which for an
// image of 24 megapixels is a third of its decoding.
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef struct PixelPool {
  struct {
    uint8_t *rgb;
    size_t room;
  } spare[64]; // [n]
  int n;
  size_t bytes; // of all spares
} PixelPool;

// At least so many bytes, `room` of them: the tightest spare that is larger by an eighth at most, or else malloc's.
// NULL without memory.
uint8_t *pixel_pool_take(PixelPool *p, size_t bytes, size_t *room);
void pixel_pool_give(PixelPool *p, uint8_t *rgb, size_t room); // keeps it; NULL is nothing
void pixel_pool_shrink(PixelPool *p, size_t bytes);            // frees spares, the oldest first, down to so many bytes
