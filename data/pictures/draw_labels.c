#include "data/pictures/draw_labels.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "data/pictures/cover.h"

static const float LEGIBLE = 8;        // pixels, the least size
static const float HIDDEN = 0.2f;      // share of objects that a label beside its object may cover
static const float HIDDEN_FAR = 0.02f; // and one that has a leader line
enum { MANY = 30, MOST_LEADERS = 40 }; // objects; where there are more, leader lines would be a tangle

float label_size(const Image *im, int n) {
  const float size = (float)MIN(im->h, im->w) / 48 * fminf(1, sqrtf((float)MANY / (float)MAX(n, 1)));
  return fminf(fmaxf(size, LEGIBLE), FONT_MAX);
}

typedef struct Leader { // the line from an object to its label
  Point from, to;
} Leader;

// What labels must not cover: objects, labels and leader lines drawn so far.
typedef struct Layout {
  Cover cover;
  Rect *plates; // [objects and notes]
  Leader *leaders;
  int num_plates, num_leaders;
  float h, w; // of the image
  float size, pad, height, line;
} Layout;

// ---- room ---------------------------------------------------------------------------------------------------------

// Whether a line runs through a rectangle.
static bool crosses(Leader l, Rect r) {
  enum { STEPS = 64 };
  for (int i = 0; i <= STEPS; i++) {
    const float t = (float)i / STEPS, x = l.from.x + t * (l.to.x - l.from.x), y = l.from.y + t * (l.to.y - l.from.y);
    if (x > r.x1 && x < r.x2 && y > r.y1 && y < r.y2) return true;
  }
  return false;
}

// Whether two lines cross: the ends of each lie on both sides of the other.
static float side_of(Leader l, Point p) {
  return (l.to.x - l.from.x) * (p.y - l.from.y) - (l.to.y - l.from.y) * (p.x - l.from.x);
}
static bool lines_cross(Leader a, Leader b) {
  return side_of(a, b.from) * side_of(a, b.to) < 0 && side_of(b, a.from) * side_of(b, a.to) < 0;
}

// Whether a plate lies in the image, over no other and over no leader line.
static bool is_free(const Layout *l, Rect plate) {
  if (!(plate.x1 >= 0 && plate.y1 >= 0 && plate.x2 <= l->w && plate.y2 <= l->h)) return false;
  for (int i = 0; i < l->num_plates; i++)
    if (rect_overlap(plate, l->plates[i]) > 0) return false;
  for (int i = 0; i < l->num_leaders; i++)
    if (crosses(l->leaders[i], plate)) return false;
  return true;
}

static Rect plate_at(float x, float y, float w, float h) {
  x = roundf(x);
  y = roundf(y);
  return (Rect){x, y, x + w, y + h};
}

// Among the positions at the corners and sides of a box, outside or inside, the one that hides least.
static bool place_beside(const Layout *l, Rect box, float w, Rect *plate) {
  const float h = l->height, xs[] = {box.x1, box.x2 - w, (box.x1 + box.x2 - w) / 2};
  const float ys[] = {box.y1 - h, box.y1, box.y2, box.y2 - h};
  float least = HIDDEN;
  bool found = false;
  for (int i = 0; i < COUNT(xs) * COUNT(ys); i++) {
    const Rect at = plate_at(fminf(fmaxf(xs[i % COUNT(xs)], 0), l->w - w), ys[i / COUNT(xs)], w, h);
    const float hidden = (float)cover_in(&l->cover, at) + 0.005f * (float)i; // in a tie the first, above left
    if (hidden >= least || !is_free(l, at)) continue;
    least = hidden;
    *plate = at;
    found = true;
  }
  return found;
}

static Point nearest_point(Rect r, Point p) {
  return (Point){fminf(fmaxf(p.x, r.x1), r.x2), fminf(fmaxf(p.y, r.y1), r.y2)};
}

