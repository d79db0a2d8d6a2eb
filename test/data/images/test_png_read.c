// Catches PNG files read to other pixels than they hold: damaged ones, and valid ones in unusual encodings.
#include <zlib.h>
#include "base/alloc.h"
#include "base/rng.h"
#include "data/images/image.h"
#include "data/images/png.h"
#include "data/images/png_read.h"
#include "test/harness/test.h"

enum { ROOM = 1 << 16 };
typedef struct Png {
  uint8_t bytes[ROOM];
  size_t n;
} Png;

static void put_u32(uint8_t *p, uint32_t v) {
  for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> (24 - 8 * i));
}

static void chunk(Png *png, const char *type, const void *data, size_t size) {
  CHECK(png->n + size + 12 <= ROOM);
  uint8_t *at = png->bytes + png->n;
  put_u32(at, (uint32_t)size);
  memcpy(at + 4, type, 4);
  if (size) memcpy(at + 8, data, size);
  put_u32(at + 8 + size, (uint32_t)crc32(0, at + 4, (uInt)size + 4));
  png->n += size + 12;
}

static void begin(Png *png, int h, int w, int bits, int color, int interlace) {
  uint8_t header[13] = {[8] = (uint8_t)bits, (uint8_t)color, 0, 0, (uint8_t)interlace};
  put_u32(header, (uint32_t)w);
  put_u32(header + 4, (uint32_t)h);
  memcpy(png->bytes, "\x89PNG\r\n\x1a\n", 8);
  png->n = 8;
  chunk(png, "IHDR", header, sizeof header);
}

static size_t pack(const uint8_t *filtered, size_t size, uint8_t *packed, size_t room) {
  uLongf n = room;
  CHECK(compress2(packed, &n, filtered, size, 6) == Z_OK);
  return n;
}

// One IDAT and the end.
static void finish(Png *png, const uint8_t *filtered, size_t size) {
  static uint8_t packed[ROOM];
  chunk(png, "IDAT", packed, pack(filtered, size, packed, sizeof packed));
  chunk(png, "IEND", NULL, 0);
}

static void expect_refused(const Png *png, const char *reason) {
  Image im;
  Err err = {""};
  EXPECT(!image_decode(&im, png->bytes, png->n, "x.png", &err) && strstr(err.msg, "x.png: cannot read the image: "));
  if (!EXPECT(strstr(err.msg, reason) != NULL)) printf("    %s, not %s\n", err.msg, reason);
  image_free(&im);
}

static void expect_pixels(const Png *png, int h, int w, const uint8_t *rgb) {
  Image im;
  Err err = {""};
  if (EXPECT(image_decode(&im, png->bytes, png->n, "x.png", &err)) && EXPECT(im.h == h && im.w == w))
    EXPECT(!memcmp(im.rgb, rgb, (size_t)h * w * 3));
  else
    printf("    %s\n", err.msg);
  image_free(&im);
}

// Samples of a row of `samples`, `bits` each, packed from the upper end of a byte.
static size_t pack_samples(const uint16_t *sample, size_t samples, int bits, uint8_t *row) {
  memset(row, 0, (samples * bits + 7) / 8);
  for (size_t i = 0; i < samples; i++)
    for (int b = 0; b < bits; b++)
      row[(i * bits + b) / 8] |= (uint8_t)((sample[i] >> (bits - 1 - b) & 1) << (7 - (i * bits + b) % 8));
  return (samples * bits + 7) / 8;
}

static int predict(int filter, int a, int b, int c) {
  const int p = a + b - c, pa = abs(p - a), pb = abs(p - b), pc = abs(p - c);
  const int paeth = pa <= pb && pa <= pc ? a : pb <= pc ? b : c;
  return filter == 0 ? 0 : filter == 1 ? a : filter == 2 ? b : filter == 3 ? (a + b) / 2 : paeth;
}

// 16-bit samples are scaled from a range, or counted without those of alpha; other files have none.
static void expect_range(const Png *png, const uint16_t *samples, int pixels, int channels, int bits) {
  enum { MOST = 400 };
  const SampleRange range = {1000, 40000};
  const int colors = channels - (channels % 2 == 0);
  Scratch scratch = {0};
  ImageFault fault;
  uint8_t rgb[MOST * 3];
  uint32_t *count = xcalloc(SAMPLE_VALUES, sizeof *count);
  int64_t wrong = 0, all = 0;
  EXPECT(png_count(count, png->bytes, png->n, &scratch, &fault));
  for (int v = 0; v < SAMPLE_VALUES; v++) all += count[v];
  EXPECT_INT(all, bits == 16 ? pixels * colors : 0);
  Err err;
  if (bits == 16 && EXPECT(image_decode_into(rgb, 1, range, png->bytes, png->n, &scratch, "x.png", &err)))
    for (int i = 0; i < pixels; i++)
      for (int c = 0; c < 3; c++) {
        const int v = samples[i * channels + (colors == 3 ? c : 0)];
        wrong += rgb[3 * i + c] != sample_range_byte(range, v);
        if (c < colors) wrong += count[v]-- == 0;
      }
  EXPECT_INT(wrong, 0);
  free(count);
  scratch_free(&scratch);
}

