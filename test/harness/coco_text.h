// For tests that read annotations from a text: loads it, and checks that whatever was loaded holds together.
#pragma once
#include "data/coco/coco.h"
#include "test/harness/test.h"

static const char *write_file(const char *name, const char *text, size_t size) {
  static char path[512];
  snprintf(path, sizeof path, "%s/%s", test_tmp(), name);
  FILE *f = fopen(path, "wb");
  CHECK(f);
  fwrite(text, 1, size, f);
  fclose(f);
  return path;
}

static inline bool load_text(Coco *c, const char *text, Err *err) {
  return coco_load(c, write_file("doc.json", text, strlen(text)), err);
}

// Whatever was loaded holds together: sorted, grouped, every index in range.
static inline void check_invariants(const Coco *c) {
  int next = 0;
  for (int i = 0; i < c->num_images; i++) {
    const CocoImage *image = &c->images[i];
    EXPECT(i == 0 || c->images[i - 1].id < image->id);
    EXPECT_INT(coco_find_image(c, image->id), i);
    EXPECT_INT(image->first_ann, next);
    next += image->anns;
    for (int k = 0; k < image->anns; k++) {
      const CocoAnn *a = &c->anns[image->first_ann + k];
      EXPECT(a->image_id == image->id);
      EXPECT_INT(coco_find_category(c, a->category_id), a->category);
      EXPECT(a->type != SEG_POLYGONS || (a->parts > 0 && a->first_part + a->parts <= c->num_parts));
    }
  }
  EXPECT_INT(next, c->num_anns);
  for (int i = 0; i < c->num_categories; i++) EXPECT_INT(coco_find_category(c, c->categories[i].id), i);
}
