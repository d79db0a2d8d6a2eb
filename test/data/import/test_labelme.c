// Catches a shape of labelme's that is dropped, misplaced or of another class, and a picture that is not found.
#include "test/harness/command.h"
#include "test/harness/import.h"
#include "test/harness/test.h"

TEST(labelme_shapes_of_three_versions) {
  Imported i = import_case("labelme-shapes");
  Coco c = imported_split("train");
  EXPECT_STR(i.format->name, "labelme");
  EXPECT_INT(c.num_images, 4);
  EXPECT_INT(c.num_anns, 7);
  EXPECT_INT(c.num_categories, 3);
  EXPECT_STR(c.categories[0].name, "disc");
  expect_object(&c, "a.jpg", "plate", BOX(10, 8, 20, 20), 400, 0, true);
  expect_object(&c, "a.jpg", "wedge", BOX(40, 10, 18, 30), 249, 0, true);
  expect_object(&c, "b.jpg", "plate", BOX(2, 2, 24, 10), 160, 0, true); // two polygons of a group
  expect_object(&c, "b.jpg", "wedge", BOX(40, 10, 18, 30), 540, 0, true);
  expect_object(&c, "b.jpg", "disc", BOX(14, 28, 12, 12), 113, 4, true);
  expect_object(&c, "c.jpg", "plate", BOX(30, 20, 5, 6), 16, 0, true); // a mask, placed at its first point
  expect_object(&c, "c.jpg", "wedge", BOX(0, 0, 9, 8), 72, 0, true);   // beyond the edge
  EXPECT_INT(imported_count(&i, "shape: its label is __ignore__"), 1);
  EXPECT_INT(imported_count(&i, "shape: no area (linestrip)"), 1);
  coco_free(&c);
  imported_free(&i);
}

TEST(labelme_points_are_upright) {
  Imported i = import_case("labelme-exif");
  Coco c = imported_split("train");
  EXPECT_INT(c.images[0].w, 48);
  EXPECT_INT(c.images[0].h, 64);
  expect_object(&c, "a.jpg", "plate", BOX(20, 10, 20, 20), 400, 0, true);
  coco_free(&c);
  imported_free(&i);
}

// A label that Windows wrote in its own encoding.
TEST(labelme_files_that_are_not_utf8) {
  const char *said;
  EXPECT_INT(command(&said,
                     "cd %s && mkdir in && cp $OLDPWD/test/exports/labelme-exif/a.jpg in && "
                     "sed \"s/plate/caf$(printf '\\351')/\" $OLDPWD/test/exports/labelme-exif/a.json >in/a.json",
                     test_tmp()),
             0);
  Imported i = import_folder(in_tmp("in"), NULL, (ImportOptions){0});
  EXPECT_STR(i.set.n ? i.set.categories.text[0] : "", "café");
  imported_free(&i);
}

// A file that is cut short is named, the others are read; the picture of a file that was renamed has its name.
TEST(labelme_files_that_are_broken_or_renamed) {
  const char *said;
  EXPECT_INT(command(&said,
                     "cd %s && mkdir in && cp $OLDPWD/test/exports/labelme-exif/a.jpg in/new.jpg && "
                     "sed s/a.jpg/old.jpg/ $OLDPWD/test/exports/labelme-exif/a.json >in/new.json && "
                     "head -c 90 in/new.json >in/cut.json",
                     test_tmp()),
             0);
  Imported i = import_folder(in_tmp("in"), NULL, (ImportOptions){0});
  Coco c = imported_split("train");
  EXPECT_INT(c.num_anns, 1);
  EXPECT_INT(imported_count(&i, "file: not usable; the first are named above"), 1);
  EXPECT_INT(imported_count(&i, "image found by the name of its JSON file, as imagePath leads nowhere"), 1);
  coco_free(&c);
  imported_free(&i);
}

// Two files with pictures of one name inside: both are written.
TEST(labelme_pictures_of_one_name) {
  const char *said;
  EXPECT_INT(command(&said,
                     "cd %s && mkdir -p in/a in/b && cp $OLDPWD/test/exports/written/labelme/a.json in/a && "
                     "cp in/a/a.json in/b",
                     test_tmp()),
             0);
  Imported i = import_folder(in_tmp("in"), NULL, (ImportOptions){0});
  Coco c = imported_split("train");
  EXPECT_INT(c.num_images, 2);
  EXPECT_STR(c.images[0].file_name, "a.png");
  EXPECT_STR(c.images[1].file_name, "a-2.png");
  coco_free(&c);
  imported_free(&i);
}
