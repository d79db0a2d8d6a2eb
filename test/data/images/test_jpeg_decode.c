// Catches JPEGs decoded to other pixels than libjpeg-turbo's, and files without pixels that are accepted as images.
#include <dirent.h>
#include "base/alloc.h"
#include "base/file.h"
#include "data/images/image.h"
#include "data/images/jpeg.h"
#include "test/harness/test.h"

#define FOLDER "test/goldens/images"

static uint8_t *read_bytes(const char *path, size_t *size) {
  Err err = {""};
  char *text = file_read(path, size, &err);
  CHECK(text != NULL);
  return (uint8_t *)text;
}

static void expect_pixels(const uint8_t *bytes, size_t size, const char *ppm) {
  Image im;
  Err err = {""};
  size_t n;
  int w = 0, h = 0, start = 0;
  char *want = (char *)read_bytes(ppm, &n);
  CHECK(sscanf(want, "P6 %d %d 255%n", &w, &h, &start) == 2);
  if (!EXPECT(image_decode(&im, bytes, size, ppm, &err)))
    printf("    %s\n", err.msg);
  else if (EXPECT_INT(im.w, w) && EXPECT_INT(im.h, h))
    EXPECT(!memcmp(im.rgb, want + start + 1, (size_t)h * w * 3));
  image_free(&im);
  free(want);
}

static bool expect_refused(const uint8_t *bytes, size_t size, const char *reason) {
  Image im;
  Err err = {""};
  EXPECT(!image_decode(&im, bytes, size, "x.jpg", &err) && !im.rgb);
  const bool says = EXPECT(strstr(err.msg, reason) != NULL);
  if (!says) printf("    %s, not %s\n", err.msg, reason);
  return says;
}

// PNGs are among them.
TEST(jpeg_decode_as_libjpeg_does) {
  static const char *const refused[][2] = {
      {"jpeg-missing-scans.jpg", "corrupt (2 of its 3 components have no scan); copy or download it again"},
      {"jpeg-no-scan-baseline.jpg", "corrupt (it has no scan, so no pixels); copy"},
      {"jpeg-no-scan-progressive.jpg", "corrupt (it has no scan, so no pixels); copy"},
      {"jpeg-zero-length.jpg", "corrupt (the segment at byte 20 has an invalid length, 0); copy"},
      {"png-checksums-flipped.png", "corrupt (wrong checksum in the chunk at byte 33); copy"},
      {"png-checksums-plte.png", "corrupt (wrong checksum in the chunk at byte 33); copy"},
  };
  DIR *dir = opendir(FOLDER);
  CHECK(dir != NULL);
  int read = 0, refusals = 0;
  for (struct dirent *entry; (entry = readdir(dir));) {
    const char *name = entry->d_name, *dot = strrchr(name, '.');
    if (!dot || (strcmp(dot, ".jpg") && strcmp(dot, ".png"))) continue;
    char *path = xasprintf(FOLDER "/%s", name), *ppm = xasprintf(FOLDER "/%.*s.ppm", (int)(dot - name), name);
    size_t size;
    uint8_t *bytes = read_bytes(path, &size);
    int k = 0;
    while (k < COUNT(refused) && strcmp(refused[k][0], name)) k++;
    if (k < COUNT(refused) && expect_refused(bytes, size, refused[k][1])) refusals++;
    if (k == COUNT(refused)) {
      expect_pixels(bytes, size, ppm);
      read++;
    }
    free(bytes);
    free(path);
    free(ppm);
  }
  closedir(dir);
  EXPECT_INT(refusals, COUNT(refused));
  EXPECT(read >= 15);
}

// The first segment of that marker, from the marker on; NULL without one.
static uint8_t *find_segment(uint8_t *bytes, size_t size, int marker, size_t *length) {
  const uint8_t *at = bytes;
  for (JpegSegment s; jpeg_next(&at, bytes + size, &s) == JPEG_SEGMENT;) {
    if (s.marker != marker) continue;
    *length = s.size + 4;
    return bytes + (s.body - 4 - bytes);
  }
  return NULL;
}

