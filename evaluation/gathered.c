#include "evaluation/gathered.h"
#include <stdlib.h>
#include "base/alloc.h"

typedef struct GatheredImage {
  int image;
  int found;
} GatheredImage;

typedef struct GatheredResult {
  int64_t image_id, category_id;
  double bbox[4], score;
  int h, w, runs, unused; // of the mask, whose runs follow; without padding
} GatheredResult;

static void put_result(ByteBuffer *to, const CocoResult *r) {
  const GatheredResult g = {.image_id = r->image_id,
                            .category_id = r->category_id,
                            .bbox = {r->bbox[0], r->bbox[1], r->bbox[2], r->bbox[3]},
                            .score = r->score,
                            .h = r->rle.h,
                            .w = r->rle.w,
                            .runs = r->rle.n};
  byte_buffer_put(to, &g, sizeof g);
  byte_buffer_put(to, r->rle.runs, (size_t)r->rle.n * sizeof *r->rle.runs);
}

void gathered_put(ByteBuffer *to, int image, const CocoResult *found, int n) {
  const GatheredImage g = {image, n};
  byte_buffer_put(to, &g, sizeof g);
  for (int i = 0; i < n; i++) put_result(to, &found[i]);
}

static bool take_mask(ByteReader *from, const GatheredResult *g, Rle *mask) {
  ByteReader runs;
  if (g->h < 0 || g->w < 0) return false;
  const size_t bytes = (size_t)g->runs * sizeof *mask->runs;
  if (!byte_reader_part(from, &runs, bytes)) return false;
  *mask = (Rle){g->h, g->w, g->runs, xmalloc(bytes)};
  byte_reader_take(&runs, mask->runs, bytes);
  return rle_adds_up(mask->runs, mask->n, mask->h, mask->w, NULL);
}

static bool take_result(ByteReader *from, CocoResult *r) {
  GatheredResult g;
  if (!byte_reader_take(from, &g, sizeof g)) return false;
  *r = (CocoResult){.image_id = g.image_id,
                    .category_id = g.category_id,
                    .bbox = {g.bbox[0], g.bbox[1], g.bbox[2], g.bbox[3]},
                    .score = g.score,
                    .has_bbox = true,
                    .has_segm = g.runs > 0};
  return g.runs >= 0 && (!r->has_segm || take_mask(from, &g, &r->rle));
}

bool gathered_take(ByteReader *from, int images, int *image, CocoResult **found, int *n) {
  GatheredImage g;
  if (!byte_reader_take(from, &g, sizeof g) || g.image < 0 || g.image >= images) return false;
  if (g.found < 0 || (size_t)g.found > from->left / sizeof(GatheredResult)) return false;
  CocoResults all = {xcalloc((size_t)g.found, sizeof *all.items), 0, NULL};
  for (bool ok = true; all.n < g.found;) {
    ok = take_result(from, &all.items[all.n++]);
    if (ok) continue;
    coco_results_free(&all);
    return false;
  }
  *image = g.image;
  *found = all.items;
  *n = all.n;
  return true;
}
