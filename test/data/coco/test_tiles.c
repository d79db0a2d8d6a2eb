// Catches objects lost, doubled or cut where the tiles of a large image meet.
//
// Tests the positions of tiles, and that merging what is detected in them gives the objects of the image. The detector
// is simulated and makes no mistakes, or known ones: it knows the image's objects and cuts them out.
#include "base/alloc.h"
#include "base/rng.h"
#include "data/coco/tiles.h"
#include "data/shapes/shapes.h"
#include "test/harness/test.h"

// ---- where they lie -----------------------------------------------------------------------------------------------

static void expect_cover(int side, int tile, double overlap, int shared) {
  TilePlan p = tiles_plan(tile / 2, side, tile, overlap);
  EXPECT(p.rows == 1 && p.tile_h == tile / 2 && p.tile_w == MIN(tile, side));
  EXPECT_INT(tiles_at(&p, 0).x1, 0);
  EXPECT_INT(tiles_at(&p, p.columns - 1).x2, side);
  for (int i = 0; i < p.columns; i++) {
    const PixelRect a = tiles_at(&p, i), b = tiles_at(&p, MIN(i + 1, p.columns - 1));
    EXPECT(a.x2 - a.x1 == p.tile_w && a.y1 == 0 && a.y2 == tile / 2);
    if (i + 1 < p.columns) EXPECT(b.x1 > a.x1 && a.x2 - b.x1 >= shared);
  }
  // As few as can be: one less would not reach.
  const int64_t fewer = p.columns - 1;
  EXPECT(fewer == 0 || fewer * tile - (fewer - 1) * shared < side);
}

TEST(tiles_cover_and_overlap) {
  for (int tile = 2; tile <= 9; tile++)
    for (int side = 1; side < 60; side++) {
      expect_cover(side, tile, 0, 0);
      expect_cover(side, tile, 0.5f, (tile + 1) / 2);
      expect_cover(side, tile, 1, tile - 1); // at least one pixel further
    }
  expect_cover(10000, 1024, 0.2f, 205);
  expect_cover(1800, 1000, 0.2f, 200); // 0.2f is more than a fifth, and two tiles reach all the same
  TilePlan p = tiles_plan(2048, 1024, 1024, 0.25);
  EXPECT(p.rows == 3 && p.columns == 1 && tiles_count(&p) == 3 && tiles_at(&p, 1).y1 == 512);
}

// ---- an image, what is in it, and who finds it --------------------------------------------------------------------

enum { MOST = 400 };
typedef struct Mosaic {
  int h, w, n;
  struct {
    int64_t category;
    Spans mask;
  } objects[MOST];
} Mosaic;

static void add_object(Mosaic *m, int64_t category, const Rle *mask, int left, int top) {
  CHECK(m->n < MOST);
  m->objects[m->n].category = category;
  m->objects[m->n++].mask = spans_of(mask, left, top);
}

static void add_rect(Mosaic *m, int64_t category, int left, int top, int w, int h) {
  Rle full = {.h = h, .w = w, .n = 2, .runs = (uint32_t[]){0, (uint32_t)(h * w)}};
  add_object(m, category, &full, left, top);
}

static void mosaic_free(Mosaic *m) {
  for (int i = 0; i < m->n; i++) spans_free(&m->objects[i].mask);
}

// One pixel more in all four directions.
static Spans widened(const Spans *s) {
  Spans all = {0};
  static const int dx[] = {0, 1, -1}, dy[] = {0, 1};
  for (int i = 0; i < 3; i++) {
    Spans moved = {.n = s->n, .items = xmalloc((size_t)s->n * sizeof *s->items)};
    for (int k = 0; k < s->n; k++)
      moved.items[k] = (Span){s->items[k].x + dx[i], s->items[k].y - dy[i == 0], s->items[k].end + dy[i == 0]};
    Spans joined = spans_union(&all, &moved);
    spans_free(&all);
    spans_free(&moved);
    all = joined;
  }
  return all;
}

// Whether the finder makes the mask a pixel wider all round, drawn for every detection.
typedef struct Finder {
  bool sloppy;
  uint64_t key;
} Finder;

