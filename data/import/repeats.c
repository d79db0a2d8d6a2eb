// Objects that two annotation files of one picture both have, such as a project and what was exported from it.
#include <string.h>
#include "data/import/import.h"

static bool is_same_mask(const Rle *a, const Rle *b) {
  if (!a->runs || !b->runs) return !a->runs && !b->runs;
  return a->n == b->n && !memcmp(a->runs, b->runs, (size_t)a->n * sizeof *a->runs);
}

static bool is_same(const ImportObject *a, const ImportObject *b) {
  if (a->category != b->category || a->has_box != b->has_box || a->parts != b->parts || a->numbers != b->numbers)
    return false;
  if (a->parts > 0 && (memcmp(a->points, b->points, (size_t)a->parts * sizeof *a->points) != 0 ||
                       memcmp(a->xy, b->xy, a->numbers * sizeof *a->xy) != 0))
    return false;
  return is_same_mask(&a->mask, &b->mask) && (!a->has_box || !memcmp(a->box, b->box, sizeof a->box));
}

bool object_is_repeated(const ImportImage *im, int object) {
  const ImportObject *o = &im->objects[object];
  for (int i = 0; i < object && im->objects[i].source != o->source; i++)
    if (is_same(&im->objects[i], o)) return true;
  return false;
}
