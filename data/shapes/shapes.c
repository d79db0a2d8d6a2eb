#include "data/shapes/shapes.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/rng.h"

const char *const shape_names[SHAPE_CLASSES] = {"disc", "square", "triangle", "star", "cross", "ring"};

// A stream of numbers from one key.
typedef struct Dice {
  uint64_t key, next;
} Dice;
static float roll(Dice *d, float low, float high) { return low + (high - low) * rng_uniform(d->key, d->next++); }
static int roll_int(Dice *d, int low, int high) { return low + (int)(rng_u32(d->key, d->next++) % (high - low + 1)); }

typedef struct Vec3 {
  float v[3]; // red, green, blue, 0 … 255
} Vec3;

static float clamp(float x, float low, float high) { return x < low ? low : x > high ? high : x; }
static Vec3 mix(Vec3 a, Vec3 b, float t) {
  for (int i = 0; i < 3; i++) a.v[i] += t * (b.v[i] - a.v[i]);
  return a;
}
static float difference(Vec3 a, Vec3 b) { return hypotf(hypotf(a.v[0] - b.v[0], a.v[1] - b.v[1]), a.v[2] - b.v[2]); }

// Two colours and a pattern that blends between them.
typedef enum Pattern { PATTERN_CLOUDS, PATTERN_STRIPES, PATTERN_CHECKS, PATTERN_GRAIN, PATTERNS } Pattern;
enum { LATTICE = 16 };
typedef struct Texture {
  Pattern pattern;
  Vec3 a, b;
  float cosine, sine; // of the pattern's direction
  float period;       // pixels
  float lattice[LATTICE][LATTICE];
} Texture;

static Vec3 texture_mean(const Texture *t) { return mix(t->a, t->b, 0.5f); }

static Texture roll_texture(Dice *d, int size) {
  Texture t = {.pattern = (Pattern)roll_int(d, 0, PATTERNS - 1)};
  float angle = roll(d, 0, 6.2831853f);
  t.cosine = cosf(angle);
  t.sine = sinf(angle);
  t.period = roll(d, 0.05f, 0.12f) * (float)size;
  for (int i = 0; i < 3; i++) {
    t.a.v[i] = roll(d, 20, 235);
    t.b.v[i] = clamp(t.a.v[i] + roll(d, -55, 55), 0, 255);
  }
  for (int i = 0; i < LATTICE * LATTICE; i++) t.lattice[i / LATTICE][i % LATTICE] = roll(d, 0, 1);
  return t;
}

// Value noise: random numbers on a lattice that repeats, smoothly joined.
static float noise(const Texture *t, float x, float y) {
  float fx = floorf(x), fy = floorf(y), u = x - fx, v = y - fy;
  int x0 = (int)fx & (LATTICE - 1), x1 = (x0 + 1) & (LATTICE - 1);
  int y0 = (int)fy & (LATTICE - 1), y1 = (y0 + 1) & (LATTICE - 1);
  u *= u * (3 - 2 * u);
  v *= v * (3 - 2 * v);
  float top = t->lattice[y0][x0] + u * (t->lattice[y0][x1] - t->lattice[y0][x0]);
  float bottom = t->lattice[y1][x0] + u * (t->lattice[y1][x1] - t->lattice[y1][x0]);
  return top + v * (bottom - top);
}

static Vec3 texture_colour(const Texture *t, float x, float y) {
  float u = (x * t->cosine + y * t->sine) / t->period, v = (y * t->cosine - x * t->sine) / t->period;
  float value;
  if (t->pattern == PATTERN_STRIPES)
    value = 0.5f + 0.5f * clamp(3 * sinf(6.2831853f * u), -1, 1);
  else if (t->pattern == PATTERN_CHECKS)
    value = 0.5f + 0.5f * clamp(6 * sinf(3.1415927f * u) * sinf(3.1415927f * v), -1, 1);
  else if (t->pattern == PATTERN_GRAIN)
    value = noise(t, 4 * u, 4 * v);
  else
    value = 0.6f * noise(t, 0.5f * u, 0.5f * v) + 0.4f * noise(t, u + 5, v + 9);
  return mix(t->a, t->b, value);
}

