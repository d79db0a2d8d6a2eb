// Catches annotations of a tool that crash their reader, or give objects that are not in their picture.
//
// The first byte says what the others are: one annotation file of a small data set. Seeds: test/corpus/import.
#include <math.h>
#include "base/basics.h"
#include "data/import/brush.h"
#include "data/import/formats.h"
#include "test/fuzz/memory_file.h"

static const struct {
  const ImportFormat *format;
  const char *path; // of the file that the bytes are
  JsonKind kind;
} inputs[] = {
    {&import_labelme, "a.json", JSON_LABELME},
    {&import_via, "a.json", JSON_VIA},
    {&import_label_studio, "a.json", JSON_LABEL_STUDIO},
    {&import_supervisely, "ann/a.json", JSON_SUPERVISELY},
    {&import_cvat, "a.xml", JSON_UNREAD},
    {&import_yolo, "a.txt", JSON_UNREAD},
    {&import_yolo, "data.yaml", JSON_UNREAD},
    {&import_label_images, "a_masks.png", JSON_UNREAD},
    {&import_label_images, "a_masks.tif", JSON_UNREAD},
    {&import_label_images, "labelmap.txt", JSON_UNREAD},
    {&import_label_images, "classes.txt", JSON_UNREAD},
    {&import_voc, "ImageSets/Segmentation/train.txt", JSON_UNREAD},
};

static void check_object(const ImportImage *im, const ImportObject *o) {
  const double *b = o->bbox;
  CHECK(b[0] >= 0 && b[1] >= 0 && b[2] > 0 && b[3] > 0 && b[0] + b[2] <= im->w && b[1] + b[3] <= im->h);
  CHECK(o->area <= (uint64_t)im->h * (uint64_t)im->w);
  for (size_t i = 0; i < o->numbers; i++) CHECK(isfinite(o->xy[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  static const char mask[] = "test/exports/labels-16bit/cell1_masks.png", picture[] = "test/exports/via-shapes/img.png";
  if (size == 0) return 0;
  const int which = bytes[0] % (COUNT(inputs) + 1);
  if (which == COUNT(inputs)) {
    uint8_t pixels[4 * 6];
    brush_decode(pixels, sizeof pixels, bytes + 1, size - 1);
    return 0;
  }
  Tree t = {0};
  tree_add(&t, inputs[which].path, memory_file(bytes + 1, size - 1));
  t.file[0].kind = inputs[which].kind;
  tree_add(&t, inputs[which].format == &import_voc ? "JPEGImages/a.png" : "a.png", picture);
  tree_add(&t, "b.png", picture);
  tree_add(&t, "b_masks.png", mask);
  tree_add(&t, "SegmentationObject/a.png", mask);
  tree_add(&t, "SegmentationClass/a.png", mask);
  tree_sort(&t, 0);
  ImportSet s = {.options = {.strict = true}, .tree = &t}; // which says nothing
  inputs[which].format->read(&s);
  import_settle(&s);
  for (int i = 0; i < s.n; i++)
    for (int k = 0; k < s.images[i].n; k++) {
      CHECK(s.images[i].objects[k].category >= 0 && s.images[i].objects[k].category < s.categories.n);
      check_object(&s.images[i], &s.images[i].objects[k]);
    }
  import_free(&s);
  tree_free(&t);
  return 0;
}