static const int adam7[7][4] = {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4},
                                {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}};

// All pixel types through all filters, encoded here exactly as the specification says.
static void check_type(int h, int w, int color, int bits, bool interlaced) {
  enum { MOST = 20 };
  static const int channels_of[] = {1, 0, 3, 1, 2, 0, 4};
  const int channels = channels_of[color];
  const size_t bpp = (size_t)MAX(channels * bits / 8, 1);
  uint16_t samples[MOST * MOST * 4];
  uint8_t filtered[MOST * MOST * 9], rgb[MOST * MOST * 3], palette[256][3];
  size_t n = 0;
  for (int i = 0; i < h * w * channels; i++)
    samples[i] = (uint16_t)(rng_u32(RNG_TEST, (uint64_t)(i + 1000 * bits + 100000 * color)) >> (32 - bits));
  for (int i = 0; i < 256 * 3; i++) palette[i / 3][i % 3] = (uint8_t)rng_u32(7, (uint64_t)i);
  for (int i = 0; i < h * w; i++)
    for (int c = 0; c < 3; c++) {
      const uint16_t *pixel = samples + i * channels;
      const int v = pixel[channels >= 3 ? c : 0];
      rgb[3 * i + c] = (uint8_t)(color == 3 ? palette[v][c] : bits == 16 ? v >> 8 : v * 255 / ((1 << bits) - 1));
    }
  for (int pass = 0; pass < (interlaced ? 7 : 1); pass++) {
    const int *p = interlaced ? adam7[pass] : (const int[]){0, 0, 1, 1};
    uint8_t row[2][MOST * 8] = {{0}};
    for (int y = p[1], line = 0; y < h && p[0] < w; y += p[3], line++) {
      uint16_t taken[MOST * 4];
      size_t count = 0;
      for (int x = p[0]; x < w; x += p[2])
        for (int c = 0; c < channels; c++) taken[count++] = samples[(y * w + x) * channels + c];
      uint8_t *now = row[line % 2], *up = row[1 - line % 2];
      const size_t size = pack_samples(taken, count, bits, now);
      const int filter = (line + pass + bits) % 5;
      filtered[n++] = (uint8_t)filter;
      for (size_t i = 0; i < size; i++)
        filtered[n++] =
            (uint8_t)(now[i] - predict(filter, i < bpp ? 0 : now[i - bpp], up[i], i < bpp ? 0 : up[i - bpp]));
    }
  }
  Png png;
  begin(&png, h, w, bits, color, interlaced);
  if (color == 3) chunk(&png, "PLTE", palette, (size_t)3 << bits);
  finish(&png, filtered, n);
  expect_pixels(&png, h, w, rgb);
  expect_range(&png, samples, h * w, channels, bits);
}

TEST(png_read_all_types) {
  static const int sizes[][2] = {{1, 1}, {1, 3}, {9, 1}, {7, 5}, {13, 20}};
  for (int color = 0; color <= 6; color++)
    for (int bits = 1; bits <= 16; bits *= 2) {
      if (color == 1 || color == 5 || (color == 3 ? bits == 16 : color != 0 && bits < 8)) continue;
      for (int i = 0; i < 2 * COUNT(sizes); i++) check_type(sizes[i / 2][0], sizes[i / 2][1], color, bits, i % 2);
    }
}

static const uint8_t ramp[] = {0, 0, 1, 2, 3, 0, 4, 5, 6, 7}; // two rows of four, unfiltered

TEST(png_read_palette_beyond_its_end_is_black) {
  static const uint8_t two[] = {255, 0, 0, 1, 2, 3}, black[24] = {255, 0, 0, 1, 2, 3};
  static const int bits[] = {8, 4};
  static const uint8_t nibbles[] = {0, 0x01, 0x23, 0, 0x45, 0x67};
  for (int i = 0; i < COUNT(bits); i++) {
    Png png;
    begin(&png, 2, 4, bits[i], 3, 0);
    chunk(&png, "PLTE", two, sizeof two);
    if (i == 0)
      finish(&png, ramp, sizeof ramp);
    else
      finish(&png, nibbles, sizeof nibbles);
    expect_pixels(&png, 2, 4, black);
  }
}

