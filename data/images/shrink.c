#include "data/images/shrink.h"
#include <stddef.h>
#include "base/basics.h"

enum { MOST = 255 }; // a sum of MOST² bytes fits 32 bits

int shrink_factor(int h, int w, int least) { return MIN(MAX(MIN(h, w) / MAX(least, 1), 1), MOST); }

void shrink_rows(const uint8_t *rgb, int64_t pitch, int h, int w, int by, uint8_t *to) {
  const uint32_t area = (uint32_t)by * (uint32_t)by;
  for (int y = 0; y < h / by; y++)
    for (int x = 0; x < w / by; x++, to += 3) {
      const uint8_t *block = rgb + (int64_t)y * by * pitch + (int64_t)x * by * 3;
      uint32_t sum[3] = {0, 0, 0};
      for (int i = 0; i < by; i++)
        for (int j = 0; j < by; j++)
          for (int c = 0; c < 3; c++) sum[c] += block[i * pitch + j * 3 + c];
      for (int c = 0; c < 3; c++) to[c] = (uint8_t)((sum[c] + area / 2) / area);
    }
}

void shrink(const uint8_t *rgb, int h, int w, int by, uint8_t *to) { shrink_rows(rgb, 3 * (int64_t)w, h, w, by, to); }
