// Catches anchors that are chosen for objects of another size than those of the resized images.
#include "data/survey/anchor_fit.h"
#include "models/model.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

// Squares of `side` pixels in images of 41 x 60 pixels, resized to 96 x 140.
static void check(const char *name, int side, float p2) {
  Dataset d;
  AnchorFit fit;
  ModelConfig c;
  Err err;
  char path[1024], text[512];
  const char *dir = small_set(name);
  snprintf(path, sizeof path, "%s/annotations/instances_train.json", dir);
  snprintf(text, sizeof text,
           "{\"categories\":[{\"id\":3,\"name\":\"a\"}],\"images\":[{\"id\":1,\"file_name\":\"1.png\",\"height\":41,"
           "\"width\":60}],\"annotations\":[{\"id\":1,\"image_id\":1,\"category_id\":3,\"bbox\":[1,1,%d,%d]}]}",
           side, side);
  write_text(path, text);
  if (!open_set(&d, dir, &(DatasetOptions){.resize = {.size = 96, .max_size = 160}, .max_canvases = 1})) return;
  EXPECT(config_init(&c, "maskrcnn-r50-fpn", &err) && anchor_fit(&fit, &d, c.anchor_size, c.anchor_ratio));
  EXPECT_NEAR(fit.size[0], p2, 0);
  for (int l = 1; l < FIT_LEVELS; l++) EXPECT(fit.size[l] == 2 * fit.size[l - 1]);
  const double object = side * 96 / 41., nearest = 32; // COCO's smallest anchor is larger than all objects here
  EXPECT_NEAR(fit.iou_before, object * object / (nearest * nearest), 0.02);
  EXPECT(fit.iou > 0.9 && fit.iou <= 1);
  dataset_close(&d);
}

TEST(anchor_fit_of_squares) {
  check("anchors-9", 9, 21);   // 21.07 pixels
  check("anchors-13", 13, 15); // 30.4: 15 comes before 30
}

TEST(anchor_fit_without_objects) {
  Dataset d;
  AnchorFit fit;
  ModelConfig c;
  Err err;
  const DatasetOptions options = {.resize = {.size = 96, .max_size = 160}, .max_canvases = 1, .keep_empty = true};
  const char *dir = small_set("anchors-none");
  char path[1024];
  snprintf(path, sizeof path, "%s/annotations/instances_train.json", dir);
  write_text(path, "{\"categories\":[{\"id\":3,\"name\":\"a\"}],\"images\":[{\"id\":1,\"file_name\":\"1.png\","
                   "\"height\":41,\"width\":60}],\"annotations\":[]}");
  if (!open_set(&d, dir, &options)) return;
  EXPECT(config_init(&c, "tiny", &err) && !anchor_fit(&fit, &d, c.anchor_size, c.anchor_ratio));
  for (int l = 0; l < FIT_LEVELS; l++) EXPECT(fit.size[l] == c.anchor_size[l]);
  dataset_close(&d);
}
