// Catches pasted objects with wrong pixels or masks, objects below that keep what is covered, and batches that depend
// on threads.
#include <string.h>
#include "base/alloc.h"
#include "base/rng.h"
#include "data/batches/paste.h"
#include "test/harness/batches.h"
#include "test/harness/small_set.h"

static uint64_t key_of(int i) { return rng_key(RNG_TEST, (uint64_t)i); }

static uint8_t *pixels_of(int image) {
  const Size s = image_size(image);
  uint8_t *rgb = xmalloc(3 * (size_t)s.h * (size_t)s.w);
  for (int64_t i = 0; i < 3 * (int64_t)s.h * s.w; i++) rgb[i] = image_byte(image, i);
  return rgb;
}

// Image i of the set after another was pasted over it.
typedef struct Scene {
  int h, w, n;
  PastedObject *object;
  uint8_t *rgb, *before, *from;
  uint8_t *above, *below; // [h, w] whether a pixel is in a pasted mask, in one of its own
  Scratch scratch;
} Scene;

static Scene scene(const Dataset *d, const Augment *a, int key, int i, int source) {
  const int image = image_number(d, i), from = image_number(d, source);
  const Size size = image_size(image);
  const size_t pixels = (size_t)size.h * (size_t)size.w;
  Scene s = {.h = size.h, .w = size.w, .rgb = pixels_of(image), .before = pixels_of(image), .from = pixels_of(from)};
  s.object = paste_objects(d, a, key_of(key), i, s.rgb, source, s.from, 1, 50, &s.scratch, &s.n);
  s.above = xcalloc(pixels, 1);
  s.below = xcalloc(pixels, 1);
  uint8_t *mask = xmalloc(pixels);
  for (int k = 0; k < s.n; k++) {
    const PastedObject *o = &s.object[k];
    if (!o->has_mask) continue;
    EXPECT(o->mask.h == s.h && o->mask.w == s.w && rle_area(&o->mask) > 0);
    rle_to_bytes(&o->mask, mask);
    for (size_t b = 0; b < pixels; b++) (o->pasted ? s.above : s.below)[b] |= mask[b];
  }
  free(mask);
  return s;
}

static void scene_free(Scene *s) {
  free(s->rgb);
  free(s->before);
  free(s->from);
  free(s->above);
  free(s->below);
  scratch_free(&s->scratch);
}

static bool in_object(int image, int o, int y, int x) {
  const int left = object_x(image, o), top = object_y(o);
  return x >= left && x < left + OBJECT_W && y >= top && y < top + OBJECT_H;
}

// An image pasted onto itself, mirrored or not: every pixel and every bit can be told. Where it is not, what is pasted
// covers its own original.
TEST(paste_of_an_image_onto_itself) {
  Dataset d;
  if (!open_set(&d, small_set("paste-mirror"), &small_options)) return;
  const Augment ways[] = {{.flip = 1}, {.flip = 0}};
  int pasted = 0, covered = 0;
  for (int i = 0; i < d.num_images; i++)
    for (int key = 0; key < 4; key++) {
      const int image = image_number(&d, i), objects = image_objects(image);
      const bool mirrored = key < 2;
      Scene s = scene(&d, &ways[!mirrored], key, i, i);
      int added = 0;
      for (int k = 0; k < s.n; k++) {
        const PastedObject *p = &s.object[k];
        const int o = (int)(p->object - d.object) - d.first_object[i];
        EXPECT(o >= 0 && o < objects && (p->has_mask || !p->pasted));
        if (!p->has_mask) continue;
        EXPECT(fabs(p->whole - OBJECT_W * OBJECT_H) < 1e-3);
        uint8_t *mask = xmalloc((size_t)s.h * (size_t)s.w);
        rle_to_bytes(&p->mask, mask);
        int wrong = 0;
        for (int b = 0; b < s.h * s.w; b++) {
          const int y = b / s.w, x = b % s.w;
          wrong += mask[b] != (p->pasted ? in_object(image, o, y, mirrored ? s.w - 1 - x : x)
                                         : in_object(image, o, y, x) && !s.above[b]);
        }
        EXPECT_INT(wrong, 0);
        added += p->pasted;
        free(mask);
      }
      int wrong = 0;
      for (int b = 0; b < 3 * s.h * s.w; b++) {
        const int y = b / 3 / s.w, x = b / 3 % s.w;
        wrong +=
            s.rgb[b] != (s.above[b / 3] ? s.before[(y * s.w + (mirrored ? s.w - 1 - x : x)) * 3 + b % 3] : s.before[b]);
      }
      EXPECT_INT(wrong, 0);
      EXPECT(mirrored || s.n == objects);
      pasted += added;
      covered += mirrored ? 0 : added;
      scene_free(&s);
    }
  EXPECT(pasted > 10 && covered > 5);
  dataset_close(&d);
}

