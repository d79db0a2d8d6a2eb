// Catches a bitmap of Supervisely's that is misplaced, and holes of polygons that are lost.
#include "test/harness/command.h"
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
  EXPECT_INT(imported_count(&i, "shape: no area (point)"), 1);
  coco_free(&c);
  imported_free(&i);
}

// The transparent entry of a bitmap's palette is the background, whichever it is.
TEST(supervisely_bitmap_with_a_palette) {
  const char *said;
  EXPECT_INT(
      command(&said,
              "cd %s && mkdir -p in/ds/img in/ds/ann && cp $OLDPWD/test/exports/supervisely/*/img/a.png in/ds/img && "
              "printf '%%s' '{\"size\":{\"height\":48,\"width\":64},\"objects\":[{\"classTitle\":\"x\","
              "\"geometryType\":\"bitmap\",\"bitmap\":{\"origin\":[20,30],\"data\":\""
              "eJzrDPBz5+WS4mJgYOD19HAJAtLMQMzECCKX7/oSCaTYAnxCXP///w9khh66XAeSLgnyC/"
              "7P8HS7gReQx+Pp4hhSMSfZIyGBgYFRhSGRqTbCGCjO4Onq57LOKaEJAIzCGOI="
              "\"}}]}' >in/ds/ann/a.png.json",
              test_tmp()),
      0);
  Imported i = import_folder(in_tmp("in"), NULL, (ImportOptions){0});
  Coco c = imported_split("train");
  EXPECT_INT(c.num_anns, 1);
  expect_object(&c, "a.png", "x", BOX(20, 30, 3, 2), 4, 0, true);
  coco_free(&c);
  imported_free(&i);
}