static size_t remove_segments(uint8_t *bytes, size_t size, int marker) {
  size_t length;
  for (uint8_t *s; (s = find_segment(bytes, size, marker, &length)); size -= length)
    memmove(s, s + length, (size_t)(bytes + size - s) - length);
  return size;
}

// Both tables of each class; a file that brings its own for luminance only has the other filled in.
TEST(jpeg_decode_without_huffman_tables) {
  size_t size, length;
  uint8_t *bytes = read_bytes(FOLDER "/420.jpg", &size), *first = find_segment(bytes, size, JPEG_DHT, &length);
  CHECK(first != NULL);
  uint8_t *kept = memcpy(xmalloc(length), first, length);
  const size_t kept_length = length;
  size = remove_segments(bytes, size, JPEG_DHT);
  expect_pixels(bytes, size, FOLDER "/420.ppm");
  uint8_t *scan = find_segment(bytes, size, JPEG_SOS, &length);
  uint8_t *both = xmalloc(size + kept_length);
  const size_t before = (size_t)(scan - bytes);
  memcpy(both, bytes, before);
  memcpy(both + before, kept, kept_length);
  memcpy(both + before + kept_length, scan, size - before);
  expect_pixels(both, size + kept_length, FOLDER "/420.ppm");
  scan[6] = 0x22; // tables that are nowhere
  expect_refused(bytes, size, "corrupt (a scan uses DC Huffman table 2, which is missing)");
  free(both);
  free(kept);
  free(bytes);
  bytes = read_bytes(FOLDER "/420-progressive.jpg", &size);
  expect_refused(bytes, remove_segments(bytes, size, JPEG_DHT),
                 "corrupt (a scan uses DC Huffman table 0, which is missing)");
  free(bytes);
}

TEST(jpeg_decode_refuses_by_cause) {
  size_t size, length;
  uint8_t *bytes = read_bytes(FOLDER "/420.jpg", &size), *copy = xmalloc(size + 100);
#define AGAIN() memcpy(copy, bytes, size)
  AGAIN();
  expect_refused(copy, remove_segments(copy, size, JPEG_DQT),
                 "corrupt (component 1 uses quantization table 0, which is missing)");
  AGAIN();
  expect_refused(copy, remove_segments(copy, size, JPEG_SOF0), "corrupt (no frame header before its end marker)");
  AGAIN();
  find_segment(copy, size, JPEG_SOS, &length)[5] = 9;
  expect_refused(copy, size, "corrupt (a scan refers to a component that the frame does not have)");
  AGAIN();
  find_segment(copy, size, JPEG_SOS, &length)[7] = 1;
  expect_refused(copy, size, "corrupt (a scan names a component twice)");
  static const struct {
    int marker;
    const char *reason;
  } frames[] = {{0xc3, "a lossless JPEG; convert it to PNG"},
                {0xf7, "a JPEG-LS file; convert it to PNG"},
                {0xc5, "a hierarchical JPEG; convert it"},
                {0xc9, "an arithmetic-coded JPEG; convert it"}};
  for (int i = 0; i < COUNT(frames); i++) {
    AGAIN();
    find_segment(copy, size, JPEG_SOF0, &length)[1] = (uint8_t)frames[i].marker;
    expect_refused(copy, size, frames[i].reason);
  }
  AGAIN();
  find_segment(copy, size, JPEG_SOF0, &length)[4] = 12;
  expect_refused(copy, size, "a JPEG with more than 8 bits per sample; convert it to PNG");
  AGAIN();
  find_segment(copy, size, JPEG_SOF0, &length)[9] = 2;
  expect_refused(copy, size, "a JPEG of 2 components, not 1, 3 or 4; convert it to PNG");
  AGAIN();
  uint8_t *sampling = find_segment(copy, size, JPEG_SOF0, &length) + 11;
  sampling[0] = 0x31;
  sampling[3] = 0x21;
  expect_refused(copy, size, "a JPEG with 2 component samples for 3 pixels; convert it to PNG");
  AGAIN();
  memset(find_segment(copy, size, JPEG_SOF0, &length) + 5, 0, 2);
  expect_refused(copy, size, "a JPEG that gives its height only at the end (DNL); convert it to PNG");
  AGAIN();
  uint8_t *frame = find_segment(copy, size, JPEG_SOF0, &length);
  memmove(frame + length, frame, size - (size_t)(frame - copy));
  expect_refused(copy, size + length, "corrupt (two frame headers)");
  AGAIN();
  find_segment(copy, size, JPEG_DHT, &length)[1] = 0xf5;
  expect_refused(copy, size, "corrupt (an unknown marker at byte");
  for (size_t cut = 1; cut < size; cut += 7) {
    uint8_t *prefix = memcpy(xmalloc(cut), bytes, cut);
    expect_refused(prefix, cut, cut < 2 ? "not a JPEG or PNG file" : "the file is truncated (no ");
    free(prefix);
  }
  free(copy);
  free(bytes);
}

