// Catches ranges of 16-bit images that are darkened by hot pixels or by a few images of another kind, and images that
// do not agree with the range and are not named.
#include <unistd.h>
#include "base/alloc.h"
#include "base/file.h"
#include "data/images/png.h"
#include "data/survey/ranges.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

// ---- one image ------------------------------------------------------------------------------------------------------

typedef struct Part {
  int from, to, each; // so many samples of every value
} Part;

static ImageRange range_of(const Part *part, int parts) {
  static uint32_t count[SAMPLE_VALUES];
  ImageRange r = {0};
  memset(count, 0, sizeof count);
  for (int p = 0; p < parts; p++)
    for (int v = part[p].from; v <= part[p].to; v++) count[v] += (uint32_t)part[p].each;
  EXPECT(image_range(count, &r));
  return r;
}

TEST(ranges_of_images) {
  static uint32_t none[SAMPLE_VALUES];
  static const struct {
    Part part[3];
    int low, high;
  } cases[] = {
      {{{100, 1100, 10}}, 100, 1100},
      {{{100, 1100, 10}, {65535, 65535, 20}}, 100, 1100},   // hot pixels: one in 500
      {{{100, 1100, 10}, {65534, 65535, 20}}, 100, 65535},  // too many to be that
      {{{100, 1100, 10}, {65535, 65535, 9000}}, 100, 1100}, // a single value is a mark: pixels without data
      {{{9000, 9100, 10}, {0, 0, 9000}}, 0, 9100},          // a background of zeros stays apart
      {{{100, 110, 10}, {65535, 65535, 9000}}, 100, 65535}, // too few values to be a picture
      {{{100, 1100, 10}, {2000, 2000, 5}}, 100, 2000},      // stretch the range too little
      {{{32768, 33768, 10}, {0, 0, 20}}, 32768, 33768},     // dead pixels
      {{{0, 0, 100000}, {500, 500, 1}}, 0, 500},            // an object in front of nothing
      {{{7, 7, 1}}, 7, 7},
  };
  for (int i = 0; i < COUNT(cases); i++) {
    const ImageRange r = range_of(cases[i].part, 3 - !cases[i].part[2].each - !cases[i].part[1].each);
    EXPECT_INT(r.low, cases[i].low);
    EXPECT_INT(r.high, cases[i].high);
  }
  EXPECT(!image_range(none, &(ImageRange){0}));
}

// ---- a set ----------------------------------------------------------------------------------------------------------

static void expect_set(const ImageRange *of, int n, int low, int high) {
  const SampleRange r = range_of_images(of, n);
  EXPECT_INT(r.low, low);
  EXPECT_INT(sample_range_high(r), high);
}

TEST(ranges_of_sets) {
  ImageRange of[20];
  for (int i = 0; i < 20; i++) of[i] = (ImageRange){.low = 10 + i, .high = 4000 + i};
  expect_set(of, 20, 10, 4019);
  of[3].high = 65520; // two of 20 may be of another kind
  of[7].high = 60000;
  expect_set(of, 20, 10, 4019);
  of[8].high = 60000; // three are not few
  expect_set(of, 20, 10, 65520);
  for (int i = 0; i < 20; i++) of[i] = (ImageRange){.low = 32768, .high = 33000 + i};
  of[5] = (ImageRange){.low = 0, .high = 0}; // a black image
  expect_set(of, 20, 32768, 33019);
  of[5] = (ImageRange){.low = 32768, .high = 34000}; // a bright one
  expect_set(of, 20, 32768, 34000);
  for (int i = 0; i < 20; i++) of[i] = (ImageRange){.low = 5, .high = i == 9 ? 900 : 5}; // all but one constant
  expect_set(of, 20, 5, 900);
  expect_set(of, 5, 0, 65535); // one value is no range
  expect_set(of, 0, 0, 65535);
}

// The first `deep` images of the small set in 16 bits: bytes · factor, in one channel or in four.
static void deepen(const char *dir, int deep, int factor, bool alpha) {
  for (int i = 0; i < deep; i++) {
    const Size s = image_size(i);
    const int channels = alpha ? 4 : 1;
    const size_t n = (size_t)s.h * s.w * channels;
    uint8_t *bytes = xmalloc(2 * n);
    for (size_t k = 0; k < n; k++) {
      const int v = alpha && k % 4 == 3 ? 65535 : image_byte(i, (int64_t)k) * factor;
      bytes[2 * k] = (uint8_t)(v >> 8);
      bytes[2 * k + 1] = (uint8_t)v;
    }
    char *path = xasprintf("%s/train/%d.png", dir, i);
    CHECK(png_write_pixels(path, &(PngPixels){s.h, s.w, channels, 2, bytes}, PNG_FAST, NULL, NULL));
    free(path);
    free(bytes);
  }
}

static bool has_note(const Notes *n, const char *text) {
  for (int i = 0; i < n->n; i++)
    if (!strcmp(n->line[i], text)) return true;
  for (int i = 0; i < n->n; i++) printf("    %s\n", n->line[i]);
  return false;
}