// A figure to be drawn: one shape, or the discs of a crowd.
enum { MAX_CORNERS = 12, MAX_DOTS = 24 };
typedef struct Figure {
  int category, parts;                                // parts > 1: a crowd
  float x[MAX_DOTS], y[MAX_DOTS], radius;             // centres and circumradius, pixels
  int corners;                                        // 0: bounded by circles
  float corner_x[MAX_CORNERS], corner_y[MAX_CORNERS]; // pixels from the centre
} Figure;

// Computes the corners, on or inside the unit circle before the rotation; star and cross have inner corners too.
static void set_corners(Figure *f, float turn) {
  static const float inner_star = 0.45f, arm = 0.36f; // radius of the notches; half the width of an arm
  static const int corners[SHAPE_CLASSES] = {0, 4, 3, 10, 12, 0};
  f->corners = corners[f->category];
  for (int i = 0; i < f->corners; i++) {
    float radius = 1, angle = 6.2831853f * (float)i / (float)f->corners;
    if (f->category == SHAPE_STAR && i % 2) radius = inner_star;
    if (f->category == SHAPE_CROSS) { // each arm: its two ends, then the inner corner before the next arm
      float reach = sqrtf(1 - arm * arm), spread = atan2f(arm, reach);
      float offsets[] = {-spread, spread, 0.78539816f};
      angle = 1.5707963f * (float)(i / 3) + offsets[i % 3];
      if (i % 3 == 2) radius = arm * 1.4142136f;
    }
    f->corner_x[i] = f->radius * radius * cosf(angle + turn);
    f->corner_y[i] = f->radius * radius * sinf(angle + turn);
  }
}

// Signed distance to a polygon around the origin, negative inside: nearest edge, sign by the parity of crossings.
static float polygon_distance(const Figure *f, float x, float y) {
  float nearest = INFINITY;
  bool inside = false;
  for (int i = 0, j = f->corners - 1; i < f->corners; j = i++) {
    float ex = f->corner_x[j] - f->corner_x[i], ey = f->corner_y[j] - f->corner_y[i];
    float px = x - f->corner_x[i], py = y - f->corner_y[i];
    float t = clamp((px * ex + py * ey) / (ex * ex + ey * ey), 0, 1);
    float dx = px - t * ex, dy = py - t * ey;
    nearest = MIN(nearest, dx * dx + dy * dy);
    if ((f->corner_y[i] > y) != (f->corner_y[j] > y) && px < ex * py / ey) inside = !inside;
  }
  return inside ? -sqrtf(nearest) : sqrtf(nearest);
}

// Signed distance to the figure's edge, pixels, negative inside.
static float figure_distance(const Figure *f, float x, float y) {
  static const float hole = 0.55f; // inner radius of a ring
  float distance = INFINITY;
  for (int i = 0; i < f->parts; i++) {
    float dx = x - f->x[i], dy = y - f->y[i];
    if (f->corners) return polygon_distance(f, dx, dy);
    float d = hypotf(dx, dy) - f->radius;
    if (f->category == SHAPE_RING) d = MAX(d, f->radius * (hole - 1) - d);
    distance = MIN(distance, d);
  }
  return distance;
}

static Figure roll_figure(Dice *d, int size) {
  Figure f = {.category = roll_int(d, 0, SHAPE_CLASSES - 1), .parts = 1};
  float side = (float)size;
  f.radius = side / 16 * powf(4, roll(d, 0, 1)); // every octave of sizes is equally likely
  f.x[0] = roll(d, 0.8f * f.radius, side - 0.8f * f.radius);
  f.y[0] = roll(d, 0.8f * f.radius, side - 0.8f * f.radius);
  set_corners(&f, roll(d, 0, 6.2831853f));
  return f;
}

static Figure roll_crowd(Dice *d, int size) {
  Figure f = {.category = SHAPE_DISC, .parts = roll_int(d, MAX_DOTS / 2, MAX_DOTS)};
  float side = (float)size, spread = roll(d, 0.08f, 0.14f) * side;
  float x = roll(d, 0.15f, 0.85f) * side, y = roll(d, 0.15f, 0.85f) * side;
  f.radius = side / 64;
  for (int i = 0; i < f.parts; i++) {
    float angle = roll(d, 0, 6.2831853f), away = spread * sqrtf(roll(d, 0, 1));
    f.x[i] = x + away * cosf(angle);
    f.y[i] = y + away * sinf(angle);
  }
  return f;
}

