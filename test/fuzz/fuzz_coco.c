// Catches annotations and detections that crash their readers or the processing of their masks.
//
// Fuzzes the readers of annotations and of detections, and the processing of their masks. Seeds: test/corpus/coco.
#include <string.h>
#include "data/coco/coco.h"
#include "test/fuzz/memory_file.h"

// Masks at a size that is not always the file's.
static void rasterise(const Coco *c) {
  for (int i = 0; i < c->num_images; i++)
    for (int a = c->images[i].first_ann; a < c->images[i].first_ann + c->images[i].anns; a++) {
      Rle mask;
      if (coco_ann_rle(c, &c->anns[a], i % 2 ? 7 : 2, 3, &mask)) CHECK(rle_area(&mask) <= 21);
      rle_free(&mask);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  const char *path = memory_file(bytes, size);
  Coco c;
  CocoResults r;
  Err err = {""};
  bool loaded = coco_load(&c, path, &err);
  CHECK(loaded || (*err.msg && !strchr(err.msg, '\n')));
  if (loaded) rasterise(&c);
  err.msg[0] = '\0';
  bool results = coco_results_load(&r, path, loaded ? &c : NULL, &err);
  CHECK(results || (*err.msg && !strchr(err.msg, '\n')));
  coco_results_free(&r);
  coco_free(&c);
  return 0;
}