TEST(ranges_are_measured) {
  for (int alpha = 0; alpha < 2; alpha++) {
    const char *dir = small_set("ranges");
    Dataset d;
    Ranges r;
    Notes notes = {0};
    Image im;
    Err err;
    if (!open_set(&d, dir, &small_options)) return;
    ranges_measure(&r, &d);
    EXPECT(r.deep == 0 && r.measured == 0 && sample_range_same(r.range, (SampleRange){0}));
    ranges_note(&r, &d, "train", r.range, &notes);
    EXPECT_INT(notes.n, 0);
    ranges_note(&r, &d, "train", (SampleRange){0, 4095}, &notes); // that of weights or of another split
    EXPECT(notes.n == 1 &&
           strstr(notes.line[0], "12 of 12 images of train have 8 bits, not 16, and are not scaled from the range 0 to "
                                 "4095: "));
    notes_free(&notes);
    ranges_free(&r);
    deepen(dir, IMAGES, 16, alpha);
    ranges_measure(&r, &d);
    EXPECT(r.deep == 12 && r.measured == 12 && r.shallow == 0); // the usable ones
    EXPECT(r.range.low == 0 && r.range.high == 4080);           // alpha, all 65535, does not count
    char *text = ranges_text(&r, r.range);
    EXPECT_STR(text, "range 0 to 4080, measured on 12 of 12 16-bit images");
    free(text);
    ranges_note(&r, &d, "train", r.range, &notes);
    EXPECT_INT(notes.n, 0);
    d.range = r.range; // and the bytes are back
    int far = 0;
    if (!alpha && EXPECT(dataset_image(&d, 0, &im, &err))) {
      for (int64_t p = 0; p < (int64_t)im.h * im.w; p++)
        far += abs(im.rgb[3 * p] - image_byte(image_number(&d, 0), p)) > 0;
      EXPECT_INT(far, 0);
      image_free(&im);
    }
    ranges_free(&r);
    dataset_close(&d);
  }
}

// The doctor decodes a file once: damage after the measurement shows that it is not read again.
TEST(ranges_spare_measured_images_a_decode) {
  const char *dir = small_set("ranges-once");
  Dataset d;
  Ranges r;
  Err err;
  double ms = 0;
  if (!open_set(&d, dir, &small_options)) return;
  deepen(dir, IMAGES - 1, 16, false); // the last stays as it was
  char *damaged = dataset_path(&d, 0), *unreadable = dataset_path(&d, 1);
  CHECK(!truncate(unreadable, file_length(unreadable) - 20));
  ranges_measure(&r, &d);
  EXPECT_INT(r.measured, 10);
  CHECK(!truncate(damaged, file_length(damaged) - 20));
  EXPECT(ranges_try_image(&r, &d, 0, &ms, &err) && ms == r.ms[0] && ms > 0);
  EXPECT(!ranges_try_image(NULL, &d, 0, &ms, &err) && strstr(err.msg, "truncated"));
  EXPECT(!ranges_try_image(&r, &d, 1, &ms, &err) && strstr(err.msg, "truncated"));
  EXPECT(r.ms[d.num_images - 1] == 0 && ranges_try_image(&r, &d, d.num_images - 1, &ms, &err) && ms > 0);
  d.coco.images[d.image[0]].w++; // the annotated size
  EXPECT(!ranges_try_image(&r, &d, 0, &ms, &err));
  free(damaged);
  free(unreadable);
  ranges_free(&r);
  dataset_close(&d);
}

TEST(ranges_name_images_that_disagree) {
  const char *dir = small_set("ranges-odd");
  Dataset d;
  Ranges r;
  Notes notes = {0};
  if (!open_set(&d, dir, &small_options)) return;
  deepen(dir, IMAGES - 1, 16, false);
  deepen(dir, 2, 256, false); // 0.png, 1.png: 16 times as bright
  deepen(dir, 1, 1, false);   // 0.png: 16 times as dark
  ranges_measure(&r, &d);
  EXPECT(r.range.low == 0 && r.range.high == 4080);
  EXPECT(r.deep == 11 && r.shallow == 1);
  ranges_note(&r, &d, "train", r.range, &notes);
  EXPECT_INT(notes.n, 3);
  EXPECT(has_note(&notes,
                  "16-bit images of train that are nearly black, because they use at most 1/16 of the range 0 to "
                  "4080: 1 of 11 (0.png); --range LOW,HIGH sets another range"));
  EXPECT(has_note(&notes,
                  "16-bit images of train with values far outside the range 0 to 4080: 1 of 11 (1.png); --range "
                  "LOW,HIGH sets another range"));
  EXPECT(has_note(&notes,
                  "1 of 12 images of train have 8 bits, not 16, and are not scaled from the range 0 to 4080: 13.png"));
  notes_free(&notes);
  ranges_note(&r, &d, "train", (SampleRange){0}, &notes); // what was read until now
  EXPECT(has_note(&notes,
                  "16-bit images of train that are nearly black, because they use at most 1/16 of the range 0 to "
                  "65535: 10 of 11 (0.png, 2.png, 3.png and 7 more); --range LOW,HIGH sets another range"));
  notes_free(&notes);
  ranges_free(&r);
  dataset_close(&d);
}
