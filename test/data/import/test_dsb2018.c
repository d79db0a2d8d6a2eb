// Catches a mask of an object that is lost, joined with another, or read of the wrong samples.
#include "test/harness/import.h"
#include "test/harness/test.h"

TEST(dsb2018_one_mask_an_object) {
  Imported i = import_case("dsb2018-folders");
  Coco c = imported_split("train");
  EXPECT_STR(i.format->name, "dsb2018");
  EXPECT_INT(c.num_images, 1);
  EXPECT_INT(c.num_anns, 3);
  expect_object(&c, NULL, "nucleus", BOX(10, 8, 20, 20), 400, 0, true);
  expect_object(&c, NULL, "nucleus", BOX(29, 8, 7, 12), 84, 0, true); // shares a column
  expect_object(&c, NULL, "nucleus", BOX(60, 40, 1, 1), 1, 0, true);
  EXPECT_INT(imported_count(&i, "mask: no pixel in its image"), 1);
  coco_free(&c);
  imported_free(&i);
}