// The part of object i that is in the tile, if any.
static bool find_one(const Finder *f, const Mosaic *m, int i, PixelRect tile, CocoResult *found) {
  const Spans *truth = &m->objects[i].mask;
  if (spans_area(truth, tile) == 0) return false;
  const uint64_t key = rng_key(f->key, (uint64_t)(i * 1000003 + tile.x1 * 1009 + tile.y1));
  Spans wide = f->sloppy && rng_u32(key, 0) % 2 ? widened(truth) : spans_union(truth, &(Spans){0});
  const int h = tile.y2 - tile.y1, w = tile.x2 - tile.x1;
  uint8_t *bytes = xmalloc((size_t)h * (size_t)w);
  spans_bytes(&wide, tile, bytes);
  *found = (CocoResult){.image_id = 5, .category_id = m->objects[i].category, .has_bbox = true, .has_segm = true};
  found->score = rng_uniform(key, 1);
  found->rle = rle_from_bytes(bytes, h, w);
  rle_bbox(&found->rle, found->bbox);
  spans_free(&wide);
  free(bytes);
  return true;
}

static CocoResults find_and_merge(const Finder *f, const Mosaic *m, const TilePlan *p) {
  const int tiles = tiles_count(p);
  TileDetections *found = xcalloc((size_t)tiles, sizeof *found);
  CocoResult *items = xmalloc((size_t)tiles * (size_t)m->n * sizeof *items), *at = items;
  for (int t = 0; t < tiles; t++) {
    found[t] = (TileDetections){.tile = tiles_at(p, t), .items = at};
    for (int i = 0; i < m->n; i++)
      if (find_one(f, m, i, found[t].tile, at)) at++;
    found[t].n = (int)(at - found[t].items);
  }
  CocoResults r = tiles_merge(found, tiles, m->h, m->w);
  for (const CocoResult *c = items; c < at; c++) free(c->rle.runs);
  free(items);
  free(found);
  return r;
}

static bool same_rle(const Rle *a, const Rle *b) {
  return a->h == b->h && a->w == b->w && a->n == b->n && memcmp(a->runs, b->runs, (size_t)a->n * sizeof *a->runs) == 0;
}

// As many detections as objects, and each object as it is, box and mask, once.
static void expect_truth(const Mosaic *m, const CocoResults *r) {
  EXPECT_INT(r->n, m->n);
  for (int i = 0; i < m->n; i++) {
    Rle want = spans_rle(&m->objects[i].mask, m->h, m->w);
    double box[4];
    int times = 0;
    rle_bbox(&want, box);
    for (int k = 0; k < r->n; k++)
      times += r->items[k].category_id == m->objects[i].category && same_rle(&r->items[k].rle, &want) &&
               !memcmp(r->items[k].bbox, box, sizeof box) && r->items[k].image_id == 5;
    EXPECT_INT(times, 1);
    rle_free(&want);
  }
  for (int k = 1; k < r->n; k++) EXPECT(r->items[k - 1].score >= r->items[k].score);
}

// ---- what comes together ------------------------------------------------------------------------------------------

enum { SCENE = 96 };

// Scenes of shapes, whose masks are known, wherever they come to lie: at sides of tiles, at their corners and between.
static void assemble(Mosaic *m, int h, int w, uint64_t key) {
  *m = (Mosaic){.h = h, .w = w};
  int scene = 0;
  for (int y = (int)(rng_u32(key, 0) % 40); y + SCENE <= h; y += SCENE + (int)(rng_u32(key, (uint64_t)y) % 30))
    for (int x = (int)(rng_u32(key, 1) % 40); x + SCENE <= w; x += SCENE + (int)(rng_u32(key, (uint64_t)x) % 30)) {
      ShapeScene s;
      shapes_scene(&s, SCENE, rng_key(key, (uint64_t)scene++));
      for (int i = 0; i < s.n; i++) // of one class, so that no class keeps neighbours apart
        add_object(m, 1, &s.items[i].mask, x, y);
      shapes_scene_free(&s);
    }
}