// What an end marker in the midst of the pixels leaves is no picture, though the file ends as it should.
TEST(jpeg_decode_refuses_short_scans) {
  static const char *const files[] = {FOLDER "/420.jpg", FOLDER "/444-progressive.jpg", FOLDER "/gray.jpg"};
  for (int i = 0; i < COUNT(files); i++) {
    size_t size, length;
    uint8_t *bytes = read_bytes(files[i], &size), *data = find_segment(bytes, size, JPEG_SOS, &length);
    CHECK(data != NULL);
    for (uint8_t *cut = data + length + 1; cut < data + length + 10; cut++) {
      if (cut[-1] == 0xff || cut[0] == 0xff || cut[1] == 0xff) continue;
      const uint8_t kept[2] = {cut[0], cut[1]};
      memcpy(cut, "\xff\xd9", 2);
      expect_refused(bytes, (size_t)(cut + 2 - bytes), "corrupt (");
      memcpy(cut, kept, 2);
    }
    free(bytes);
  }
}

// The last byte of a progressive scan's header says which bits of the coefficients it holds.
TEST(jpeg_decode_refuses_scans_out_of_order) {
  size_t size;
  uint8_t *bytes = read_bytes(FOLDER "/444-progressive.jpg", &size);
  int scans = 0;
  for (size_t at = 0; at + 4 < size; at++) {
    if (bytes[at] != 0xff || bytes[at + 1] != JPEG_SOS) continue;
    scans++;
    uint8_t *last = &bytes[at + 1 + bytes[at + 3]];
    for (int bit = 0; bit < 8; bit++) {
      *last ^= (uint8_t)(1 << bit);
      expect_refused(bytes, size, "corrupt (");
      *last ^= (uint8_t)(1 << bit);
    }
  }
  EXPECT(scans > 5);
  free(bytes);
}

// A flipped bit in a symbol that no pixel uses would otherwise stay.
TEST(jpeg_decode_refuses_dc_symbols_beyond_15) {
  size_t size, length;
  uint8_t *bytes = read_bytes(FOLDER "/gray.jpg", &size), *table = find_segment(bytes, size, JPEG_DHT, &length);
  CHECK(table != NULL && table[4] == 0x00 && length == 33);
  for (uint8_t *symbol = table + 4 + 17; symbol < table + length; symbol++) {
    *symbol ^= 0x40;
    expect_refused(bytes, size, "corrupt (a DC Huffman table has the invalid symbol ");
    *symbol ^= 0x40;
  }
  free(bytes);
}

