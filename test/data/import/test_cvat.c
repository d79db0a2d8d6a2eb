// Catches CVAT's masks, tracks and turned boxes that are misplaced.
#include "data/import/xml.h"
#include "test/harness/command.h"
#include "test/harness/import.h"
#include "test/harness/test.h"

TEST(cvat_masks_and_shapes) {
  if (!xml_is_built) {
    test_skip("this build has no expat");
    return;
  }
  Imported i = import_case("cvat-xml-masks");
  Coco c = imported_split("train");
  EXPECT_STR(i.format->name, "cvat");
  EXPECT_INT(c.num_images, 2);
  EXPECT_INT(c.num_anns, 4);
  expect_object(&c, "p1.png", "wedge", BOX(40, 10, 18, 29), 249, 0, true);
  expect_object(&c, "p1.png", "plate", BOX(54, 43, 10, 5), 50, 0, true); // a row is below the picture
  expect_object(&c, "p2.png", "plate", BOX(10, 8, 20, 20), 400, 0, true);
  expect_object(&c, "p2.png", "wedge", BOX(40, 25, 16, 10), 126, 5, true);
  EXPECT_INT(imported_count(&i, "mask: its runs do not add up to its box"), 1);
  EXPECT_INT(imported_count(&i, "shape: no area (polyline)"), 1);
  coco_free(&c);
  imported_free(&i);
}

TEST(cvat_tracks) {
  if (!xml_is_built) {
    test_skip("this build has no expat");
    return;
  }
  Imported i = import_case("cvat-xml-track");
  Coco c = imported_split("train");
  EXPECT_INT(c.num_images, 3);
  EXPECT_INT(c.num_anns, 3);
  expect_object(&c, "frame_000001.png", "plate", BOX(12, 8, 20, 20), 400, 0, true);
  expect_object(&c, "frame_000000.png", "wedge", BOX(40, 10, 18, 30), 540, 0, false);
  coco_free(&c);
  imported_free(&i);
}

// A box turns about its centre; two polygons of a group are one object; a mask's runs behind its full box are left out;
// a file that is cut short gives what stands before.
TEST(cvat_turned_boxes_groups_and_subsets) {
  const char *said;
  if (!xml_is_built) {
    test_skip("this build has no expat");
    return;
  }
  EXPECT_INT(
      command(
          &said,
          "cd %s && mkdir in && cp $OLDPWD/test/exports/cvat-xml-masks/images/p1.png in && printf '%%s' '"
          "<annotations><image id=\"0\" name=\"sub/p1.png\" subset=\"Validation\" width=\"64\" height=\"48\">"
          "<box label=\"a\" xtl=\"10\" ytl=\"20\" xbr=\"30\" ybr=\"30\" rotation=\"90.0\"/>"
          "<polygon label=\"b\" points=\"40,2;44,2;44,6;40,6\" group_id=\"3\"/>"
          "<polygon label=\"b\" points=\"50,2;54,2;54,6;50,6\" group_id=\"3\"/>"
          "<mask label=\"c\" rle=\"0, 4, 0, 7\" left=\"1\" top=\"1\" width=\"2\" height=\"2\"/>"
          "<mask label=\"c\" rle=\"0, 3\" left=\"1\" top=\"1\" width=\"2\" height=\"2\"/><poly' >in/annotations.xml",
          test_tmp()),
      0);
  Imported i = import_folder(in_tmp("in"), NULL, (ImportOptions){0});
  Coco c = imported_split("val");
  EXPECT_INT(c.num_anns, 3);
  expect_object(&c, "p1.png", "a", BOX(15, 15, 10, 20), 200, 0, true);
  expect_object(&c, "p1.png", "b", BOX(40, 2, 14, 4), 32, 0, true);
  expect_object(&c, "p1.png", "c", BOX(1, 1, 2, 2), 4, 0, true);
  EXPECT_INT(imported_count(&i, "file: not usable; the first are named above"), 1);
  coco_free(&c);
  imported_free(&i);
}

// A project has a folder for each subset, in which names come again; frames of a job are counted from its first.
TEST(cvat_projects_and_jobs) {
  const char *said;
  if (!xml_is_built) {
    test_skip("this build has no expat");
    return;
  }
  EXPECT_INT(
      command(&said,
              "cd %s && mkdir -p in/images/Train in/images/Validation job && "
              "for i in in/images/Train/p.png in/images/Validation/p.png job/x.png job/y.png; "
              "do cp $OLDPWD/test/exports/cvat-xml-masks/images/p1.png $i; done && printf '%%s' '"
              "<?xml version=\"1.0\" encoding=\"iso-8859-1\"?>"
              "<annotations><image id=\"0\" name=\"p.png\" subset=\"Validation\" width=\"64\" height=\"48\">"
              "<box label=\"K\xE4"
              "fer\" xtl=\"10\" ytl=\"20\" xbr=\"30\" ybr=\"30\"/></image>"
              "<image id=\"1\" name=\"p.png\" subset=\"Train\" width=\"64\" height=\"48\"/></annotations>"
              "' >in/annotations.xml && printf '%%s' '"
              "<annotations><meta><job><size>2</size><start_frame>5</start_frame></job></meta><track label=\"a\">"
              "<box frame=\"6\" outside=\"0\" xtl=\"10\" ytl=\"20\" xbr=\"30\" ybr=\"30\"/></track></annotations>"
              "' >job/annotations.xml",
              test_tmp()),
      0);
  Imported i = import_folder(in_tmp("in"), NULL, (ImportOptions){0});
  Coco c = imported_split("val");
  EXPECT_INT(i.set.n, 2);
  EXPECT_INT(c.num_images, 1);
  expect_object(&c, "p.png", "Käfer", BOX(10, 20, 20, 10), 200, 0, false);
  coco_free(&c);
  imported_free(&i);
  EXPECT_INT(command(&said, "rm -r %s", in_tmp("out")), 0);
  i = import_folder(in_tmp("job"), NULL, (ImportOptions){0});
  c = imported_split("train");
  expect_object(&c, "y.png", "a", BOX(10, 20, 20, 10), 200, 0, false);
  coco_free(&c);
  imported_free(&i);
}

// A shape has the label of the track that it stands in. The address sanitizer sees whether the outer one's is freed.
TEST(cvat_track_within_a_track) {
  const char *said;
  if (!xml_is_built) {
    test_skip("this build has no expat");
    return;
  }
  EXPECT_INT(command(&said,
                     "cd %s && mkdir in && cp $OLDPWD/test/exports/cvat-xml-masks/images/p1.png in && printf '%%s' '"
                     "<annotations><meta><task><size>1</size></task></meta><track label=\"a\" group_id=\"1\">"
                     "<track label=\"b\"><box frame=\"0\" outside=\"0\" xtl=\"10\" ytl=\"20\" xbr=\"30\" ybr=\"30\"/>"
                     "</track></track></annotations>' >in/annotations.xml",
                     test_tmp()),
             0);
  Imported i = import_folder(in_tmp("in"), NULL, (ImportOptions){0});
  Coco c = imported_split("train");
  EXPECT_INT(c.num_anns, 1);
  expect_object(&c, "p1.png", "b", BOX(10, 20, 20, 10), 200, 0, false);
  coco_free(&c);
  imported_free(&i);
}
