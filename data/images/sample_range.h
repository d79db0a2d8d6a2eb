// The range of 16-bit samples that is shown as 0 … 255. Cameras of 10, 12 or 14 bits write files of 16, of which they
// use a part. Samples of 8 bits and fewer have no range.
#pragma once
#include <stdint.h>
#include "base/error.h"

enum { SAMPLE_VALUES = 1 << 16 };

typedef struct SampleRange {
  int low, high; // low becomes 0, high 255; high 0 stands for 65535, so that zeros are the range of the type
} SampleRange;

static inline int sample_range_high(SampleRange r) { return r.high ? r.high : SAMPLE_VALUES - 1; }
static inline int sample_range_span(SampleRange r) { return sample_range_high(r) - r.low; }

// The values from low to high in 256 equal parts; those beyond saturate. The range of the type keeps the upper byte, as
// libpng's png_set_strip_16 does.
static inline uint8_t sample_range_byte(SampleRange r, int sample) {
  if (sample <= r.low) return 0;
  if (sample >= sample_range_high(r)) return 255;
  return (uint8_t)((uint32_t)(sample - r.low) * 256 / (uint32_t)(sample_range_span(r) + 1));
}

static inline bool sample_range_same(SampleRange a, SampleRange b) {
  return a.low == b.low && sample_range_high(a) == sample_range_high(b);
}

// "LOW,HIGH", or "type" for the full range of 16 bits. False with a message that begins with the text.
bool sample_range_parse(SampleRange *r, const char *text, Err *err);
enum { SAMPLE_RANGE_TEXT = 16 };
void sample_range_text(SampleRange r, char text[SAMPLE_RANGE_TEXT]); // "0,4095"