// Without some of its scans a progressive file has its picture, but less sharp than it was.
TEST(jpeg_decode_refuses_missing_scans) {
  enum { MOST = 16 };
  size_t size, scan[MOST + 1], scans = 0;
  uint8_t *bytes = read_bytes(FOLDER "/444-progressive.jpg", &size);
  for (size_t at = 0; at + 1 < size; at++)
    if (bytes[at] == 0xff && (bytes[at + 1] == JPEG_SOS || bytes[at + 1] == JPEG_EOI) && scans <= MOST)
      scan[scans++] = at;
  CHECK(scans-- > 5);
  uint8_t *copy = xmalloc(size);
  for (size_t kept = 1; kept < scans; kept++) {
    memcpy(copy, bytes, scan[kept]);
    memcpy(copy + scan[kept], "\xff\xd9", 2);
    expect_refused(copy, scan[kept] + 2, " lacks later progressive scans); copy or download it again");
  }
  for (size_t lost = 0; lost < scans; lost++) {
    memcpy(copy, bytes, scan[lost]);
    memcpy(copy + scan[lost], bytes + scan[lost + 1], size - scan[lost + 1]);
    expect_refused(copy, size - (scan[lost + 1] - scan[lost]), "x.jpg: cannot read the image: ");
  }
  free(copy);
  free(bytes);
}

// Bytes that belong to nothing, before a marker or after the pixels, are skipped, as libjpeg skips them.
TEST(jpeg_decode_skips_stray_bytes) {
  static const uint8_t stray[] = {1, 2, 3};
  static const int before[] = {JPEG_DQT, JPEG_SOS, JPEG_EOI};
  size_t size, length;
  uint8_t *bytes = read_bytes(FOLDER "/422.jpg", &size), *copy = xmalloc(size + sizeof stray);
  for (int i = 0; i < COUNT(before); i++) {
    const uint8_t *at = before[i] == JPEG_EOI ? bytes + size - 2 : find_segment(bytes, size, before[i], &length);
    const size_t head = (size_t)(at - bytes);
    memcpy(copy, bytes, head);
    memcpy(copy + head, stray, sizeof stray);
    memcpy(copy + head + sizeof stray, at, size - head);
    expect_pixels(copy, size + sizeof stray, FOLDER "/422.ppm");
  }
  free(copy);
  free(bytes);
}

// Of a scan with restart markers none may be missing: what comes after it would stay undecoded.
TEST(jpeg_decode_misses_restart_markers) {
  size_t size;
  uint8_t *bytes = read_bytes("test/corpus/image/restart.jpg", &size);
  Image im;
  Err err = {""};
  EXPECT(image_decode(&im, bytes, size, "restart.jpg", &err));
  image_free(&im);
  int markers = 0;
  for (size_t i = 0; i + 1 < size; i++) {
    if (bytes[i] != 0xff || bytes[i + 1] < JPEG_RST0 || bytes[i + 1] > JPEG_RST7) continue;
    const uint8_t kept = bytes[i + 1];
    bytes[i + 1] = 0;
    expect_refused(bytes, size, " restart markers instead of ");
    bytes[i + 1] = kept ^ 1; // an interval may have been lost and another be there twice
    expect_refused(bytes, size, " is out of turn); copy");
    bytes[i + 1] = kept;
    markers++;
  }
  EXPECT(markers > 0);
  size_t at = 0;
  while (bytes[at] != 0xff || bytes[at + 1] != JPEG_RST0) at++;
  uint8_t *longer = memset(xmalloc(size + 8), 0x55, size + 8); // before it, bytes that stb_image does not step over
  memcpy(longer, bytes, at);
  memcpy(longer + at + 8, bytes + at, size - at);
  expect_refused(longer, size + 8, "corrupt (misplaced restart markers in the scan at byte ");
  free(longer);
  free(bytes);
}