// The area where the figure can be visible: pixels x0 … x1, y0 … y1, with a margin.
typedef struct FigureSpan {
  int x0, y0, x1, y1;
} FigureSpan;
static FigureSpan figure_span(const Figure *f, int size, float margin) {
  FigureSpan s = {size, size, 0, 0};
  float reach = f->radius + margin;
  for (int i = 0; i < f->parts; i++) {
    s.x0 = MIN(s.x0, MAX((int)floorf(f->x[i] - reach), 0));
    s.x1 = MAX(s.x1, MIN((int)ceilf(f->x[i] + reach), size));
    s.y0 = MIN(s.y0, MAX((int)floorf(f->y[i] - reach), 0));
    s.y1 = MAX(s.y1, MIN((int)ceilf(f->y[i] + reach), size));
  }
  return s;
}

// The scene under construction: which instance each pixel shows, how many pixels each had and still has.
typedef struct ShapeCanvas {
  int size;
  int8_t *owner; // [size, size], -1: background
  Vec3 *colour;  // [size, size]
  int whole[SHAPES_MAX_INSTANCES], visible[SHAPES_MAX_INSTANCES];
  Vec3 mean[SHAPES_MAX_INSTANCES + 1]; // of the textures so far, the background's first
  int n;
} ShapeCanvas;

// Enters the figure into the map of owners; leaves the map unchanged if the figure is hardly inside the image or would
// hide more than half of another one.
static bool claim(ShapeCanvas *c, const Figure *f) {
  FigureSpan s = figure_span(f, c->size, 1);
  size_t stride = (size_t)c->size;
  int area = 0, hidden[SHAPES_MAX_INSTANCES] = {0}, me = c->n;
  int8_t *before = xmalloc(stride * stride);
  memcpy(before, c->owner, stride * stride);
  for (int y = s.y0; y < s.y1; y++) {
    for (int x = s.x0; x < s.x1; x++) {
      if (figure_distance(f, (float)x + 0.5f, (float)y + 0.5f) > 0) continue;
      int8_t *owner = &c->owner[y * stride + x];
      if (*owner >= 0) hidden[*owner]++;
      *owner = (int8_t)me;
      area++;
    }
  }
  bool ok = area >= 0.5f * f->radius * f->radius;
  for (int i = 0; i < me; i++) ok &= 2 * (c->visible[i] - hidden[i]) >= c->whole[i];
  if (!ok) memcpy(c->owner, before, stride * stride);
  free(before);
  if (!ok) return false;
  for (int i = 0; i < me; i++) c->visible[i] -= hidden[i];
  c->whole[me] = c->visible[me] = area;
  c->n++;
  return true;
}

// A texture that contrasts with the background and, less so, with earlier instances.
static Texture contrasting_texture(Dice *d, const ShapeCanvas *c) {
  Texture best = {0};
  float most = -1;
  for (int i = 0; i < 8; i++) {
    Texture t = roll_texture(d, c->size);
    float least = difference(texture_mean(&t), c->mean[0]);
    for (int k = 1; k <= c->n - 1; k++) least = MIN(least, 2 * difference(texture_mean(&t), c->mean[k]));
    if (least > most) {
      best = t;
      most = least;
    }
    if (most > 110) break;
  }
  return best;
}

// Blends the figure in by its coverage of each pixel, with a darker rim and a soft shadow on what is below.
static void paint(ShapeCanvas *c, const Figure *f, const Texture *t) {
  float shadow = 0.03f * (float)c->size, rim = MIN(0.2f * f->radius, 0.02f * (float)c->size);
  FigureSpan s = figure_span(f, c->size, shadow);
  for (int y = s.y0; y < s.y1; y++) {
    for (int x = s.x0; x < s.x1; x++) {
      float px = (float)x + 0.5f, py = (float)y + 0.5f, d = figure_distance(f, px, py);
      if (d >= shadow) continue;
      Vec3 *below = &c->colour[(size_t)y * c->size + x], black = {{0}};
      float outside = MAX(d, 0) / shadow, depth = clamp(-d / rim, 0, 1);
      Vec3 shaded = mix(*below, black, 0.4f * (1 - outside) * (1 - outside));
      Vec3 own = mix(texture_colour(t, px, py), black, 0.25f * (1 - depth));
      *below = mix(shaded, own, clamp(0.5f - d, 0, 1));
    }
  }
}

