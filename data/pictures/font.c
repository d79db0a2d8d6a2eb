#include "data/pictures/font.h"
#include <math.h>
#include "data/pictures/rect.h"

// A glyph is a few strokes through points of a grid; the unit is a ninth of the height of capitals. A point is two
// characters, x and y, in 0 … 9, a … c; y increases downwards: 0 is the top of capitals, 3 of small letters, 9 the
// baseline,
// c the bottom of descenders. A stroke that begins with ~ is a quadratic B-spline that starts and ends at its first and
// last points; with @ it is closed. The same point twice is a dot.
static const char *const glyphs[] = {
    ['!'] = "0006 0909",
    ['"'] = "0002 2022",
    ['#'] = "2019 5049 0363 0666",
    ['$'] = "~6250000465691907 3039",
    ['%'] = "6009 @00303303 @36666939",
    ['&'] = "~691310404305094965",
    ['\''] = "0002",
    ['('] = "~2003072a",
    [')'] = "~0023270a",
    ['*'] = "2024 0143 0341",
    ['+'] = "2327 0545",
    [','] = "190b",
    ['-'] = "0535",
    ['.'] = "0909",
    ['/'] = "4009",
    ['0'] = "@00505909",
    ['1'] = "022029",
    ['2'] = "~0200505409 0959",
    ['3'] = "~0200505424 ~2454590907",
    ['4'] = "49400656",
    ['5'] = "500004 ~041353590907",
    ['6'] = "~400107 @04545909",
    ['7'] = "005029",
    ['8'] = "@00505404 @04545909",
    ['9'] = "@00505505 ~525819",
    [':'] = "0404 0909",
    [';'] = "1414 190b",
    ['<'] = "420548",
    ['='] = "0444 0747",
    ['>'] = "024508",
    ['?'] = "~020050542426 2929",
    ['@'] = "@23636727 ~63678780000969",
    ['A'] = "093069 1656",
    ['B'] = "0900 ~003050543404 ~043464693909",
    ['C'] = "~625000095967",
    ['D'] = "0900 ~003060693909",
    ['E'] = "50000959 0444",
    ['F'] = "500009 0444",
    ['G'] = "~625000096965 6535",
    ['H'] = "0009 6069 0464",
    ['I'] = "0009",
    ['J'] = "~4046490907",
    ['K'] = "0009 5005 2359",
    ['L'] = "000959",
    ['M'] = "0900366069",
    ['N'] = "09006960",
    ['O'] = "@00606909",
    ['P'] = "0900 ~003060653505",
    ['Q'] = "@00606909 4669",
    ['R'] = "0900 ~003060653505 3569",
    ['S'] = "~6250000465691907",
    ['T'] = "0060 3039",
    ['U'] = "~000609696660",
    ['V'] = "003960",
    ['W'] = "0029426980",
    ['X'] = "0069 6009",
    ['Y'] = "003460 3439",
    ['Z'] = "00600969",
    ['['] = "20000a2a",
    ['\\'] = "0049",
    [']'] = "00202a0a",
    ['^'] = "022042",
    ['_'] = "0a5a",
    ['`'] = "0012",
    ['a'] = "@03535909 5359",
    ['b'] = "0009 @03535909",
    ['c'] = "~544303094958",
    ['d'] = "@03535909 5059",
    ['e'] = "0656 ~565303094958",
    ['f'] = "~40101319 0333",
    ['g'] = "@03535909 ~535a5c0c0b",
    ['h'] = "0009 ~0603535659",
    ['i'] = "0309 0000",
    ['j'] = "~232a2c0c 2020",
    ['k'] = "0009 4307 2549",
    ['l'] = "~00070929",
    ['m'] = "0309 ~0603434649 ~4643838689",
    ['n'] = "0309 ~0603535659",
    ['o'] = "@03535909",
    ['p'] = "030c @03535909",
    ['q'] = "@03535909 535c",
    ['r'] = "0309 ~060333",
    ['s'] = "~4433030646491908",
    ['t'] = "~11171939 0333",
    ['u'] = "~0306095956 5359",
    ['v'] = "032943",
    ['w'] = "0329446983",
    ['x'] = "0349 4309",
    ['y'] = "0329 431c",
    ['z'] = "03430949",
    ['{'] = "~30101505 ~05151a3a",
    ['|'] = "000a",
    ['}'] = "~00202535 ~35252a0a",
    ['~'] = "~06144755",
};

enum { UNITS = 9, SPACE = 2, MAX_POINTS = 16, CURVE_STEPS = 6 };
static const float gap_units = 2.8f, pen_units = 0.66f; // between glyphs, stem to stem; half the width of a stroke

static int grid_digit(char c) { return c >= 'a' ? c - 'a' + 10 : c - '0'; }
static Point middle(Point a, Point b) { return (Point){(a.x + b.x) / 2, (a.y + b.y) / 2}; }

// The next character: ASCII as it is, any other code point as a question mark. 0 at the end.
static int next_char(const char **text) {
  unsigned char c = (unsigned char)*(*text)++;
  if (c < 0x80) return c >= ' ' && c <= '~' ? c : c ? '?' : 0;
  while (((unsigned char)**text & 0xc0) == 0x80) (*text)++;
  return '?';
}

static int glyph_units(int c) {
  if (c == ' ') return SPACE;
  int widest = 0;
  for (const char *s = glyphs[c]; *s;) {
    if (*s == ' ' || *s == '~' || *s == '@') {
      s++;
    } else {
      widest = MAX(widest, grid_digit(*s));
      s += 2;
    }
  }
  return widest;
}

