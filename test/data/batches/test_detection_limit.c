// Catches objects beyond the limit on detections that are not reported.
#include "base/alloc.h"
#include "data/batches/detection_limit.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

TEST(detection_limit_leaves_room) {
  EXPECT_INT(detection_limit_for(1), 100);
  EXPECT_INT(detection_limit_for(99), 100);
  EXPECT_INT(detection_limit_for(100), 200);
  EXPECT_INT(detection_limit_for(225), 300);
  EXPECT_INT(detection_limit_for(9999), 10000);
  EXPECT_INT(detection_limit_for(1000000), 10000);
}

TEST(detection_limit_names_the_fullest_image) {
  Dataset d;
  if (!open_set(&d, small_set("limit"), &small_options)) return;
  const int most = d.max_objects;
  int images = 0, fullest = -1;
  for (int i = d.num_images - 1; i >= 0; i--) {
    const int objects = d.first_object[i + 1] - d.first_object[i];
    images += objects >= most - 1;
    if (objects == most) fullest = i;
  }
  char *none = detection_limit_data(&d, most + 1), *reached = detection_limit_data(&d, most),
       *passed = detection_limit_data(&d, most - 1);
  char *want =
      xasprintf("images with at least %d objects (the limit on detections per image): %d; %s has the most, %d; "
                "raise the limit with --detections 100",
                most - 1, images, d.coco.images[d.image[fullest]].file_name, most);
  EXPECT(!none && reached);
  EXPECT_STR(passed, want);
  free(want);
  free(reached);
  free(passed);
  dataset_close(&d);
}

TEST(detection_limit_of_results) {
  EXPECT(!detection_limit_results(0, 12, 100, 0));
  char *some = detection_limit_results(3, 12, 100, 0), *most = detection_limit_results(1, 1, 10000, 0.5);
  EXPECT_STR(some, "images at the limit of 100 detections: 3 of 12; objects may be missing; raise the limit with "
                   "--detections N");
  EXPECT_STR(most,
             "images at the limit of 10000 detections with scores of at least 0.5: 1 of 1; objects may be missing");
  free(some);
  free(most);
}