TEST(png_read_pixels_cut_into_chunks) {
  uint8_t packed[100], rgb[24];
  const size_t size = pack(ramp, sizeof ramp, packed, sizeof packed);
  for (int i = 0; i < 24; i++) rgb[i] = (uint8_t)(i / 3);
  for (size_t cut = 0; cut <= size; cut++) { // also empty chunks, first and last
    Png png;
    begin(&png, 2, 4, 8, 0, 0);
    chunk(&png, "IDAT", packed, cut);
    chunk(&png, "IDAT", NULL, 0);
    chunk(&png, "IDAT", packed + cut, size - cut);
    chunk(&png, "IEND", NULL, 0);
    expect_pixels(&png, 2, 4, rgb);
  }
}

// The checksum of the pixels, in a chunk whose own is right.
TEST(png_read_verifies_adler) {
  uint8_t packed[100];
  const size_t size = pack(ramp, sizeof ramp, packed, sizeof packed);
  for (size_t i = 0; i < 4; i++) {
    Png png;
    packed[size - 1 - i] ^= 1;
    begin(&png, 2, 4, 8, 0, 0);
    chunk(&png, "IDAT", packed, size);
    chunk(&png, "IEND", NULL, 0);
    expect_refused(&png, "corrupt (its compressed pixels: incorrect data check)");
    packed[size - 1 - i] ^= 1;
  }
  Png png;
  begin(&png, 2, 4, 8, 0, 0);
  chunk(&png, "IDAT", packed, size - 1);
  chunk(&png, "IEND", NULL, 0);
  expect_refused(&png, "corrupt (its compressed pixels: they end too early)");
}

TEST(png_read_refuses_by_cause) {
  static const uint8_t palette[] = {1, 2, 3, 4};
  static const uint8_t wrong_filter[] = {0, 0, 1, 2, 3, 5, 4, 5, 6, 7};
  Png png;
  begin(&png, 2, 4, 8, 0, 0);
  finish(&png, wrong_filter, sizeof wrong_filter);
  expect_refused(&png, "corrupt (row 1 has an unknown filter, 5)");
  begin(&png, 2, 4, 8, 0, 0);
  finish(&png, ramp, 5);
  expect_refused(&png, "they end too early");
  begin(&png, 2, 4, 8, 0, 0);
  chunk(&png, "IEND", NULL, 0);
  expect_refused(&png, "corrupt (no IDAT chunk)");
  begin(&png, 2, 4, 8, 0, 0);
  chunk(&png, "ABCD", NULL, 0);
  expect_refused(&png, "corrupt (an unknown critical chunk, ABCD)");
  begin(&png, 2, 4, 8, 3, 0);
  finish(&png, ramp, sizeof ramp);
  expect_refused(&png, "corrupt (no palette)");
  begin(&png, 2, 4, 8, 3, 0);
  chunk(&png, "PLTE", palette, sizeof palette);
  expect_refused(&png, "corrupt (a palette of 4 bytes)");
  begin(&png, 2, 4, 8, 3, 0);
  chunk(&png, "PLTE", palette, 3);
  chunk(&png, "PLTE", palette, 3);
  finish(&png, ramp, sizeof ramp);
  expect_refused(&png, "corrupt (a second palette)");
  begin(&png, 2, 4, 8, 0, 0);
  chunk(&png, "IHDR", png.bytes + 16, 13);
  finish(&png, ramp, sizeof ramp);
  expect_refused(&png, "corrupt (a second IHDR)");
  png.bytes[16] = 0x80;
  expect_refused(&png, "corrupt (wrong checksum in the chunk at byte 8)"); // not a size that nobody gave it
  begin(&png, 2, INT32_MIN, 8, 0, 0);
  expect_refused(&png, "corrupt (its header says 21474836");
  begin(&png, 2, 4, 8, 0, 0);
  chunk(&png, "t\xffXt", ramp, 1);
  finish(&png, ramp, sizeof ramp);
  expect_refused(&png, "corrupt (the type of the chunk at byte 33 has characters other than letters)");
  begin(&png, 2, 4, 4, 2, 0);
  expect_refused(&png, "corrupt (invalid header: colour type 2 with 4 bits)");
  begin(&png, 2, 4, 8, 0, 2);
  expect_refused(&png, "corrupt (invalid header: compression 0, filter 0, interlace 2");
  begin(&png, 2, 4, 8, 0, 0);
  expect_refused(&png, "the file is truncated (ends without an IEND chunk)");
  begin(&png, 2, 4, 8, 0, 0);
  finish(&png, ramp, sizeof ramp);
  png.n -= 13; // the end, and a byte of the checksum before it
  expect_refused(&png, "the file is truncated (ends within the chunk at byte 33)");
  begin(&png, 2, 4, 8, 0, 0);
  chunk(&png, "IDAT", ramp, 1);
  chunk(&png, "tEXt", ramp, 1);
  finish(&png, ramp, sizeof ramp);
  expect_refused(&png, "corrupt (other chunks lie between its IDAT chunks)");
  begin(&png, 30000, 8000, 8, 0, 0);
  finish(&png, ramp, sizeof ramp);
  expect_refused(&png, "bytes are too few for 8000×30000 pixels");
  begin(&png, 2, 4, 8, 0, 0);
  memcpy(png.bytes + 12, "CgBI", 4);
  expect_refused(&png, "a PNG in the iPhone format of Xcode; convert it");
}