float font_width(const char *text, float size) {
  float units = 0;
  for (int c; (c = next_char(&text));) units += (float)glyph_units(c) + gap_units;
  return units > 0 ? (units - gap_units + 2 * pen_units) * size / UNITS : 0;
}

// Where and how text is drawn: the glyph's origin in pixels, pixels per unit.
typedef struct Pen {
  Image *im;
  float x, y, scale;
  Colour colour;
} Pen;

// Coverage of a glyph's pixels, collected before blending so that pixels where strokes meet are not blended twice.
enum { PATCH = 256 };
typedef struct Patch {
  int x, y, h, w; // pixels of the image
  float cover[PATCH * PATCH];
} Patch;

// A straight piece of stroke with round ends, a and b in pixels: coverage by distance to the segment.
static void cover_segment(Patch *p, Point a, Point b, float radius) {
  float reach = radius + 1, dx = b.x - a.x, dy = b.y - a.y, length2 = dx * dx + dy * dy;
  int x0 = MAX((int)floorf(fminf(a.x, b.x) - reach) - p->x, 0);
  int y0 = MAX((int)floorf(fminf(a.y, b.y) - reach) - p->y, 0);
  int x1 = MIN((int)ceilf(fmaxf(a.x, b.x) + reach) - p->x, p->w);
  int y1 = MIN((int)ceilf(fmaxf(a.y, b.y) + reach) - p->y, p->h);
  for (int y = y0; y < y1; y++) {
    for (int x = x0; x < x1; x++) {
      float px = (float)(x + p->x) + 0.5f - a.x, py = (float)(y + p->y) + 0.5f - a.y;
      float t = length2 > 0 ? fminf(fmaxf((px * dx + py * dy) / length2, 0), 1) : 0;
      float inside = radius + 0.5f - hypotf(px - t * dx, py - t * dy);
      float *cover = &p->cover[y * PATCH + x];
      *cover = fmaxf(*cover, fminf(inside, 1));
    }
  }
}

static void cover_curve(Patch *p, Point a, Point control, Point b, float radius) {
  Point last = a;
  for (int i = 1; i <= CURVE_STEPS; i++) {
    float t = (float)i / CURVE_STEPS, s = 1 - t;
    Point at = {s * s * a.x + 2 * s * t * control.x + t * t * b.x, s * s * a.y + 2 * s * t * control.y + t * t * b.y};
    cover_segment(p, last, at, radius);
    last = at;
  }
}

static void cover_stroke(Patch *p, char type, const Point *points, int n, float radius) {
  if (type == '@') {
    for (int i = 0; i < n; i++) {
      Point before = points[(i + n - 1) % n], after = points[(i + 1) % n];
      cover_curve(p, middle(before, points[i]), points[i], middle(points[i], after), radius);
    }
  } else if (type == '~') {
    for (int i = 1; i < n - 1; i++) {
      Point from = i == 1 ? points[0] : middle(points[i - 1], points[i]);
      Point to = i == n - 2 ? points[n - 1] : middle(points[i], points[i + 1]);
      cover_curve(p, from, points[i], to, radius);
    }
  } else {
    for (int i = 1; i < n; i++) cover_segment(p, points[i - 1], points[i], radius);
  }
}

static void draw_glyph(const Pen *pen, int c) {
  float radius = fmaxf(pen_units * pen->scale, 0.5f);
  int margin = (int)ceilf(radius) + 1;
  Patch patch = {.x = (int)floorf(pen->x) - margin, .y = (int)floorf(pen->y - UNITS * pen->scale) - margin};
  patch.w = MIN((int)ceilf((float)glyph_units(c) * pen->scale) + 2 * margin + 1, PATCH);
  patch.h = MIN((int)ceilf(1.4f * UNITS * pen->scale) + 2 * margin + 1, PATCH);
  for (const char *s = glyphs[c]; *s;) {
    char type = *s == '~' || *s == '@' ? *s++ : 0;
    Point points[MAX_POINTS];
    int n = 0;
    for (; *s && *s != ' '; s += 2) {
      points[n].x = pen->x + (float)grid_digit(s[0]) * pen->scale;
      points[n++].y = pen->y + (float)(grid_digit(s[1]) - UNITS) * pen->scale;
    }
    cover_stroke(&patch, type, points, n, radius);
    if (*s) s++;
  }
  for (int y = MAX(-patch.y, 0); y < patch.h && y + patch.y < pen->im->h; y++)
    for (int x = MAX(-patch.x, 0); x < patch.w && x + patch.x < pen->im->w; x++)
      image_blend(pen->im, y + patch.y, x + patch.x, pen->colour, patch.cover[y * PATCH + x]);
}

void font_draw(Image *im, float x, float baseline, float size, Colour c, const char *text) {
  Pen pen = {.im = im, .y = baseline - pen_units * size / UNITS, .scale = size / UNITS, .colour = c};
  float at = x + pen_units * pen.scale;
  for (int glyph; (glyph = next_char(&text));) {
    pen.x = roundf(at - 0.5f) + 0.5f; // vertical stems lie on pixel centres and stay sharp
    if (glyph != ' ') draw_glyph(&pen, glyph);
    at += ((float)glyph_units(glyph) + gap_units) * pen.scale;
  }
}
