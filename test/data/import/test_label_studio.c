// Catches a result of Label Studio's that is misplaced, and annotations that do not count.
#include "test/harness/command.h"
#include "test/harness/import.h"
#include "test/harness/test.h"

TEST(label_studio_results_and_annotators) {
  Imported i = import_case("label-studio-json");
  Coco c = imported_split("train");
  EXPECT_STR(i.format->name, "label-studio");
  EXPECT_INT(c.num_images, 4);
  EXPECT_INT(c.num_anns, 5);
  expect_object(&c, "e97d4701-p1.png", "plate", BOX(10, 8, 20, 20), 400, 0, true);
  expect_object(&c, "e97d4701-p1.png", "wedge", BOX(40, 10, 18, 29), 249, 0, true);       // a brush mask
  expect_object(&c, "e97d4702-p2.png", "wedge", BOX(15, 8, 22.32, 18.66), 200, 12, true); // about its corner
  expect_object(&c, "e97d4702-p2.png", "plate", BOX(42, 32, 12, 8), 75, 4, true);
  expect_object(&c, "e97d4703-p3.png", "plate", BOX(10, 8, 20, 20), 400, 0, true);
  EXPECT_INT(imported_count(&i, "shape: no area (key point)"), 1);
  EXPECT_INT(imported_count(&i, "shape: it has no label"), 1);
  EXPECT_INT(imported_count(&i, "annotation: cancelled"), 1);
  EXPECT_INT(imported_count(&i, "prediction: made by a model"), 1);
  coco_free(&c);
  imported_free(&i);
}

// The ground truth counts, wherever it stands; a shape and its label may be two results; the picture has lost the
// prefix of its upload, and its name is in an URL.
TEST(label_studio_ground_truth_and_pairs) {
  const char *said;
  EXPECT_INT(command(&said,
                     "cd %s && mkdir in && cp $OLDPWD/test/exports/via-shapes/img.png 'in/a b.png' && printf '%%s' '"
                     "[{\"data\":{\"photo\":\"/data/local-files/?d=x/0123abcd-a%%20b.png\"},\"annotations\":["
                     "{\"result\":[{\"id\":\"r\",\"type\":\"rectanglelabels\",\"value\":{\"x\":0,\"y\":0,\"width\":10,"
                     "\"height\":10,\"rectanglelabels\":[\"no\"]}}]},{\"ground_truth\":true,\"result\":[{\"id\":\"s\","
                     "\"type\":\"rectangle\",\"value\":{\"x\":25,\"y\":50,\"width\":50,\"height\":25,\"rotation\":0}},"
                     "{\"id\":\"s\",\"type\":\"labels\",\"value\":{\"x\":25,\"y\":50,\"width\":50,\"height\":25,"
                     "\"labels\":[\"yes\"]}}]}]}]' >in/all.json",
                     test_tmp()),
             0);
  Imported i = import_folder(in_tmp("in"), NULL, (ImportOptions){0});
  Coco c = imported_split("train");
  EXPECT_INT(c.num_anns, 1);
  expect_object(&c, "a b.png", "yes", BOX(16, 24, 32, 12), 384, 0, false);
  coco_free(&c);
  imported_free(&i);
}

TEST(label_studio_json_min) {
  const char *said;
  EXPECT_INT(
      command(&said,
              "cd %s && mkdir in && cp $OLDPWD/test/exports/via-shapes/img.png in && printf '%%s' '"
              "[{\"image\":\"/data/upload/1/0123abcd-img.png\",\"id\":1,\"annotator\":1,\"annotation_id\":1,"
              "\"lead_time\":2.5,\"label\":[{\"points\":[[0,0],[50,0],[50,50]],\"closed\":true,\"polygonlabels\":"
              "[\"a\"],\"original_width\":64,\"original_height\":48}]}]' >in/min.json",
              test_tmp()),
      0);
  Imported i = import_folder(in_tmp("in"), NULL, (ImportOptions){0});
  Coco c = imported_split("train");
  EXPECT_INT(c.num_anns, 1);
  expect_object(&c, "img.png", "a", BOX(0, 0, 32, 24), 384, 12, true);
  coco_free(&c);
  imported_free(&i);
}

// Storage gets each annotation as a file.
TEST(label_studio_annotation_as_a_file) {
  const char *said;
  EXPECT_INT(
      command(&said,
              "cd %s && mkdir in && cp $OLDPWD/test/exports/via-shapes/img.png in && printf '%%s' '"
              "{\"id\":7,\"result\":[{\"id\":\"r\",\"type\":\"polygonlabels\",\"value\":{\"points\":[[0,0],[50,0],"
              "[50,50],[0,50]],\"polygonlabels\":[\"a\"]}}],\"was_cancelled\":false,\"task\":{\"id\":1,\"data\":"
              "{\"image\":\"s3://bucket/img.png\"}}}' >in/7.json",
              test_tmp()),
      0);
  Imported i = import_folder(in_tmp("in"), NULL, (ImportOptions){0});
  Coco c = imported_split("train");
  EXPECT_INT(c.num_anns, 1);
  expect_object(&c, "img.png", "a", BOX(0, 0, 32, 24), 32 * 24, 0, true);
  coco_free(&c);
  imported_free(&i);
}
