// Catches objects of one image that are drawn in one colour.
#include <stdlib.h>
#include "data/images/image.h"
#include "data/pictures/thumbnail.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

// The mean of green in an object, in [0, 255].
static double green(Jpeg picture, int image, int o) {
  Image im;
  double sum = 0;
  int n = 0;
  CHECK(image_decode(&im, picture.bytes, picture.size, "thumbnail", NULL));
  const double grow = (double)im.w / image_size(image).w;
  const int x0 = (int)(grow * (object_x(image, o) + 2)), x1 = (int)(grow * (object_x(image, o) + OBJECT_W - 2));
  const int y0 = (int)(grow * (object_y(o) + 2)), y1 = (int)(grow * (object_y(o) + OBJECT_H - 2));
  for (int y = y0; y < y1; y++)
    for (int x = x0; x < x1; x++, n++) sum += im.rgb[3 * (y * im.w + x) + 1];
  image_free(&im);
  free(picture.bytes);
  return sum / n;
}

TEST(thumbnail_gives_each_object_a_colour) {
  enum { IMAGE = 2, FIRST = 0, THIRD = 2 }; // objects with masks: red and yellow
  Dataset d;
  Thumbnail t;
  Err err;
  if (!open_set(&d, small_set("thumbnail"), &small_options)) return;
  int i = 0;
  while (image_number(&d, i) != IMAGE) i++;
  if (EXPECT(thumbnail_open(&t, &d, i, 640, &err))) {
    double shift[3] = {0};
    for (int o = FIRST; o <= THIRD; o += THIRD)
      shift[o] = green(thumbnail_truth(&t, &d, i), IMAGE, o) - green(thumbnail_plain(&t), IMAGE, o);
    if (!EXPECT(shift[THIRD] - shift[FIRST] > 20)) printf("  %g, %g\n", shift[FIRST], shift[THIRD]);
    thumbnail_close(&t);
  }
  dataset_close(&d);
}
