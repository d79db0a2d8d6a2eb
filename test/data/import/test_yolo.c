// Catches rows that are misread, splits that are lost, and folders of another machine that are not found.
#include "test/harness/command.h"
#include "test/harness/import.h"
#include "test/harness/test.h"

TEST(yolo_rows_of_every_kind) {
  Imported i = import_case("yolo-seg");
  Coco train = imported_split("train"), val = imported_split("val");
  EXPECT_STR(i.format->name, "yolo");
  EXPECT_INT(train.num_images, 5);
  EXPECT_INT(train.num_anns, 5);
  EXPECT_INT(val.num_images, 1);
  EXPECT_STR(train.categories[1].name, "wedge Nº2");
  expect_object(&train, "p1.jpg", "plate", BOX(10, 8, 20, 20), 400, 0, true);
  expect_object(&train, "p2.jpg", "plate", BOX(10, 8, 20, 20), 400, 0, false);  // a box
  expect_object(&train, "p5.jpg", "plate", BOX(50, 20, 14, 10), 140, 0, true);  // clipped
  expect_object(&val, "p1.jpg", "wedge Nº2", BOX(2, 2, 24, 10), 160, 24, true); // two parts with a bridge
  EXPECT_INT(imported_count(&i, "object: class 7, but there are 2 class names"), 1);
  EXPECT_INT(imported_count(&i, "row: expected CLASS x y x y …, or CLASS x y w h"), 1);
  EXPECT_INT(imported_count(&i, "image without a .txt file, taken as background"), 1);
  EXPECT_INT(imported_count(&i, "data.yaml: test: ../test/images not found; left out"), 1); // not train/images
  coco_free(&train);
  coco_free(&val);
  imported_free(&i);
}

static void expect_both_splits(const char *name) {
  Imported i = import_case(name);
  Coco train = imported_split("train"), val = imported_split("val");
  EXPECT_INT(train.num_images, 1);
  EXPECT_INT(val.num_images, 1);
  expect_object(&train, NULL, "plate", BOX(10, 8, 20, 20), 400, 0, true);
  expect_object(&val, NULL, "wedge", BOX(40, 10, 18, 30), 249, 0, true);
  coco_free(&train);
  coco_free(&val);
  imported_free(&i);
}

TEST(yolo_names_as_a_map_and_a_path_of_windows) { expect_both_splits("yolo-seg-yaml-dict"); }
TEST(yolo_names_in_lines_and_paths_of_another_machine) { expect_both_splits("yolo-seg-yaml-list"); }

// Another yaml with other names is said, and taken where it is named.
TEST(yolo_two_files_that_disagree) {
  const char *said;
  EXPECT_INT(command(&said,
                     "cd %s && cp -r $OLDPWD/test/exports/yolo-seg-yaml-list in && "
                     "printf 'names: [cup, \"fork \\\\xBA\"]\\ntrain: images/train\\n' >in/other.yaml",
                     test_tmp()),
             0);
  Imported i = import_folder(in_tmp("in"), NULL, (ImportOptions){0});
  EXPECT_INT(
      imported_count(
          &i, "this file has other names than data.yaml, which was used; to use it, give it instead of the folder"),
      1);
  EXPECT_STR(i.set.categories.text[0], "plate");
  imported_free(&i);
  EXPECT_INT(command(&said, "rm -r %s", in_tmp("out")), 0);
  i = import_folder(in_tmp("in/other.yaml"), NULL, (ImportOptions){0});
  EXPECT_INT(i.set.n, 1);
  EXPECT_STR(i.set.categories.text[1], "fork º");
  imported_free(&i);
}

// Files of labels that are empty do not tell the format, however many come first.
TEST(yolo_with_much_background) {
  const char *said;
  Tree tree;
  Err err;
  EXPECT_INT(command(&said,
                     "mkdir %s && cd %s && for i in $(seq 101 205); do : >$i.jpg; : >$i.txt; done; "
                     "echo 0 .5 .5 .1 .1 >205.txt",
                     in_tmp("in"), in_tmp("in")),
             0);
  if (!EXPECT(tree_open(&tree, in_tmp("in"), NULL, &err))) return;
  EXPECT_INT(import_format("yolo")->detect(&tree), 105);
  tree_free(&tree);
}

// Lists of pictures that have the same name in several folders, and a path of Windows.
TEST(yolo_lists_of_pictures) {
  const char *said;
  EXPECT_INT(command(&said,
                     "cd %s && mkdir -p in/a in/b && cp $OLDPWD/test/exports/yolo-seg/train/images/p1.jpg in/1.jpg && "
                     "cp in/1.jpg in/2.jpg && echo 0 .5 .5 .1 .1 | tee in/1.txt >in/2.txt && "
                     "echo ./1.jpg >in/a/list.txt && echo 'C:\\\\x\\\\2.jpg' >in/b/list.txt && "
                     "printf 'names: [c]\\ntrain: ./a/list.txt\\nval: C:\\\\x\\\\b\\\\list.txt\\n' >in/data.yaml",
                     test_tmp()),
             0);
  Imported i = import_folder(in_tmp("in"), NULL, (ImportOptions){0});
  Coco train = imported_split("train"), val = imported_split("val");
  expect_object(&train, "1.jpg", "c", BOX(28.8, 21.6, 6.4, 4.8), -1, 0.1, false);
  expect_object(&val, "2.jpg", "c", BOX(28.8, 21.6, 6.4, 4.8), -1, 0.1, false);
  coco_free(&train);
  coco_free(&val);
  imported_free(&i);
}
