// Ground truth and detections built in place, for tests of what compares them.
#pragma once
#include "data/coco/coco.h"

enum { SCENE_ITEMS = 4096 };

typedef struct Scene {
  CocoImage images[8];
  CocoCategory categories[4];
  CocoAnn anns[SCENE_ITEMS];
  CocoResult results[SCENE_ITEMS];
  Coco gt;
  CocoResults dt;
} Scene;

// Images have ids from 10, categories from 100, annotations from 1; images are 640 × 480. free() is enough.
Scene *scene_new(int images, int categories);
// x y w h; annotations are added in the order of their images.
CocoAnn *add_gt(Scene *s, int image, int category, double x, double y, double w, double h);
CocoResult *add_dt(Scene *s, int image, int category, double score, double x, double y, double w, double h);
// Two objects of medium size; a hit, a miss, and one with IoU 50·32 / 50·50 = 0.64, which counts at 0.50, 0.55 and
// 0.60.
Scene *three_detections(void);
// Boxes on a coarse grid with coarse scores, so that equal scores and equal IoUs abound.
Scene *random_scene(uint64_t seed);
