// Catches an object of Pascal VOC's masks that has another class, or pixels of the border.
#include "test/harness/command.h"
#include "test/harness/import.h"
#include "test/harness/test.h"

TEST(voc_instances_with_border) {
  Imported i = import_case("voc-instances");
  Coco c = imported_split("train");
  EXPECT_STR(i.format->name, "voc");
  EXPECT_INT(c.num_anns, 3);
  EXPECT_STR(c.categories[0].name, "plate");
  expect_object(&c, "v1.jpg", "plate", BOX(10, 8, 20, 20), 400, 0, true);
  expect_object(&c, "v1.jpg", "plate", BOX(40, 8, 20, 20), 400, 0, true);
  expect_object(&c, "v1.jpg", "wedge", BOX(10, 30, 10, 10), 100, 0, true);
  coco_free(&c);
  imported_free(&i);
}

// Without SegmentationObject/ the pieces of a class are objects, and the border is none.
TEST(voc_classes_alone) {
  const char *said;
  EXPECT_INT(
      command(&said,
              "cd %s && cp -r $OLDPWD/test/exports/voc-instances in && rm -r in/SegmentationObject in/labels.txt",
              test_tmp()),
      0);
  Imported i = import_folder(in_tmp("in"), NULL, (ImportOptions){0});
  Coco c = imported_split("train");
  EXPECT_STR(i.format->name, "label-images");
  EXPECT_INT(c.num_anns, 3);
  expect_object(&c, "v1.jpg", "class 1", BOX(10, 8, 20, 20), 400, 0, true);
  expect_object(&c, "v1.jpg", "class 1", BOX(40, 8, 20, 20), 400, 0, true);
  expect_object(&c, "v1.jpg", "class 2", BOX(10, 30, 10, 10), 100, 0, true);
  coco_free(&c);
  imported_free(&i);
}
