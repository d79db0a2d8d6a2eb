// A string of bits, the most significant first: 32 bits: how many values; 5 bits: the bits of a value less one; four
// times 4 bits: lengths less one of the counts; then pieces: 1 bit: whether a value is repeated; 2 bits: which of the
// four lengths the count has; the count less one; the value, or all of them.
// https://github.com/HumanSignal/label-studio-converter, brush.py
#include "data/import/brush.h"

typedef struct Bits {
  const uint8_t *code;
  uint64_t at, end;
} Bits;

static uint32_t take(Bits *b, int n) {
  uint32_t v = 0;
  for (; n > 0; n--, b->at++) {
    const uint32_t bit = b->at < b->end ? b->code[b->at / 8] >> (7 - b->at % 8) & 1 : 0;
    v = v << 1 | bit;
  }
  return v;
}

bool brush_decode(uint8_t *bytes, size_t size, const uint8_t *code, size_t length) {
  Bits b = {code, 0, 8 * (uint64_t)length};
  const size_t n = take(&b, 32);
  const int value_bits = (int)take(&b, 5) + 1;
  int count_bits[4];
  for (int i = 0; i < 4; i++) count_bits[i] = (int)take(&b, 4) + 1;
  if (n != size || value_bits > 16) return false;
  for (size_t i = 0; i < n;) {
    if (b.at >= b.end) return false;
    const bool repeats = take(&b, 1);
    const size_t count = (size_t)take(&b, count_bits[take(&b, 2)]) + 1, end = i + count < n ? i + count : n;
    uint32_t value = repeats ? take(&b, value_bits) : 0;
    for (; i < end; i++) {
      if (!repeats) value = take(&b, value_bits);
      bytes[i] = (uint8_t)(value > 255 ? 255 : value);
    }
  }
  return b.at <= b.end;
}
