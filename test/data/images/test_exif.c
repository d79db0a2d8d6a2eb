// Catches EXIF orientations that are missed, or taken from a block that does not validly hold one.
#include <zlib.h>
#include "base/alloc.h"
#include "base/file.h"
#include "data/images/exif.h"
#include "data/images/image.h"
#include "data/images/jpeg_write.h"
#include "data/images/png.h"
#include "test/harness/exif.h"
#include "test/harness/test.h"

enum { LONG_OFFSET = 9999 };

// What Pillow 13's ImageOps.exif_transpose does with the same bytes; 0: it leaves the image alone.
TEST(exif_orientation_as_pillow_reads_it) {
  static const struct {
    const char *what;
    ExifEntry entry[2];
    int n, want;
  } cases[] = {
      {"SHORT", {{EXIF_TAG, EXIF_SHORT, 1, 6}}, 1, 6},
      {"LONG", {{EXIF_TAG, EXIF_LONG, 1, 6}}, 1, 6},
      {"behind another entry", {{0x10f, 2, 1000, LONG_OFFSET}, {EXIF_TAG, EXIF_SHORT, 1, 8}}, 2, 8},
      {"out of order", {{0x8769, EXIF_LONG, 1, LONG_OFFSET}, {EXIF_TAG, EXIF_SHORT, 1, 2}}, 2, 2},
      {"behind one of no known type", {{0x100, 77, 1, 5}, {EXIF_TAG, EXIF_SHORT, 1, 3}}, 2, 3},
      {"twice", {{EXIF_TAG, EXIF_SHORT, 1, 6}, {EXIF_TAG, EXIF_SHORT, 1, 3}}, 2, 6},
      {"first invalid", {{EXIF_TAG, EXIF_SHORT, 1, 9}, {EXIF_TAG, EXIF_SHORT, 1, 6}}, 2, 0},
      {"0", {{EXIF_TAG, EXIF_SHORT, 1, 0}}, 1, 0},
      {"9", {{EXIF_TAG, EXIF_SHORT, 1, 9}}, 1, 0},
      {"65542 is not 6", {{EXIF_TAG, EXIF_LONG, 1, 65542}}, 1, 0},
      {"no value", {{EXIF_TAG, EXIF_SHORT, 0, 6}}, 1, 0},
      {"beyond the block", {{EXIF_TAG, EXIF_SHORT, 1000, LONG_OFFSET}}, 1, 0},
      {"a count that overflows", {{EXIF_TAG, EXIF_LONG, 0xffffffff, 0}}, 1, 0},
      {"text", {{EXIF_TAG, 2, 2, '6'}}, 1, 0},
      {"none", {{0x10f, EXIF_SHORT, 1, 6}}, 1, 0},
  };
  for (int i = 0; i < COUNT(cases); i++)
    for (int big = 0; big < 2; big++) {
      uint8_t tiff[EXIF_ROOM];
      const size_t size = exif_tiff(tiff, big, cases[i].entry, cases[i].n);
      if (!EXPECT_INT(exif_orientation(tiff, size), cases[i].want)) printf("    %s\n", cases[i].what);
    }
}

// Every prefix, in memory of just that size, so that the sanitizers see a byte read past it.
static int of_prefix(const uint8_t *bytes, size_t n) {
  uint8_t *exact = memcpy(xmalloc(n), bytes, n);
  const int orientation = exif_orientation(exact, n);
  free(exact);
  return orientation;
}

