// Catches what tools really write and is read otherwise than they mean it: data sets that lab/import_fixtures.py made
// with their own packages. Each has a plate of 12 × 16 pixels and a ring of 14 × 10 with a hole, and a part of its own.
#include "data/import/xml.h"
#include "test/harness/import.h"
#include "test/harness/test.h"

static void expect_written(const char *name, const char *format, const char *plate, const char *ring, bool splits) {
  Imported i = import_case(name);
  for (int k = 0; k < (splits ? 2 : 1); k++) {
    Coco c = imported_split(k ? "val" : "train");
    EXPECT_INT(c.num_images, splits ? 1 : 2);
    EXPECT_INT(c.num_anns, splits ? 2 : 4);
    expect_object(&c, NULL, plate, BOX(5, 4, 12, 16), 192, 0, true);
    expect_object(&c, NULL, ring, BOX(22, 6, 14, 17), 14 * 10 - 4 * 3 + 9, 0, true);
    coco_free(&c);
  }
  EXPECT_STR(i.format ? i.format->name : "none", format);
  imported_free(&i);
}

TEST(written_by_labelme) { expect_written("written/labelme", "labelme", "plate", "ring", false); }
TEST(written_by_label_studio) { expect_written("written/label_studio", "label-studio", "plate", "ring", false); }
TEST(written_by_datumaro_as_voc) { expect_written("written/datumaro_voc", "voc", "plate", "ring", true); }
TEST(written_by_cellpose) { expect_written("written/cellpose", "label-images", "object", "object", false); }
TEST(written_by_datumaro_as_cvat) {
  if (xml_is_built)
    expect_written("written/datumaro_cvat", "cvat", "plate", "ring", true);
  else
    test_skip("this build has no expat");
}

// It writes the parts of an object as rows of their own, and moves the outline by half a pixel.
TEST(written_by_supervision) {
  Imported i = import_case("written/supervision");
  Coco c = imported_split("train");
  EXPECT_STR(i.format->name, "yolo");
  EXPECT_INT(c.num_images, 2);
  EXPECT_INT(c.num_anns, 6);
  expect_object(&c, "a.png", "plate", BOX(5, 4, 11, 15), 165, 0, true);
  expect_object(&c, "a.png", "ring", BOX(30, 20, 2, 2), 4, 0, true);
  coco_free(&c);
  imported_free(&i);
}