// A restart marker more would end an interval early, as would the first if the file has no restart interval. One behind
// the last interval is harmless.
TEST(jpeg_decode_refuses_surplus_restarts) {
  size_t size;
  uint8_t *bytes = read_bytes("test/corpus/image/restart.jpg", &size);
  size_t first = 0, interval = 0;
  while (bytes[first] != 0xff || bytes[first + 1] != JPEG_RST0) first++;
  while (bytes[interval] != 0xff || bytes[interval + 1] != JPEG_DRI) interval++;
  uint8_t *longer = xmalloc(size + 2);
  memcpy(longer, bytes, first);
  memcpy(longer + first, "\xff\xd0", 2);
  memcpy(longer + first + 2, bytes + first, size - first);
  expect_refused(longer, size + 2, " restart markers instead of ");
  memcpy(longer, bytes, size);
  memcpy(longer + size - 2, "\xff\xd0\xff\xd9", 4);
  Image im, same;
  Err err = {""};
  EXPECT(image_decode(&im, bytes, size, "restart.jpg", &err) &&
         image_decode(&same, longer, size + 2, "longer.jpg", &err));
  EXPECT(im.h == same.h && im.w == same.w && !memcmp(im.rgb, same.rgb, (size_t)3 * im.h * im.w));
  image_free(&im);
  image_free(&same);
  bytes[interval + 4] = bytes[interval + 5] = 0;
  expect_refused(bytes, size, " restart markers instead of 0 ");
  free(longer);
  free(bytes);
}

typedef struct JpegBytes {
  uint8_t bytes[1 << 16];
  size_t size;
} JpegBytes;

static void put(JpegBytes *j, const void *bytes, size_t size) {
  CHECK(j->size + size <= sizeof j->bytes);
  memcpy(j->bytes + j->size, bytes, size);
  j->size += size;
}

static void put_zeros(JpegBytes *j, size_t size) {
  CHECK(j->size + size <= sizeof j->bytes);
  memset(j->bytes + j->size, 0, size);
  j->size += size;
}

// A progressive image of components 1 to n, whose Huffman codes are of one bit, 0: no change of a DC, and 16,384 blocks
// without AC.
static void begin_progressive(JpegBytes *j, int side, int n) {
  static const uint8_t head[] = {0xff, 0xd8, 0xff, 0xdb, 0, 67, 0};
  static const uint8_t codes[] = {0xff, 0xc4, 0, 20, 0, 1}, ac[] = {0xff, 0xc4, 0, 20, 0x10, 1};
  uint8_t ones[64];
  memset(ones, 1, sizeof ones);
  j->size = 0;
  put(j, head, sizeof head);
  put(j, ones, sizeof ones);
  put(j, (uint8_t[]){0xff, 0xc2, 0, (uint8_t)(8 + 3 * n), 8}, 5);
  put(j, (uint8_t[]){(uint8_t)(side >> 8), (uint8_t)side, (uint8_t)(side >> 8), (uint8_t)side, (uint8_t)n}, 5);
  for (int id = 1; id <= n; id++) put(j, (uint8_t[]){(uint8_t)id, 0x11, 0}, 3);
  put(j, codes, sizeof codes);
  put_zeros(j, 16);
  put(j, ac, sizeof ac);
  put_zeros(j, 15);
  put(j, (uint8_t[]){0xe0}, 1);
}

static void put_scan_of(JpegBytes *j, int id, int first, int last, int bits, size_t bytes) {
  put(j, (uint8_t[]){0xff, 0xda, 0, 8, 1, (uint8_t)id, 0, (uint8_t)first, (uint8_t)last, (uint8_t)bits}, 10);
  put_zeros(j, bytes);
}

static void put_scan(JpegBytes *j, int first, int last, int bits, size_t bytes) {
  put_scan_of(j, 1, first, last, bits, bytes);
}