TEST(exif_blocks_that_are_damaged) {
  uint8_t tiff[EXIF_ROOM];
  const size_t size = exif_of(tiff, 6), whole_entry = size - 4;
  for (size_t n = 0; n <= size; n++) EXPECT_INT(of_prefix(tiff, n), n < whole_entry ? 0 : 6);
  uint8_t prefixed[EXIF_ROOM] = "Exif\0";
  memcpy(prefixed + 6, tiff, size);
  EXPECT_INT(exif_orientation(prefixed, size + 6), 6);
  memmove(prefixed + 6, prefixed, size + 6); // as Pillow reads it
  EXPECT_INT(exif_orientation(prefixed, size + 12), 6);
  tiff[9] = 200; // more entries than there are
  EXPECT_INT(exif_orientation(tiff, size), 6);
  tiff[9] = 0;
  EXPECT_INT(exif_orientation(tiff, size), 0);
  exif_of(tiff, 6);
  memcpy(tiff + 4, "\xff\xff\xff\xff", 4); // the directory is elsewhere
  EXPECT_INT(of_prefix(tiff, size), 0);
  exif_of(tiff, 6);
  tiff[3] = 43; // BigTIFF, or none
  EXPECT_INT(exif_orientation(tiff, size), 0);
  exif_of(tiff, 6);
  memcpy(tiff, "XX", 2);
  EXPECT_INT(exif_orientation(tiff, size), 0);
}

// ---- files ----------------------------------------------------------------------------------------------------------

enum { W = 6, H = 4 };

static uint8_t *plain(bool png, size_t *size) {
  char path[512];
  Err err;
  Image im = image_alloc(H, W);
  snprintf(path, sizeof path, "%s/exif-plain.png", test_tmp());
  CHECK(png_write(path, &im, PNG_FAST, &err));
  uint8_t *bytes = png ? (uint8_t *)file_read(path, size, &err) : jpeg_encode(&im, 90, size);
  image_free(&im);
  return bytes;
}

// That all readers of the file agree on its orientation; frees the bytes.
static void expect_orientation(const char *what, uint8_t *bytes, size_t size, int want) {
  char path[512];
  int h, w, orientation;
  Err err = {""};
  Image im;
  snprintf(path, sizeof path, "%s/exif-file", test_tmp());
  FILE *f = fopen(path, "wb");
  CHECK(f && fwrite(bytes, 1, size, f) == size && fclose(f) == 0);
  bool ok = EXPECT_INT(image_orientation(bytes, size), want);
  ok &= EXPECT(image_header(path, true, &h, &w, &orientation, &err)) && EXPECT_INT(orientation, want);
  const bool turned = want >= IMAGE_TURNED;
  ok &= EXPECT(image_info(path, true, &h, &w, &err) && h == (turned ? W : H) && w == (turned ? H : W));
  if (EXPECT(image_load_as(&im, path, true, (SampleRange){0}, &err))) ok &= EXPECT(im.h == h && im.w == w);
  image_free(&im);
  EXPECT(image_info(path, false, &h, &w, &err) && h == H && w == W);
  if (!ok) printf("    %s: %s\n", what, err.msg);
  free(bytes);
}

static size_t segment(uint8_t body[EXIF_ROOM + 6], int orientation) {
  memcpy(body, "Exif\0", 6);
  return 6 + exif_of(body + 6, orientation);
}

TEST(exif_in_jpeg_files) {
  static uint8_t large[65000];
  uint8_t body[EXIF_ROOM + 6];
  size_t size, n;
  uint8_t *jpeg = plain(false, &size), *one, *two;
  for (int o = 0; o <= 9; o++) {
    one = jpeg_with_segment(jpeg, size, body, segment(body, o), &n);
    expect_orientation("one block", one, n, o >= 1 && o <= 8 ? o : 1);
  }
  one = jpeg_with_segment(jpeg, size, body, segment(body, 3), &n);
  two = jpeg_with_segment(one, n, body, segment(body, 6), &n);
  expect_orientation("of two blocks the first", two, n, 6);
  free(one);
  one = jpeg_with_segment(jpeg, size, body, segment(body, 6), &n);
  two = jpeg_with_segment(one, n, "http://ns.adobe.com/xap/1.0/", 29, &n);
  expect_orientation("behind other metadata", two, n, 6);
  free(one);
  one = jpeg_with_segment(jpeg, size, body, segment(body, 6), &n);
  two = jpeg_with_segment(one, n, large, sizeof large, &n);
  expect_orientation("behind many bytes of metadata", two, n, 6);
  free(one);
  segment(large, 6);
  one = jpeg_with_segment(jpeg, size, large, sizeof large, &n);
  expect_orientation("with a thumbnail", one, n, 6);
  // Behind the pixels it is no metadata of the image.
  const size_t length = segment(body, 6);
  one = memcpy(xmalloc(size + length + 4), jpeg, size - 2);
  memcpy(one + size - 2, "\xff\xe1\0", 3);
  one[size + 1] = (uint8_t)(length + 2);
  memcpy(one + size + 2, body, length);
  memcpy(one + size + 2 + length, "\xff\xd9", 2);
  expect_orientation("behind the pixels", one, size + length + 4, 1);
  free(jpeg);
}

