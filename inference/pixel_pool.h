// Keeps released pixel memory for reuse: fresh memory costs a page fault per 4 KB, which for an image of 24 megapixels
// is a third of its decoding time.
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

// Returns at least `bytes` bytes, the size in `room`: the smallest spare that is at most an eighth larger, otherwise
// new memory. NULL if out of memory.
uint8_t *pixel_pool_take(PixelPool *p, size_t bytes, size_t *room);
void pixel_pool_give(PixelPool *p, uint8_t *rgb, size_t room); // keeps it for reuse; NULL is allowed
void pixel_pool_shrink(PixelPool *p, size_t bytes); // frees spares, the oldest first, down to that many bytes
