// Catches decoders that write an image's rows to other places than where they are upright.
#include "base/alloc.h"
#include "base/file.h"
#include "data/images/image.h"
#include "test/harness/test.h"

static const uint8_t *pixel(const Image *im, int y, int x) {
  return im->rgb + 3 * ((size_t)y * (size_t)im->w + (size_t)x);
}

// Where pixel (y, x) of an upright image of h × w is in a file with that orientation: EXIF 2.32, 4.6.4.
static const uint8_t *stored(const Image *im, int orientation, int y, int x) {
  switch (orientation) {
  case 2: return pixel(im, y, im->w - 1 - x);
  case 3: return pixel(im, im->h - 1 - y, im->w - 1 - x);
  case 4: return pixel(im, im->h - 1 - y, x);
  case 5: return pixel(im, x, y);
  case 6: return pixel(im, im->h - 1 - x, y);
  case 7: return pixel(im, im->h - 1 - x, im->w - 1 - y);
  case 8: return pixel(im, x, im->w - 1 - y);
  default: return pixel(im, y, x);
  }
}

TEST(row_target_of_every_orientation) {
  static const char *const files[] = {"420.jpg",  "444-progressive.jpg",  "420-progressive.jpg", "gray.jpg",
                                      "cmyk.jpg", "png-palette-index.png"};
  for (int i = 0; i < COUNT(files); i++) {
    char path[256];
    Image im;
    Err err = {""};
    size_t size;
    snprintf(path, sizeof path, "test/goldens/images/%s", files[i]);
    char *bytes = file_read(path, &size, &err);
    CHECK(bytes && image_decode(&im, (uint8_t *)bytes, size, path, &err));
    uint8_t *rgb = xmalloc(3 * (size_t)im.h * (size_t)im.w);
    for (int o = 1; o <= 8; o++) {
      Scratch scratch = {0};
      const int h = o < IMAGE_TURNED ? im.h : im.w, w = o < IMAGE_TURNED ? im.w : im.h;
      int wrong = 0;
      EXPECT(image_decode_into(rgb, o, (SampleRange){0}, (uint8_t *)bytes, size, &scratch, path, &err));
      for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) wrong += memcmp(rgb + 3 * ((size_t)y * w + x), stored(&im, o, y, x), 3) != 0;
      if (!EXPECT_INT(wrong, 0)) printf("    %s, orientation %d\n", files[i], o);
      scratch_free(&scratch);
    }
    free(rgb);
    free(bytes);
    image_free(&im);
  }
}
