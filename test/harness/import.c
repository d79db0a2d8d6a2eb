#include "test/harness/import.h"
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

Imported import_folder(const char *dir, const char *format, ImportOptions options) {
  Imported i = {0};
  Err err = {""};
  if (!EXPECT(tree_open(&i.tree, dir, NULL, &err))) return i;
  i.set = (ImportSet){.options = options};
  i.format = format ? import_format(format) : NULL;
  for (int k = 0; !format && !i.format && import_formats[k]; k++)
    if (import_formats[k]->detect(&i.tree) > 0) i.format = import_formats[k];
  if (!i.format) return i;
  i.set.tree = &i.tree;
  i.format->read(&i.set);
  import_settle(&i.set);
  if (i.set.n > 0 && !EXPECT(import_write(&i.set, in_tmp("out"), &err))) puts(err.msg);
  return i;
}

Imported import_case(const char *name) {
  char *dir = xasprintf("test/exports/%s", name);
  const Imported i = import_folder(dir, NULL, (ImportOptions){0});
  free(dir);
  return i;
}

void imported_free(Imported *i) {
  import_free(&i->set);
  tree_free(&i->tree);
}

Coco imported_split(const char *split) {
  Coco c = {0};
  Err err = {""};
  char *path = xasprintf("%s/annotations/instances_%s.json", in_tmp("out"), split);
  if (path_is_file(path) && !EXPECT(coco_load(&c, path, &err))) puts(err.msg);
  free(path);
  for (int i = 0; i < c.num_images; i++) {
    char *picture = xasprintf("%s/%s/%s", in_tmp("out"), split, c.images[i].file_name);
    EXPECT(path_is_file(picture));
    free(picture);
  }
  return c;
}

int imported_count(const Imported *i, const char *what) {
  for (int k = 0; k < i->set.num_counts; k++)
    if (!strcmp(i->set.counts[k].what, what)) return (int)i->set.counts[k].n;
  return 0;
}

static bool is_there(const double got[4], const double want[4]) {
  for (int i = 0; i < 4; i++)
    if (fabs(got[i] - want[i]) > 0.02) return false;
  return true;
}

void expect_object(const Coco *c, const char *file, const char *category, const double box[4], double area,
                   double tolerance, bool mask) {
  int found = 0;
  for (int i = 0; i < c->num_images; i++) {
    const CocoImage *im = &c->images[i];
    if (file && strcmp(im->file_name, file)) continue;
    for (const CocoAnn *a = c->anns + im->first_ann; a < c->anns + im->first_ann + im->anns; a++) {
      if (strcmp(c->categories[a->category].name, category) || !is_there(a->bbox, box)) continue;
      Rle pixels;
      const bool has = coco_ann_rle(c, a, im->h, im->w, &pixels);
      EXPECT_INT(has, mask);
      if (has) EXPECT_NEAR((double)rle_area(&pixels), a->area, 0);
      if (area >= 0) EXPECT_NEAR(a->area, area, tolerance);
      if (has) rle_free(&pixels);
      found++;
    }
  }
  if (!EXPECT(found > 0)) printf("no %s at %g %g %g %g\n", category, box[0], box[1], box[2], box[3]);
}
