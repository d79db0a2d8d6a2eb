// Catches objects missing from the size histograms, or counted in the wrong bin.
#include <math.h>
#include "data/survey/histograms.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

TEST(histograms_have_bins_for_all_sizes) {
  EXPECT(size_limit(SIZE_SMALL_BINS) == 32 && size_limit(SIZE_SMALL_BINS + 4) == 96);
  EXPECT_INT(size_bin(31.999), SIZE_SMALL_BINS - 1);
  EXPECT_INT(size_bin(32), SIZE_SMALL_BINS);
  EXPECT_INT(size_bin(95.999), SIZE_SMALL_BINS + 3);
  EXPECT_INT(size_bin(96), SIZE_SMALL_BINS + 4);
  EXPECT_INT(size_bin(0), 0);
  EXPECT_INT(size_bin(NAN), 0);
  EXPECT_INT(size_bin(1e30), SIZE_BINS - 1);
  EXPECT_INT(size_bin(size_limit(SIZE_BINS - 1)), SIZE_BINS - 1);
}

TEST(histograms_of_a_set) {
  Dataset d;
  Histograms h;
  if (!open_set(&d, small_set("histograms"), &small_options)) return;
  histograms_take(&h, &d, true);
  int n = 0, images = 0, largest = 0;
  for (int i = 0; i < IMAGES; i++) largest = MAX(largest, image_objects(i));
  for (int i = 0; i < SIZE_BINS; i++) n += h.stored[i];
  EXPECT_INT(n, d.first_object[d.num_images]);
  EXPECT_INT(h.stored[size_bin(sqrt(OBJECT_W * OBJECT_H))], n); // all are of one size
  for (int i = 0; i < h.per_image.n; i++) {
    images += h.per_image.count[i];
    EXPECT(i == 0 || h.per_image.value[i] > h.per_image.value[i - 1]);
  }
  EXPECT_INT(images, IMAGES);
  EXPECT_INT(h.per_image.value[0], 0);
  EXPECT_INT(h.per_image.count[0], 2);
  EXPECT_INT(h.per_image.value[h.per_image.n - 1], largest);
  images = 0;
  for (int i = 0; i < h.image.n; i++) images += h.image.count[i];
  EXPECT_INT(images, d.num_images);
  histograms_free(&h);
  dataset_close(&d);
}