// Objects that are smaller than the overlap, hidden ones in several pieces among them: the merged result is the truth.
TEST(tiles_merge_gives_back_the_truth) {
  static const struct {
    int h, w, tile;
    double overlap;
  } cases[] = {
      {500, 700, 256, 0.4}, {400, 400, 200, 0.5}, {140, 640, 256, 0.4}, {300, 260, 1024, 0.2}, {250, 300, 112, 0.87}};
  for (int c = 0; c < COUNT(cases); c++) {
    const TilePlan p = tiles_plan(cases[c].h, cases[c].w, cases[c].tile, cases[c].overlap);
    Mosaic m;
    assemble(&m, cases[c].h, cases[c].w, rng_key(RNG_TEST, (uint64_t)c));
    EXPECT(m.n > 5);
    CocoResults r = find_and_merge(&(Finder){.key = 7}, &m, &p);
    expect_truth(&m, &r);
    coco_results_free(&r);
    mosaic_free(&m);
  }
}

// Objects that no tile sees whole: bars over three tiles and more, and a frame round many.
TEST(tiles_merge_joins_the_pieces) {
  Mosaic m = {.h = 400, .w = 600};
  const TilePlan p = tiles_plan(m.h, m.w, 128, 0.25);
  uint8_t *frame = xmalloc((size_t)m.h * (size_t)m.w);
  for (int y = 0; y < m.h; y++)
    for (int x = 0; x < m.w; x++) frame[y * m.w + x] = MIN(MIN(x, m.w - 1 - x), MIN(y, m.h - 1 - y)) < 10;
  Rle r = rle_from_bytes(frame, m.h, m.w);
  add_object(&m, 1, &r, 0, 0);
  add_rect(&m, 1, 30, 40, 500, 20);
  add_rect(&m, 1, 30, 61, 500, 20); // a neighbour, a pixel apart
  add_rect(&m, 1, 50, 100, 25, 280);
  add_rect(&m, 2, 200, 150, 300, 200);
  CocoResults got = find_and_merge(&(Finder){.key = 1}, &m, &p);
  expect_truth(&m, &got);
  coco_results_free(&got);
  rle_free(&r);
  free(frame);
  mosaic_free(&m);
}

// Masks that are wider by a pixel in about every other tile: still one detection an object, which holds the object and
// lies in the object widened.
TEST(tiles_merge_bears_a_sloppy_finder) {
  Mosaic m = {.h = 500, .w = 700};
  const TilePlan p = tiles_plan(m.h, m.w, 256, 0.2);
  for (int y = 5; y + 50 < m.h; y += 57)
    for (int x = 5; x + 40 < m.w; x += 43) add_rect(&m, 1, x, y, 40, 50);
  add_rect(&m, 2, 20, 20, 600, 30); // cut by all tiles of a row, over others of another class
  CocoResults r = find_and_merge(&(Finder){.sloppy = true, .key = 3}, &m, &p);
  EXPECT_INT(r.n, m.n);
  int found = 0;
  for (int i = 0; i < m.n; i++) {
    const PixelRect image = {0, 0, m.w, m.h};
    Spans wide = widened(&m.objects[i].mask);
    const int64_t area = spans_area(&m.objects[i].mask, image);
    for (int k = 0; k < r.n; k++) {
      Spans got = spans_of(&r.items[k].rle, 0, 0);
      const int64_t all = spans_area(&got, image);
      found += r.items[k].category_id == m.objects[i].category &&
               spans_common_area(&got, &m.objects[i].mask, image) == area &&
               spans_common_area(&got, &wide, image) == all;
      spans_free(&got);
    }
    spans_free(&wide);
  }
  EXPECT_INT(found, m.n);
  coco_results_free(&r);
  mosaic_free(&m);
}

// ---- what stays apart ---------------------------------------------------------------------------------------------

// Two tiles side by side, 20 columns of which both see: x 80 … 99 of 180.
static const PixelRect left_tile = {0, 0, 100, 50}, right_tile = {80, 0, 180, 50};

static CocoResult rect_detection(PixelRect tile, PixelRect r, double score, int64_t category) {
  CocoResult c = {.category_id = category, .score = score, .has_bbox = true, .has_segm = true};
  Spans s = {.n = r.x2 - r.x1};
  s.items = xmalloc((size_t)s.n * sizeof *s.items);
  for (int i = 0; i < s.n; i++) s.items[i] = (Span){r.x1 - tile.x1 + i, r.y1 - tile.y1, r.y2 - tile.y1};
  c.rle = spans_rle(&s, tile.y2 - tile.y1, tile.x2 - tile.x1);
  rle_bbox(&c.rle, c.bbox);
  spans_free(&s);
  return c;
}