// One bit flipped anywhere: refused, for every chunk has a checksum, or of the same pixels.
static void flip_bits(const uint8_t *bytes, size_t size, uint64_t flips, bool every) {
  Image im, other;
  Err err = {""};
  uint8_t *copy = memcpy(xmalloc(size), bytes, size);
  if (!EXPECT(image_decode(&im, bytes, size, "x.png", &err))) return;
  int silent = 0;
  for (uint64_t i = 0; i < flips; i++) {
    const size_t bit = every ? i : (size_t)rng_u32(RNG_TEST, i) % (8 * size);
    copy[bit / 8] ^= (uint8_t)(1 << bit % 8);
    if (image_decode(&other, copy, size, "x.png", &err)) silent++;
    image_free(&other);
    copy[bit / 8] ^= (uint8_t)(1 << bit % 8);
  }
  EXPECT_INT(silent, 0);
  image_free(&im);
  free(copy);
}

TEST(png_read_notices_a_flipped_bit) {
  Png png;
  begin(&png, 2, 4, 8, 0, 0);
  chunk(&png, "tEXt", "Software\0x", 10);
  finish(&png, ramp, sizeof ramp);
  flip_bits(png.bytes, png.n, 8 * png.n, true);
  enum { SIDE = 40 };
  uint8_t filtered[SIDE * (SIDE + 1)] = {0};
  for (int i = 0; i < SIDE * (SIDE + 1); i++)
    if (i % (SIDE + 1)) filtered[i] = (uint8_t)(i / 40 * (i % 7));
  begin(&png, SIDE, SIDE, 8, 0, 0);
  finish(&png, filtered, sizeof filtered);
  flip_bits(png.bytes, png.n, 300, false);
}

// Rows are inflated many at a time, the last of which the next ones need: each is the one above and 1.
TEST(png_read_takes_little_memory) {
  enum { H = 700, W = 300, PIXEL = 8, ROW = 1 + W * PIXEL };
  for (int interlaced = 0; interlaced <= 1; interlaced++) {
    static Png png;
    static uint8_t packed[ROOM];
    uint8_t *filtered = xmalloc(H * (ROW + 1)), *at = filtered, *rgb = xmalloc(3 * H * W);
    for (int pass = 0; pass < (interlaced ? 7 : 1); pass++) {
      const int *p = interlaced ? adam7[pass] : (const int[]){0, 0, 1, 1};
      const int w = (W - p[0] + p[2] - 1) / p[2], h = (H - p[1] + p[3] - 1) / p[3];
      for (int y = 0; y < h; y++) {
        *at++ = 2; // up
        memset(at, 1, (size_t)w * PIXEL);
        at += w * PIXEL;
      }
      for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) memset(rgb + 3 * ((p[1] + y * p[3]) * W + p[0] + x * p[2]), y + 1, 3);
    }
    begin(&png, H, W, 16, 6, interlaced);
    chunk(&png, "IDAT", packed, pack(filtered, (size_t)(at - filtered), packed, sizeof packed));
    chunk(&png, "IEND", NULL, 0);
    Scratch scratch = {0};
    Err err = {""};
    uint8_t *read = xmalloc(3 * H * W);
    EXPECT(image_decode_into(read, 1, (SampleRange){0}, png.bytes, png.n, &scratch, "x.png", &err));
    EXPECT(!memcmp(read, rgb, 3 * H * W));
    EXPECT(scratch.used + scratch.more_bytes < 450000); // not the 1.7 MB of all rows
    scratch_free(&scratch);
    free(filtered);
    free(rgb);
    free(read);
  }
}

// What is behind the pixels would be inflated to a thousand times its bytes.
TEST(png_read_inflates_little_more_than_its_pixels) {
  static uint8_t rows[2 << 20];
  static Png png;
  static const uint8_t black[3 * 4 * 2];
  for (size_t surplus = 1000; surplus < sizeof rows; surplus += sizeof rows - 1010) {
    begin(&png, 2, 4, 8, 0, 0);
    finish(&png, rows, 10 + surplus);
    if (surplus == 1000)
      expect_pixels(&png, 2, 4, black);
    else
      expect_refused(&png, "corrupt (its compressed pixels: they are many more than its size needs)");
  }
}
