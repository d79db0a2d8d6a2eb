#include "engine/detect_strings.h"
#include <string.h>
#include "engine/detect.h"

enum { STRING_THREADS = 4 }; // the loader's need the other cores

void detect_begin(Engine *e, const Batch *batch) { engine_find(e, batch); }

// All strings, one behind the other, into memory that is used again; returns the pixels of all masks.
static double write_strings(Detector *to, const Detections *found) {
  size_t need = 0;
  double pixels = 0;
  for (int i = 0; i < found->n; i++) need += rle_string_room(&found->items[i].mask);
  array_reserve((void **)&to->text, &to->text_room, need, 1);
#pragma omp parallel for schedule(static) num_threads(STRING_THREADS) reduction(+ : pixels)
  for (int part = 0; part < STRING_THREADS; part++) {
    size_t at = 0;
    for (int i = 0; i < found->n; i++) {
      const Rle *mask = &found->items[i].mask;
      if (i % STRING_THREADS == part) {
        rle_write_string(mask, to->text + at);
        pixels += (double)rle_area(mask);
      }
      at += rle_string_room(mask);
    }
  }
  return pixels;
}

void detect_finish(Engine *e, TaskBatch *out) {
  Found found;
  CHECK(engine_found(e, true, &found));
  out->ready = now_seconds();
  out->pixels = write_strings(e->results, &found.detections);
  memcpy(out->counter, found.counter, sizeof out->counter);
}
