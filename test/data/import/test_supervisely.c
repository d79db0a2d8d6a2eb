// Catches a bitmap of Supervisely's that is misplaced, and holes of polygons that are lost.
#include "test/harness/import.h"
#include "test/harness/test.h"

TEST(supervisely_bitmaps_and_holes) {
  Imported i = import_case("supervisely");
  Coco c = imported_split("train");
  EXPECT_STR(i.format->name, "supervisely");
  EXPECT_INT(c.num_anns, 4);
  EXPECT_STR(c.categories[0].name, "wedge"); // as meta.json lists them
  expect_object(&c, "a.png", "plate", BOX(41, 21, 5, 3), 14, 0, true);
  expect_object(&c, "a.png", "plate", BOX(61, 46, 3, 2), 5, 0, true); // of alpha, beyond the edge
  expect_object(&c, "a.png", "wedge", BOX(10, 8, 20, 20), 400 - 16 - 8, 0, true);
  expect_object(&c, "a.png", "wedge", BOX(2, 40, 7, 4), 28, 0, false);
  EXPECT_INT(imported_count(&i, "point"), 1);
  coco_free(&c);
  imported_free(&i);
}