static bool decodes(JpegBytes *j, char *said, size_t room) {
  Image im;
  Err err = {""};
  put(j, (uint8_t[]){0xff, 0xd9}, 2);
  const bool ok = image_decode(&im, j->bytes, j->size, "x.jpg", &err);
  if (ok) image_free(&im);
  snprintf(said, room, "%s", err.msg);
  return ok;
}

// The work is bounded by the bytes: a block takes a bit, and a thousand scans of hardly any bytes visit every block.
TEST(jpeg_decode_bounds_the_work) {
  enum { SIDE = 1024, BLOCKS = SIDE / 8 * (SIDE / 8) };
  static JpegBytes j;
  char said[512];
  begin_progressive(&j, SIDE, 1);
  put_scan(&j, 0, 0, 0, BLOCKS / 8);
  for (int k = 1; k < 64; k++) put_scan(&j, k, k, 0, 2);
  EXPECT(decodes(&j, said, sizeof said)); // black, in every scan that it can be in
  begin_progressive(&j, SIDE, 1);
  put_scan(&j, 0, 0, 0, BLOCKS / 8);
  for (int k = 1; k < 64; k++)
    for (int bit = 13; bit >= 0; bit--) put_scan(&j, k, k, (bit < 13 ? bit + 1 : 0) << 4 | bit, 2);
  EXPECT(!decodes(&j, said, sizeof said) && strstr(said, "its scans visit every block more than "));
  begin_progressive(&j, 16000, 1);
  put_scan(&j, 0, 0, 0, 200);
  EXPECT(!decodes(&j, said, sizeof said) && strstr(said, " bytes are too few for 16000×16000 pixels"));
}

// Bytes per pixel beside the image itself, in which the first component's coefficients are.
TEST(jpeg_decode_takes_little_memory) {
  enum { SIDE = 1024, BLOCKS = SIDE / 8 * (SIDE / 8), PIXELS = SIDE * SIDE };
  static const double most[] = {[1] = 1.1, [3] = 5.1, [4] = 7.1};
  static JpegBytes j;
  for (int n = 1; n <= 4; n++) {
    if (n == 2) continue; // no colour has two
    Scratch scratch = {0};
    Err err = {""};
    begin_progressive(&j, SIDE, n);
    for (int id = 1; id <= n; id++) put_scan_of(&j, id, 0, 0, 0, BLOCKS / 8);
    for (int id = 1; id <= n; id++) put_scan_of(&j, id, 1, 63, 0, 2);
    put(&j, (uint8_t[]){0xff, 0xd9}, 2);
    uint8_t *rgb = xmalloc(3 * PIXELS + 1);
    for (int odd = 0; odd <= 1; odd++) {
      const bool ok = image_decode_into(rgb + odd, 1, (SampleRange){0}, j.bytes, j.size, &scratch, "x.jpg", &err);
      if (!EXPECT(ok)) printf("    %s\n", err.msg);
      const double bytes = (double)(scratch.used + scratch.more_bytes) / PIXELS;
      if (!EXPECT(bytes < most[n])) printf("    %d components: %.2f bytes per pixel\n", n, bytes);
      int64_t other = 0; // gray, or the same three samples as a colour
      for (size_t i = 3; i < 3 * (size_t)PIXELS; i++) other += rgb[odd + i] != rgb[odd + i % 3];
      EXPECT_INT(other, 0);
      scratch_reset(&scratch);
    }
    free(rgb);
    scratch_free(&scratch);
  }
}

// T.81 asks for a component's DC first, and its coefficients are not defined before.
TEST(jpeg_decode_refuses_ac_before_dc) {
  static JpegBytes j;
  char said[512];
  begin_progressive(&j, 64, 1);
  put_scan(&j, 1, 63, 0, 8);
  put_scan(&j, 0, 0, 0, 8);
  EXPECT(!decodes(&j, said, sizeof said) && strstr(said, "corrupt (the progressive scan at byte "));
  EXPECT(strstr(said, " comes before that of its DC)"));
}