// Whatever is drawn, pixels beside what is pasted stay, no pixel is in an object above and one below, and an object
// that is all to be seen has as many pixels as its area.
TEST(paste_of_other_images) {
  Dataset d;
  if (!open_set(&d, small_set("paste-other"), &small_options)) return;
  const Augment a = {.flip = 0.5f, .turn = 1, .rotate = 30, .scale_down = 0.3f, .scale_up = 1, .shift = 0.1f};
  int pasted = 0, chosen = 0, could = 0, covered = 0;
  for (int key = 0; key < 60; key++) {
    const int i = key % d.num_images, source = key * 7 % d.num_images;
    Scene s = scene(&d, &a, key, i, source);
    int wrong = 0, both = 0;
    for (int b = 0; b < s.h * s.w; b++) {
      both += s.above[b] && s.below[b];
      wrong += !s.above[b] && memcmp(s.rgb + 3 * b, s.before + 3 * b, 3) != 0;
    }
    EXPECT_INT(both, 0);
    EXPECT_INT(wrong, 0);
    for (int o = d.first_object[source]; o < d.first_object[source + 1]; o++)
      could += dataset_has_mask(&d, source, &d.object[o]);
    for (int k = 0; k < s.n; k++) {
      const PastedObject *p = &s.object[k];
      covered += !p->pasted && p->has_mask && (double)rle_area(&p->mask) < p->whole;
      if (!p->pasted) continue;
      chosen++;
      double box[4];
      rle_bbox(&p->mask, box);
      if (box[0] < 1 || box[1] < 1 || box[0] + box[2] > s.w - 1 || box[1] + box[3] > s.h - 1) continue;
      // Centres inside a quadrilateral: off by less than half its boundary.
      EXPECT_NEAR((double)rle_area(&p->mask), p->whole, 2 * sqrt(p->whole) + 1);
      pasted++;
    }
    scene_free(&s);
  }
  EXPECT(pasted > 5 && covered > 3 && chosen > could / 4 && chosen < could * 3 / 4);
  dataset_close(&d);
}

static void check_pasted(const Batch *b, int position) {
  const ImageInfo *info = &b->info[position];
  const ImageView *v = &info->view;
  EXPECT(v->moved && !info->flip && b->count[position] <= b->capacity);
  for (int row = position * b->capacity; row < position * b->capacity + b->count[position]; row++) {
    const Bitmap *m = &b->bitmap[row];
    double x1 = INFINITY, y1 = INFINITY, x2 = 0, y2 = 0;
    EXPECT(m->parts == 0 || m->parts == NO_MASK);
    if (m->parts == NO_MASK) continue;
    for (int i = 0; i < info->rh * info->rw; i++) {
      const double cx = i % info->rw + 0.5, cy = i / info->rw + 0.5;
      const int x = (int)floor((double)v->map[0] * cx + (double)v->map[1] * cy + (double)v->map[2]) - m->x;
      const int y = (int)floor((double)v->map[3] * cx + (double)v->map[4] * cy + (double)v->map[5]) - m->y;
      if (x < 0 || y < 0 || x >= m->w || y >= m->h) continue;
      if (!(b->bits[m->offset + y * ((m->w + 31) / 32) + x / 32] >> (x % 32) & 1)) continue;
      x1 = fmin(x1, cx - 0.5);
      y1 = fmin(y1, cy - 0.5);
      x2 = fmax(x2, cx + 0.5);
      y2 = fmax(y2, cy + 0.5);
    }
    const float *box = b->box + 4 * row;
    EXPECT((double)box[0] > x1 - 1.5 && (double)box[1] > y1 - 1.5 && (double)box[2] < x2 + 1.5 &&
           (double)box[3] < y2 + 1.5);
    EXPECT((double)box[0] < x1 + 1 && (double)box[1] < y1 + 1 && (double)box[2] > x2 - 1 && (double)box[3] > y2 - 1);
  }
}

// Boxes are where the bits are; other threads, and a run that begins later, have the same.
TEST(loader_pastes) {
  enum { STEPS = 12, RESUMED = 5 };
  Dataset d;
  DatasetOptions room = small_options;
  room.paste = true;
  if (!open_set(&d, small_set("pasted"), &room)) return;
  LoaderOptions o = training(3);
  o.augment = (Augment){.flip = 0.5f, .scale_down = 0.3f, .scale_up = 0.5f, .contrast = 0.5f, .paste = 1};
  o.memory = zeroed_memory;
  uint64_t want[STEPS], got[STEPS];
  Err err;
  int more = 0;
  Loader *l = loader_open(&d, &o, &err);
  for (int64_t step = 0; step < STEPS; step++) {
    const Batch *b = loader_next(l, &err);
    if (!EXPECT(b)) break;
    want[step] = hash_batch(b);
    for (int position = 0; position < b->images; position++) {
      check_pasted(b, position);
      more += b->count[position] > image_objects(image_number(&d, b->index[position]));
    }
  }
  EXPECT(more > 5);
  loader_close(l);
  o.threads = 4;
  o.first_step = RESUMED;
  run_hashes(&d, &o, got, STEPS - RESUMED);
  for (int i = RESUMED; i < STEPS; i++) EXPECT(got[i - RESUMED] == want[i]);
  dataset_close(&d);
}