static size_t raw_profile(char *text, bool compressed, int orientation) {
  uint8_t tiff[EXIF_ROOM];
  char lines[2048];
  const size_t n = exif_of(tiff, orientation);
  int at = snprintf(lines, sizeof lines, "\nexif\n%8zu", n + 6);
  for (size_t i = 0; i < n + 6; i++)
    at += snprintf(lines + at, sizeof lines - (size_t)at, "%s%02x", i % 36 ? "" : "\r\n ", // white space of any kind
                   i < 6 ? (unsigned)"Exif\0"[i] : tiff[i - 6]);
  const size_t keyword = sizeof "Raw profile type exif";
  memcpy(text, "Raw profile type exif", keyword);
  if (!compressed) return keyword + (size_t)snprintf(text + keyword, 2048, "%s\n", lines);
  uLongf packed = 2048;
  text[keyword] = 0;
  CHECK(compress((Bytef *)text + keyword + 1, &packed, (const Bytef *)lines, (uLong)at) == Z_OK);
  return keyword + 1 + packed;
}

TEST(exif_in_png_files) {
  uint8_t tiff[EXIF_ROOM];
  char text[4096];
  size_t size, n;
  uint8_t *png = plain(true, &size), *one, *two;
  for (int o = 0; o <= 9; o++)
    for (int after = 0; after < 2; after++) {
      one = png_with_chunk(png, size, after ? "IEND" : "IDAT", "eXIf", tiff, exif_of(tiff, o), &n);
      expect_orientation(after ? "behind the pixels" : "before the pixels", one, n, o >= 1 && o <= 8 ? o : 1);
    }
  one = png_with_chunk(png, size, "IDAT", "eXIf", tiff, exif_of(tiff, 3), &n);
  two = png_with_chunk(one, n, "IEND", "eXIf", tiff, exif_of(tiff, 6), &n);
  free(one);
  expect_orientation("of two chunks the first", two, n, 3);
  for (int compressed = 0; compressed < 2; compressed++) {
    const char *type = compressed ? "zTXt" : "tEXt";
    one = png_with_chunk(png, size, "IDAT", type, text, raw_profile(text, compressed, 6), &n);
    size_t longer;
    two = png_with_chunk(one, n, "IEND", "eXIf", tiff, exif_of(tiff, 3), &longer);
    expect_orientation(type, one, n, 6);
    expect_orientation("eXIf before text", two, longer, 3);
  }
  static const char bad[][40] = {"Raw profile type exif", "Raw profile type exif\0\nexif\n 12\nzz\n",
                                 "Raw profile type exif\0no lines"};
  for (int i = 0; i < COUNT(bad); i++) {
    one = png_with_chunk(png, size, "IDAT", i ? "tEXt" : "zTXt", bad[i], i ? sizeof bad[i] : 22, &n);
    expect_orientation("text without a profile", one, n, 1);
  }
  one = png_with_chunk(png, size, "IDAT", "eXIf", "", 0, &n);
  expect_orientation("an empty chunk", one, n, 1);
  free(png);
}