// How many objects come of detections in the left tile and in the right one; those of no size are left out.
static int objects_of(const PixelRect left[2], const PixelRect right[2], int64_t right_category) {
  CocoResult l[2], r[2];
  TileDetections found[] = {{left_tile, l, 0}, {right_tile, r, 0}};
  for (int i = 0; i < 2; i++) {
    if (!rect_empty(left[i])) l[found[0].n++] = rect_detection(left_tile, left[i], 0.9 - 0.1 * i, 1);
    if (!rect_empty(right[i])) r[found[1].n++] = rect_detection(right_tile, right[i], 0.85 - 0.1 * i, right_category);
  }
  CocoResults out = tiles_merge(found, 2, 50, 180);
  const int n = out.n;
  coco_results_free(&out);
  for (int i = 0; i < found[0].n; i++) rle_free(&l[i].rle);
  for (int i = 0; i < found[1].n; i++) rle_free(&r[i].rle);
  return n;
}

TEST(tiles_merge_keeps_objects_apart) {
  static const struct {
    int want;
    int64_t right_category;
    PixelRect left[2], right[2];
  } cases[] = {
      {1, 1, {{60, 10, 100, 30}}, {{80, 10, 150, 30}}},                  // one object over both
      {2, 2, {{60, 10, 100, 30}}, {{80, 10, 150, 30}}},                  // of two classes
      {1, 1, {{0, 10, 100, 30}}, {{80, 10, 180, 30}}},                   // a fifth of each is all that both see
      {2, 1, {{40, 10, 83, 30}}, {{81, 10, 150, 30}}},                   // neighbours that overlap a little
      {2, 1, {{40, 10, 83, 30}}, {{80, 5, 110, 40}}},                    // … all that both see of the left one
      {2, 1, {{60, 10, 100, 20}}, {{80, 19, 150, 30}}},                  // above each other, a row in common
      {1, 1, {{82, 10, 97, 30}}, {{83, 11, 98, 30}}},                    // both tiles have it
      {2, 1, {{82, 10, 89, 30}, {90, 10, 97, 30}}, {{82, 10, 97, 30}}},  // the right one takes two for one
      {1, 1, {{40, 5, 100, 15}, {40, 25, 100, 35}}, {{80, 5, 150, 35}}}, // the left one sees two legs of one
  };
  for (int i = 0; i < COUNT(cases); i++)
    EXPECT_INT(objects_of(cases[i].left, cases[i].right, cases[i].right_category), cases[i].want);
}

// A mask that has no pixels cannot be compared; the box stands in for it, but not in the result where there is a mask.
TEST(tiles_merge_compares_empty_masks_by_their_box) {
  CocoResult l = rect_detection(left_tile, (PixelRect){82, 10, 97, 30}, 0.9, 1), r = l;
  r = rect_detection(right_tile, (PixelRect){82, 10, 97, 30}, 0.8, 1);
  rle_free(&l.rle);
  l.rle = (Rle){.h = 50, .w = 100, .n = 1, .runs = xmalloc(sizeof *l.rle.runs)};
  l.rle.runs[0] = 5000;
  const TileDetections found[] = {{left_tile, &l, 1}, {right_tile, &r, 1}};
  CocoResults out = tiles_merge(found, 2, 50, 180);
  if (EXPECT_INT(out.n, 1)) {
    EXPECT_NEAR(out.items[0].score, 0.9, 0);
    EXPECT_INT((long long)rle_area(&out.items[0].rle), 15 * 20);
    EXPECT_NEAR(out.items[0].bbox[0], 82, 0);
  }
  coco_results_free(&out);
  out = tiles_merge(found, 1, 50, 180);
  EXPECT(out.n == 1 && rle_area(&out.items[0].rle) == 0 && out.items[0].rle.w == 180);
  coco_results_free(&out);
  out = tiles_merge(NULL, 0, 50, 180);
  EXPECT_INT(out.n, 0);
  coco_results_free(&out);
  rle_free(&l.rle);
  rle_free(&r.rle);
}
