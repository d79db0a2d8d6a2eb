// Catches a region of VIA's that is misread, and a class that is taken from the wrong attribute.
#include "test/harness/command.h"
#include "test/harness/import.h"
#include "test/harness/test.h"

TEST(via_shapes_of_a_project) {
  Imported i = import_case("via-shapes");
  Coco c = imported_split("train");
  EXPECT_STR(i.format->name, "via");
  EXPECT_INT(c.num_anns, 4);
  expect_object(&c, "img.png", "wedge", BOX(40, 10, 18, 30), 540, 0, true);
  expect_object(&c, "img.png", "disc", BOX(14, 12, 12, 12), 113, 4, true);
  expect_object(&c, "img.png", "disc", BOX(10, 32, 20, 8), 126, 5, true);
  expect_object(&c, "img.png", "plate", BOX(10, 8, 20, 20), 400, 0, true); // a checkbox
  EXPECT_INT(imported_count(&i, "shape: no area (point)"), 1);
  coco_free(&c);
  imported_free(&i);
}

TEST(via_attributes_that_say_the_same_and_splits) {
  Imported i = import_case("via-two-attributes");
  Coco train = imported_split("train"), val = imported_split("val");
  EXPECT_INT(train.num_images, 2);
  EXPECT_INT(val.num_anns, 4);
  EXPECT_INT(train.num_categories, 2);
  expect_object(&val, "2.jpg", "wedge", BOX(40, 10, 18, 30), 249, 0, true);
  coco_free(&train);
  coco_free(&val);
  imported_free(&i);
}

TEST(via_without_attributes_is_one_class) {
  Imported i = import_case("via-no-attribute");
  EXPECT_INT(i.set.n, 2);
  EXPECT_STR(i.set.categories.text[0], "object");
  imported_free(&i);
}

// An outline whose ends nearly meet is a polygon, an open line is none.
TEST(via_polylines) {
  const char *said;
  EXPECT_INT(command(&said,
                     "cd %s && mkdir in && cp $OLDPWD/test/exports/via-shapes/img.png in && printf '%%s' '"
                     "{\"img.png1\":{\"filename\":\"C:/x/IMG.PNG\",\"size\":1,\"regions\":[{\"shape_attributes\":"
                     "{\"name\":\"polyline\",\"all_points_x\":[10,30,30,10,10],\"all_points_y\":[8,8,28,28,9]},"
                     "\"region_attributes\":{\"a\":\"p\",\"note\":\"q\"}},{\"shape_attributes\":{\"name\":\"polyline\","
                     "\"all_points_x\":[1,9,20],\"all_points_y\":[1,9,1]},\"region_attributes\":{\"a\":\"p\"}}]}}' "
                     ">in/via.json",
                     test_tmp()),
             0);
  Imported i = import_folder(in_tmp("in"), NULL, (ImportOptions){0});
  Coco c = imported_split("train");
  EXPECT_INT(c.num_anns, 1);
  expect_object(&c, "img.png", "p", BOX(10, 8, 20, 20), 400, 0, true);
  EXPECT_INT(imported_count(&i, "shape: no area (polyline)"), 1);
  coco_free(&c);
  imported_free(&i);
}

TEST_TIER(via_attributes_that_differ, 1) {
  const char *said;
  EXPECT_INT(
      command(
          &said,
          "cd %s && mkdir in && cp $OLDPWD/test/exports/via-shapes/img.png in && printf '%%s' '"
          "{\"img.png1\":{\"filename\":\"img.png\",\"size\":1,\"regions\":[{\"shape_attributes\":"
          "{\"name\":\"rect\",\"x\":1,\"y\":2,\"width\":3,\"height\":4},\"region_attributes\":{\"damage\":\"scratch\","
          "\"side\":\"left\"}}]}}' >in/via.json",
          test_tmp()),
      0);
  Imported i = import_folder(in_tmp("in"), NULL, (ImportOptions){.attribute = "side"});
  EXPECT_STR(i.set.categories.text[0], "left");
  EXPECT(!i.set.refused);
  imported_free(&i);
  EXPECT_INT(command(&said, "%s %s --to %s", tool("import"), in_tmp("in"), in_tmp("asked")), 2);
  EXPECT(strstr(said, "damage, side") && strstr(said, "--attribute NAME"));
}

// A project and what was exported from it are often in one folder.
TEST(via_project_beside_its_export) {
  const char *said;
  EXPECT_INT(command(&said,
                     "cd %s && cp -r $OLDPWD/test/exports/via-no-attribute in && cd in && set -- *.json && "
                     "printf '{\"_via_img_metadata\":%%s}' \"$(cat $1)\" >project.json",
                     test_tmp()),
             0);
  Imported i = import_folder(in_tmp("in"), NULL, (ImportOptions){0});
  EXPECT_INT(i.set.images[0].n + i.set.images[1].n, 4);
  EXPECT_INT(imported_count(&i, "object: another annotation file of its image has it, too"), 4);
  imported_free(&i);
}