static void add_figure(ShapeCanvas *c, Dice *d, ShapeScene *s, const Figure *f) {
  Texture t = contrasting_texture(d, c);
  c->mean[c->n] = texture_mean(&t);
  paint(c, f, &t);
  s->items[s->n++] = (ShapeInstance){.category = f->category, .crowd = f->parts > 1};
}

static void paint_background(ShapeCanvas *c, Dice *d) {
  Texture t = roll_texture(d, c->size);
  float slope_x = roll(d, -0.3f, 0.3f), slope_y = roll(d, -0.3f, 0.3f), side = (float)c->size;
  c->mean[0] = texture_mean(&t);
  for (int y = 0; y < c->size; y++) {
    for (int x = 0; x < c->size; x++) {
      float light = 1 + slope_x * ((float)x / side - 0.5f) + slope_y * ((float)y / side - 0.5f);
      Vec3 colour = texture_colour(&t, (float)x, (float)y);
      c->colour[(size_t)y * c->size + x] = mix((Vec3){{0}}, colour, light);
    }
  }
}

static Image render(const ShapeCanvas *c) {
  Image im = image_alloc(c->size, c->size);
  for (int i = 0; i < c->size * c->size; i++)
    for (int k = 0; k < 3; k++) im.rgb[3 * i + k] = (uint8_t)(clamp(c->colour[i].v[k], 0, 255) + 0.5f);
  return im;
}

Image shapes_single(int category, int size, uint64_t key) {
  CHECK(size >= SHAPES_MIN_SINGLE);
  const float side = (float)size;
  Dice dice = {.key = key};
  ShapeCanvas c = {.size = size, .colour = xmalloc((size_t)size * size * sizeof(Vec3))};
  paint_background(&c, &dice);
  Figure f = {.category = category, .parts = 1, .radius = roll(&dice, 0.25f, 0.42f) * side};
  const float slack = side / 2 - f.radius;
  f.x[0] = side / 2 + roll(&dice, -slack, slack);
  f.y[0] = side / 2 + roll(&dice, -slack, slack);
  set_corners(&f, roll(&dice, 0, 6.2831853f));
  Texture t = contrasting_texture(&dice, &c);
  paint(&c, &f, &t);
  Image im = render(&c);
  free(c.colour);
  return im;
}

void shapes_scene(ShapeScene *s, int size, uint64_t key) {
  enum { TRIES = 60 };
  CHECK(size >= SHAPES_MIN_SIZE);
  size_t pixels = (size_t)size * size;
  Dice dice = {.key = key};
  ShapeCanvas c = {.size = size, .owner = xmalloc(pixels), .colour = xmalloc(pixels * sizeof(Vec3))};
  memset(c.owner, -1, pixels);
  *s = (ShapeScene){0};
  paint_background(&c, &dice);
  bool crowd = roll(&dice, 0, 1) < 0.1f;
  if (crowd) {
    Figure f = roll_crowd(&dice, size);
    if (claim(&c, &f)) add_figure(&c, &dice, s, &f);
  }
  int crowds = c.n, wanted = roll_int(&dice, 2, SHAPES_MAX_INSTANCES - 1);
  for (int i = 0; c.n < crowds + wanted && (i < TRIES || c.n < crowds + 2); i++) {
    Figure f = roll_figure(&dice, size);
    if (claim(&c, &f)) add_figure(&c, &dice, s, &f);
  }
  s->image = render(&c);
  uint8_t *mask = xmalloc(pixels);
  for (int i = 0; i < s->n; i++) {
    for (size_t p = 0; p < pixels; p++) mask[p] = c.owner[p] == i;
    s->items[i].whole = c.whole[i];
    s->items[i].mask = rle_from_bytes(mask, size, size);
  }
  free(mask);
  free(c.owner);
  free(c.colour);
}

void shapes_scene_free(ShapeScene *s) {
  for (int i = 0; i < s->n; i++) rle_free(&s->items[i].mask);
  image_free(&s->image);
  *s = (ShapeScene){0};
}
