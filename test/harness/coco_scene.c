#include "test/harness/coco_scene.h"
#include "base/alloc.h"
#include "base/rng.h"

Scene *scene_new(int images, int categories) {
  static char name[] = "thing";
  Scene *s = xcalloc(1, sizeof *s);
  for (int i = 0; i < images; i++) s->images[i] = (CocoImage){.id = 10 + i, .h = 480, .w = 640};
  for (int i = 0; i < categories; i++) s->categories[i] = (CocoCategory){.id = 100 + i, .name = name};
  s->gt = (Coco){.num_images = images, .num_categories = categories};
  s->gt.images = s->images;
  s->gt.categories = s->categories;
  s->gt.anns = s->anns;
  s->dt.items = s->results;
  return s;
}

CocoAnn *add_gt(Scene *s, int image, int category, double x, double y, double w, double h) {
  CocoAnn *a = &s->anns[s->gt.num_anns++];
  CocoImage *im = &s->images[image];
  if (im->anns++ == 0) im->first_ann = s->gt.num_anns - 1;
  *a = (CocoAnn){.id = s->gt.num_anns,
                 .image_id = im->id,
                 .category_id = 100 + category,
                 .category = category,
                 .bbox = {x, y, w, h},
                 .area = w * h,
                 .has_bbox = true};
  return a;
}

CocoResult *add_dt(Scene *s, int image, int category, double score, double x, double y, double w, double h) {
  CocoResult *r = &s->results[s->dt.n++];
  *r = (CocoResult){
      .image_id = 10 + image, .category_id = 100 + category, .bbox = {x, y, w, h}, .score = score, .has_bbox = true};
  return r;
}

Scene *three_detections(void) {
  Scene *s = scene_new(2, 2);
  add_gt(s, 0, 0, 10, 10, 50, 50);
  add_gt(s, 1, 0, 200, 10, 50, 50);
  add_dt(s, 0, 0, 0.9, 10, 10, 50, 50);
  add_dt(s, 0, 0, 0.8, 400, 400, 50, 50);
  add_dt(s, 1, 0, 0.7, 200, 10, 50, 32);
  return s;
}

Scene *random_scene(uint64_t seed) {
  Scene *s = scene_new(COUNT(s->images), COUNT(s->categories));
  uint64_t key = rng_key(RNG_TEST, seed), i = 0;
  for (int image = 0; image < COUNT(s->images); image++) {
    for (int n = 0; n < 100; n++) {
      double v[6];
      for (int k = 0; k < COUNT(v); k++) v[k] = (double)(rng_u32(key, i++) % 20);
      int category = (int)v[0] % COUNT(s->categories);
      if (n < 40)
        add_gt(s, image, category, v[1] * 8, v[2] * 8, 8 + v[3] * 4, 8 + v[4] * 4)->crowd = v[5] == 0;
      else
        add_dt(s, image, category, v[5] / 20, v[1] * 8, v[2] * 8, 8 + v[3] * 4, 8 + v[4] * 4);
    }
  }
  return s;
}