// Around the box, farther and farther off, the first position that hides nothing and whose line crosses no label and no
// other line.
static bool place_led(const Layout *l, Rect box, Point object, float w, Rect *plate, Leader *leader) {
  enum { DIRECTIONS = 16 };
  static const float distances[] = {0.7f, 1.5f, 2.5f, 4}; // heights of a label
  for (int i = 0; i < COUNT(distances) * DIRECTIONS; i++) {
    const float angle = ((float)(i % DIRECTIONS) - 5) * 6.2831853f / DIRECTIONS, dx = cosf(angle), dy = sinf(angle);
    const float far = distances[i / DIRECTIONS] * l->height;
    const float x = (box.x1 + box.x2) / 2 + dx * ((box.x2 - box.x1 + w) / 2 + far);
    const float y = (box.y1 + box.y2) / 2 + dy * ((box.y2 - box.y1 + l->height) / 2 + far);
    const Rect at = plate_at(x - w / 2, y - l->height / 2, w, l->height);
    const Leader line = {object, nearest_point(at, object)};
    if (cover_in(&l->cover, at) > (double)HIDDEN_FAR || !is_free(l, at)) continue;
    bool clear = true;
    for (int k = 0; k < l->num_plates && clear; k++) clear = !crosses(line, l->plates[k]);
    for (int k = 0; k < l->num_leaders && clear; k++) clear = !lines_cross(line, l->leaders[k]);
    if (!clear) continue;
    *plate = at;
    *leader = line;
    return true;
  }
  return false;
}

// Anywhere in the image: where it hides least, and as near to a point as that allows.
static bool place_anywhere(const Layout *l, Point near, float w, Rect *plate) {
  float least = INFINITY;
  const float step = fmaxf(l->height / 2, 2);
  for (float y = 0; y + l->height <= l->h; y += step)
    for (float x = 0; x + w <= l->w; x += step) {
      const Rect at = plate_at(x, y, w, l->height);
      const float away = hypotf(x + w / 2 - near.x, y + l->height / 2 - near.y) / (l->w + l->h);
      const float cost = 10 * (float)cover_in(&l->cover, at) + away;
      if (cost >= least || !is_free(l, at)) continue;
      least = cost;
      *plate = at;
    }
  return least < INFINITY;
}

// ---- drawing ------------------------------------------------------------------------------------------------------

static void draw_plate(Image *im, Rect r, float radius, Colour c) {
  for (int y = (int)r.y1; y < (int)r.y2; y++)
    for (int x = (int)r.x1; x < (int)ceilf(r.x2) && x < im->w; x++)
      image_blend(im, y, x, c, 0.92f * fminf(fmaxf(0.5f - rect_distance(r, radius, x, y), 0), 1));
}

static Colour ink_on(Colour c) {
  const float luminance = 0.299f * c.r + 0.587f * c.g + 0.114f * c.b;
  return luminance > 140 ? (Colour){20, 20, 20} : (Colour){255, 255, 255};
}

static void draw_text(Image *im, Layout *l, Rect plate, const char *text, Colour c) {
  l->plates[l->num_plates++] = plate;
  draw_plate(im, plate, l->size * 0.3f, c);
  font_draw(im, plate.x1 + l->pad, plate.y1 + l->pad + roundf(l->size), l->size, ink_on(c), text);
}

// A line with a dot at its beginning.
static void draw_leader(Image *im, Layout *l, Leader line, Colour c) {
  const float half = fmaxf(l->line, 1.2f) / 2, dot = 2.5f * half, dx = line.to.x - line.from.x,
              dy = line.to.y - line.from.y;
  const float length2 = dx * dx + dy * dy;
  l->leaders[l->num_leaders++] = line;
  const int x1 = MIN((int)(fmaxf(line.from.x, line.to.x) + dot + 2), im->w);
  const int y1 = MIN((int)(fmaxf(line.from.y, line.to.y) + dot + 2), im->h);
  for (int y = MAX((int)(fminf(line.from.y, line.to.y) - dot - 1), 0); y < y1; y++)
    for (int x = MAX((int)(fminf(line.from.x, line.to.x) - dot - 1), 0); x < x1; x++) {
      const float px = (float)x + 0.5f - line.from.x, py = (float)y + 0.5f - line.from.y;
      const float t = length2 > 0 ? fminf(fmaxf((px * dx + py * dy) / length2, 0), 1) : 0;
      const float inside = fmaxf(half - hypotf(px - t * dx, py - t * dy), dot - hypotf(px, py)) + 0.5f;
      image_blend(im, y, x, c, 0.92f * fminf(fmaxf(inside, 0), 1));
    }
}

// A name that is too wide ends in two dots. Caller frees.
static char *fitted(const char *name, float size, float most) {
  enum { LONGEST = 200 }; // bytes that are looked at
  char *text = xasprintf("%.*s..", LONGEST, name);
  size_t n = strlen(text) - 2;
  if (font_width(name, size) <= most) text[n] = '\0';
  while (n > 0 && font_width(text, size) > most) {
    do n--;
    while (n > 0 && ((unsigned char)name[n] & 0xC0) == 0x80); // inside a character
    memcpy(text + n, "..", 3);
  }
  if (n == 0) text[0] = '\0';
  return text;
}

