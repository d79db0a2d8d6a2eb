#include "data/pictures/labels.h"
#include <stdlib.h>
#include <string.h>
#include "data/coco/spans.h"

const char *const label_values[] = {"instances", "classes", NULL};

enum { MAX_LABEL = UINT16_MAX };

bool labels_open(Labels *l, const char *folder, LabelValues values, const ResultClasses *classes, int rank, Err *err) {
  *l = (Labels){.values = values, .sample_bytes = values == LABELS_CLASSES ? 1 : 2};
  for (int i = 0; i < classes->n && values == LABELS_CLASSES; i++) {
    const int64_t id = classes->items[i].id;
    if (id < 1 || id > MAX_LABEL)
      return err_set(err,
                     "category id %lld (%.200s) does not fit into a label map, whose values are 1 to %d: use "
                     "--label-values instances",
                     (long long)id, result_class_name(classes, id), MAX_LABEL);
    if (id > UINT8_MAX) l->sample_bytes = 2;
  }
  return pictures_open(&l->pictures, folder, "maskrcnn.c labels", rank, err);
}

void labels_close(Labels *l) { pictures_close(&l->pictures); }

// 16-bit samples are stored with the upper byte first.
static void paint(uint8_t *bytes, int h, int w, int sample_bytes, const Rle *mask, int value) {
  if (mask->h != h || mask->w != w) return;
  Spans spans = spans_of(mask, 0, 0);
  for (int i = 0; i < spans.n; i++) {
    const Span s = spans.items[i];
    for (int y = s.y; y < s.end; y++) {
      uint8_t *sample = bytes + ((size_t)y * (size_t)w + (size_t)s.x) * (size_t)sample_bytes;
      if (sample_bytes == 2) *sample++ = (uint8_t)(value >> 8);
      *sample = (uint8_t)value;
    }
  }
  spans_free(&spans);
}

bool labels_write(const Labels *l, const char *name, int h, int w, const CocoResult *found, int n, double least,
                  Err *err) {
  const size_t size = (size_t)h * (size_t)w * (size_t)l->sample_bytes;
  uint8_t *bytes = pictures_memory(&l->pictures, name, size, err);
  if (!bytes) return false;
  memset(bytes, 0, size);
  const bool classes = l->values == LABELS_CLASSES;
  for (int i = classes ? n : MIN(n, MAX_LABEL); i-- > 0;)
    if (found[i].has_segm && found[i].score >= least)
      paint(bytes, h, w, l->sample_bytes, &found[i].rle, classes ? (int)found[i].category_id : i + 1);
  const PngPixels map = {.h = h, .w = w, .channels = 1, .sample_bytes = l->sample_bytes, .bytes = bytes};
  const bool ok = pictures_write(&l->pictures, name, &map, PNG_FAST, err);
  free(bytes);
  return ok;
}
