// Catches JSON that crashes its reader, or the readers of annotations and detections.
//
// Fuzzes the JSON reader and what reads annotations and detections with it. Seeds: test/corpus/json.
#include <string.h>
#include "base/json.h"
#include "data/coco/coco.h"
#include "test/fuzz/memory_file.h"

// Failures are one line, and nothing that is taken is wrong.
static void check_error(bool ok, const Err *err) { CHECK(ok || (*err->msg && !strchr(err->msg, '\n'))); }

static bool skip_all(const uint8_t *bytes, size_t size, bool takes_nonfinite) {
  Json j;
  json_open(&j, "FILE", (const char *)bytes, size);
  j.takes_nonfinite = takes_nonfinite;
  json_skip(&j);
  bool ok = json_done(&j);
  check_error(ok, &j.err);
  json_close(&j);
  return ok;
}

static void check_masks(const Coco *c) {
  enum { MAX_SIDE = 256 }; // larger masks take longer, nothing else
  for (int i = 0; i < c->num_images; i++) {
    const CocoImage *im = &c->images[i];
    for (int k = 0; k < im->anns; k++) {
      Rle rle;
      int h = MIN(im->h, MAX_SIDE), w = MIN(im->w, MAX_SIDE);
      if (!coco_ann_rle(c, &c->anns[im->first_ann + k], h, w, &rle)) continue;
      CHECK(rle.h == h && rle.w == w && rle_area(&rle) <= (uint64_t)h * (uint64_t)w);
      rle_free(&rle);
    }
  }
}

static void check_detections(const CocoResults *r) {
  for (int i = 0; i < r->n; i++) CHECK(r->items[i].has_bbox || r->items[i].has_segm);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  if (size == 0) return 0;
  const bool json = skip_all(bytes, size, false), json_of_python = skip_all(bytes, size, true);
  CHECK(json_of_python || !json);
  const char *path = memory_file(bytes, size);
  Coco c;
  CocoResults r;
  Err err = {""};
  bool ok = coco_load(&c, path, &err);
  check_error(ok, &err);
  CHECK(json_of_python || !ok); // an annotation of Infinity is left out, not its file
  if (ok) check_masks(&c);
  if (ok) coco_free(&c);
  ok = coco_results_load(&r, path, NULL, &err);
  check_error(ok, &err);
  CHECK(json || !ok);
  if (ok) check_detections(&r);
  if (ok) coco_results_free(&r);
  return 0;
}
