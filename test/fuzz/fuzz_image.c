// Catches images that crash the decoder.
//
// Fuzzes the image decoder. Seeds: test/corpus/image.
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "base/alloc.h"
#include "data/images/image.h"
#include "data/images/jpeg.h"

enum { MAX_PIXELS = 48 * 48 }; // larger images take longer, nothing else

// The pixels that the header announces; 0 where it cannot be read.
static int64_t announced(const uint8_t *bytes, size_t size) {
  JpegFrame frame;
  ImageFault fault;
  if (jpeg_is(bytes, size)) return jpeg_frame(bytes, size, &frame, &fault) ? (int64_t)frame.h * frame.w : 0;
  if (size < 24) return 0;
  uint32_t side[2];
  memcpy(side, bytes + 16, sizeof side);
  for (int i = 0; i < 2; i++) side[i] = __builtin_bswap32(side[i]) & INT32_MAX;
  return (int64_t)side[0] * side[1];
}

static volatile uint8_t sink;

// Makes the checksums of a PNG's chunks right, which mutations seldom are.
static void repair(uint8_t *bytes, size_t size) {
  for (size_t at = 8, length; at + 12 <= size; at += 12 + length) {
    uint32_t word;
    memcpy(&word, bytes + at, sizeof word);
    length = __builtin_bswap32(word);
    if (length > size - at - 12) return;
    word = __builtin_bswap32((uint32_t)crc32(0, bytes + at + 4, (uInt)length + 4));
    memcpy(bytes + at + 8 + length, &word, sizeof word);
  }
}

static void decode(const uint8_t *bytes, size_t size) {
  int64_t pixels = announced(bytes, size);
  if (pixels > MAX_PIXELS) return;
  Image im;
  Err err = {""};
  bool ok = image_decode(&im, bytes, size, "FILE", &err);
  CHECK(ok || (*err.msg && !strchr(err.msg, '\n') && !im.rgb));
  if (!ok) return;
  CHECK((int64_t)im.h * im.w == pixels); // what was bounded is what was decoded
  int orientation = image_orientation(bytes, size);
  CHECK(orientation >= 1 && orientation <= 8);
  Scratch scratch = {0};
  CHECK(
      image_decode_into(im.rgb, orientation, (SampleRange){0}, bytes, size, &scratch, "FILE", &err)); // over it, turned
  for (int64_t i = 0; i < 3 * pixels; i++) sink = im.rgb[i];
  scratch_free(&scratch);
  image_free(&im);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  decode(bytes, size);
  if (size < 8 || memcmp(bytes, "\x89PNG", 4)) return 0;
  uint8_t *copy = memcpy(xmalloc(size), bytes, size);
  repair(copy, size);
  decode(copy, size);
  free(copy);
  return 0;
}