// Caller frees.
static char *text_of(const LabelledObject *o, const Layout *l) {
  char score[16] = "", *name = fitted(o->name, l->size, 0.4f * l->w);
  if (o->score >= 0) snprintf(score, sizeof score, "%.2f", (double)o->score);
  char *text = xasprintf("%s%s%s", name, *name && *score ? " " : "", score);
  free(name);
  return text;
}

// ---- all labels ---------------------------------------------------------------------------------------------------

static Point point_on(const LabelledObject *o) {
  if (!o->mask || !o->mask->n) return (Point){(o->box.x1 + o->box.x2) / 2, (o->box.y1 + o->box.y2) / 2};
  const Span s = o->mask->items[o->mask->n / 2];
  return (Point){(float)s.x + 0.5f, (float)(s.y + s.end) / 2};
}

// Draws an object's label. False if there is no room.
static bool draw_label(Image *im, Layout *l, const LabelledObject *o, bool leaders) {
  char *text = text_of(o, l);
  Rect plate;
  Leader leader;
  const float w = ceilf(font_width(text, l->size)) + 2 * l->pad;
  const bool beside = !*text || place_beside(l, o->box, w, &plate);
  const bool led = !beside && leaders && place_led(l, o->box, point_on(o), w, &plate, &leader);
  if (led) draw_leader(im, l, leader, o->colour);
  if ((beside || led) && *text) draw_text(im, l, plate, text, o->colour);
  free(text);
  return beside || led;
}

// Objects of a class that have no label.
typedef struct LeftOut {
  const LabelledObject *first;
  int n;
  Point sum; // of points on them
} LeftOut;

static void leave_out(LeftOut *list, int *classes, const LabelledObject *o) {
  int i = 0;
  while (i < *classes && strcmp(list[i].first->name, o->name) != 0) i++;
  if (i == *classes) list[(*classes)++] = (LeftOut){.first = o};
  const Point p = point_on(o);
  list[i].n++;
  list[i].sum = (Point){list[i].sum.x + p.x, list[i].sum.y + p.y};
}

static void draw_left_out(Image *im, Layout *l, const LeftOut *left) {
  char *name = fitted(left->first->name, l->size, 0.4f * l->w), *text = xasprintf("+%d %s", left->n, name);
  if (!*name) text[strlen(text) - 1] = '\0';
  const Point middle = {left->sum.x / (float)left->n, left->sum.y / (float)left->n};
  Rect plate;
  if (place_anywhere(l, middle, ceilf(font_width(text, l->size)) + 2 * l->pad, &plate))
    draw_text(im, l, plate, text, left->first->colour);
  free(name);
  free(text);
}

static int by_score(const void *a, const void *b) {
  const LabelledObject *p = *(const LabelledObject *const *)a, *q = *(const LabelledObject *const *)b;
  const float s = p->score >= 0 ? p->score : -1, t = q->score >= 0 ? q->score : -1;
  return s != t ? (s < t ? 1 : -1) : (p > q) - (p < q);
}

void draw_labels(Image *im, const LabelledObject *objects, int n, float size, float line) {
  const float pad = roundf(size * 0.35f);
  const size_t room = (size_t)n;
  Layout l = {.cover = cover_open(im->h, im->w, MAX((int)(size / 4), 1)),
              .plates = xmalloc(2 * room * sizeof *l.plates),
              .leaders = xmalloc(room * sizeof *l.leaders),
              .h = (float)im->h,
              .w = (float)im->w,
              .size = size,
              .pad = pad,
              .height = roundf(size * 1.3f) + 2 * pad - 1,
              .line = line};
  const LabelledObject **order = xmalloc(room * sizeof *order);
  LeftOut *left = xmalloc(room * sizeof *left);
  int classes = 0;
  for (int i = 0; i < n; i++) {
    cover_add(&l.cover, objects[i].mask, objects[i].box);
    order[i] = &objects[i];
  }
  cover_end(&l.cover);
  qsort(order, room, sizeof *order, by_score);
  for (int i = 0; i < n; i++)
    if (order[i]->name && !draw_label(im, &l, order[i], n <= MOST_LEADERS)) leave_out(left, &classes, order[i]);
  for (int i = 0; i < classes; i++) draw_left_out(im, &l, &left[i]);
  cover_close(&l.cover);
  free(l.plates);
  free(l.leaders);
  free(order);
  free(left);
}
