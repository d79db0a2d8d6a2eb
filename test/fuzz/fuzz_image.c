// Catches images that crash the decoder.
//
// Fuzzes the decoding of images. Seeds: test/corpus/image.
#include <string.h>
#include "data/images/image.h"
#include "data/images/jpeg.h"

enum { MAX_PIXELS = 48 * 48 }; // larger images take longer, nothing else

// The pixels that the header announces; 0 where it cannot be read.
static int64_t announced(const uint8_t *bytes, size_t size) {
  JpegFrame frame;
  if (jpeg_is(bytes, size)) return jpeg_frame(bytes, size, &frame) ? (int64_t)frame.h * frame.w : 0;
  if (size < 24) return 0;
  uint32_t side[2];
  memcpy(side, bytes + 16, sizeof side);
  for (int i = 0; i < 2; i++) side[i] = __builtin_bswap32(side[i]) & INT32_MAX;
  return (int64_t)side[0] * side[1];
}

static volatile uint8_t sink;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  int64_t pixels = announced(bytes, size);
  if (pixels > MAX_PIXELS) return 0;
  Image im;
  Err err = {""};
  bool ok = image_decode(&im, bytes, size, "FILE", &err);
  CHECK(ok || (*err.msg && !strchr(err.msg, '\n') && !im.rgb));
  if (!ok) return 0;
  CHECK((int64_t)im.h * im.w == pixels); // what was bounded is what was decoded
  int orientation = image_orientation(bytes, size);
  CHECK(orientation >= 1 && orientation <= 8);
  Scratch scratch = {0};
  CHECK(image_decode_into(im.rgb, orientation, bytes, size, &scratch, "FILE", &err)); // over it, turned
  for (int64_t i = 0; i < 3 * pixels; i++) sink = im.rgb[i];
  scratch_free(&scratch);
  image_free(&im);
  return 0;
}
