#include "page/confusion_svg.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/utf8.h"
#include "page/xml.h"

// Sizes in pixels. A matrix is about SIDE wide; cells are between the bounds, and from NUMBERED on they hold a count.
enum { SIDE = 720, LARGEST_CELL = 56, NUMBERED = 22, NAMED = 11, LETTERS = 22, MARGIN = 24, HEAD = 80, LINE = 18 };
enum { SHADES = 12, LISTED = 20 };
static const double LETTER = 7.2; // about the width of a letter at 12 pixels

typedef struct Picture {
  const Confusion *c;
  FILE *f;
  double cell, side, left, top; // of the matrix
  bool named, numbered;         // rows and columns, cells
} Picture;

static int64_t at(const Picture *p, int truth, int predicted) {
  return p->c->count[(size_t)truth * (size_t)p->c->classes + (size_t)predicted];
}

// ---- names ----------------------------------------------------------------------------------------------------------

// A class's name, of which LETTERS are shown at most; returns how many there are to see.
static int cut_name(const Confusion *c, int class, char *to, size_t room) {
  char number[CLASS_NUMBER];
  const char *name = confusion_name(c, class, number), *p = name, *end = name + strlen(name);
  int letters = 0;
  for (; *p && letters < LETTERS; letters++) p += MAX(utf8_length(p, end), 1);
  snprintf(to, room, "%.*s%s", (int)(p - name), name, *p ? "…" : "");
  return letters;
}

static double names_width(const Confusion *c) {
  char name[4 * LETTERS + 8];
  int letters = 0;
  for (int i = 0; i < c->classes; i++) letters = MAX(letters, cut_name(c, i, name, sizeof name));
  return LETTER * (letters + 1);
}

static void print_text(const Picture *p, double x, double y, const char *style, const char *text) {
  fprintf(p->f, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, style);
  xml_print(p->f, text);
  fputs("</text>\n", p->f);
}

static void print_names(const Picture *p) {
  char name[4 * LETTERS + 8];
  for (int i = 0; i < p->c->classes; i++) {
    const double middle = (i + 0.5) * p->cell;
    cut_name(p->c, i, name, sizeof name);
    print_text(p, p->left - 8, p->top + middle + 4, "name end", name);
    fprintf(p->f, "<g transform=\"translate(%.1f %.1f) rotate(-90)\">", p->left + middle + 4, p->top - 8);
    print_text(p, 0, 0, "name", name);
    fputs("</g>\n", p->f);
  }
}

// The numbers of classes too many to be named, about ten of them.
static void print_ticks(const Picture *p) {
  int step = 1;
  for (int lead = 0; p->c->classes / step > 12; lead++) step = step / (lead % 3 == 1 ? 2 : 1) * (lead % 3 == 1 ? 5 : 2);
  for (int i = 0; i < p->c->classes; i += step) {
    char number[CLASS_NUMBER];
    const double middle = (i + 0.5) * p->cell;
    snprintf(number, sizeof number, "%d", i);
    print_text(p, p->left - 8, p->top + middle + 4, "name end", number);
    print_text(p, p->left + middle, p->top - 8, "name middle", number);
  }
}

// ---- cells ----------------------------------------------------------------------------------------------------------

// From 1 to SHADES by the square root of the share, so that few mistakes among many images are seen; 0: none.
static int shade_of(int64_t images, int64_t truth) {
  return images ? (int)ceil(SHADES * sqrt((double)images / (double)truth)) : 0;
}

// One path for all cells of a shade: a thousand classes have tens of thousands of cells.
static void print_shade(const Picture *p, const int64_t *truth, int shade, bool right) {
  const double faintest = p->cell < NAMED ? 0.4 : 0.12; // a dot has to be darker than a square to be seen
  bool any = false;
  for (int i = 0; i < p->c->classes; i++)
    for (int j = 0; j < p->c->classes; j++) {
      if ((i == j) != right || shade_of(at(p, i, j), truth[i]) != shade) continue;
      if (!any)
        fprintf(p->f, "<path class=\"%s\" fill-opacity=\"%.2f\" d=\"", right ? "right" : "wrong",
                faintest + (1 - faintest) * shade / SHADES);
      fprintf(p->f, "M%d %dh1v1h-1z", j, i);
      any = true;
    }
  if (any) fputs("\"/>\n", p->f);
}

static void print_cells(const Picture *p, const int64_t *truth) {
  fprintf(p->f, "<g transform=\"translate(%.1f %.1f) scale(%g)\" shape-rendering=\"crispEdges\">\n", p->left, p->top,
          p->cell);
  for (int shade = 1; shade <= SHADES; shade++) {
    print_shade(p, truth, shade, true);
    print_shade(p, truth, shade, false);
  }
  fputs("</g>\n", p->f);
}

static void short_number(int64_t n, char to[24]) {
  if (n < 10000)
    snprintf(to, 24, "%lld", (long long)n);
  else if (n < 10000000)
    snprintf(to, 24, "%lldk", (long long)(n / 1000));
  else
    snprintf(to, 24, "%lldM", (long long)(n / 1000000));
}

static void print_counts(const Picture *p, const int64_t *truth) {
  char number[24];
  for (int i = 0; i < p->c->classes; i++)
    for (int j = 0; j < p->c->classes; j++) {
      const int shade = shade_of(at(p, i, j), truth[i]);
      if (!shade) continue;
      short_number(at(p, i, j), number);
      print_text(p, p->left + (j + 0.5) * p->cell, p->top + (i + 0.5) * p->cell + 4,
                 shade > SHADES / 2 ? "count deep" : "count", number);
    }
}

static void print_frame(const Picture *p) {
  const double end = p->side;
  if (p->named)
    for (int i = 1; i < p->c->classes; i++)
      fprintf(p->f, "<path class=\"grid\" d=\"M%.1f %.1fv%.1fM%.1f %.1fh%.1f\"/>\n", p->left + i * p->cell, p->top, end,
              p->left, p->top + i * p->cell, end);
  fprintf(p->f, "<path class=\"axis\" d=\"M%.1f %.1fv%.1fh%.1fv%.1fz\"/>\n", p->left, p->top, end, end, -end);
}

// ---- what stands below ----------------------------------------------------------------------------------------------

static void print_mistakes(const Picture *p, double y, const int64_t *truth) {
  char text[256], from[4 * LETTERS + 8], to[4 * LETTERS + 8];
  Mistake list[LISTED];
  const int n = confusion_mistakes(p->c, list, LISTED);
  if (!n) return;
  print_text(p, MARGIN, y, "label strong",
             p->c->background ? "Commonest mistakes: number, share of the truth's, truth → detection"
                              : "Commonest mistakes: images, share of the truth's, truth → prediction");
  for (int i = 0; i < n; i++) {
    const Mistake *m = &list[i];
    cut_name(p->c, m->truth, from, sizeof from);
    cut_name(p->c, m->predicted, to, sizeof to);
    y += LINE;
    snprintf(text, sizeof text, "%lld", (long long)m->images);
    print_text(p, MARGIN + 60, y, "label end", text);
    snprintf(text, sizeof text, "%.1f %%", 100.0 * (double)m->images / (double)truth[m->truth]);
    print_text(p, MARGIN + 130, y, "label end", text);
    snprintf(text, sizeof text, "%s → %s", from, to);
    print_text(p, MARGIN + 150, y, "label", text);
  }
}

// ---- the file -------------------------------------------------------------------------------------------------------

static Picture lay_out(const Confusion *c) {
  Picture p = {.c = c};
  p.cell = MIN((double)LARGEST_CELL, (double)SIDE / c->classes);
  if (p.cell < 1) p.cell = 1; // a pixel at least
  p.side = p.cell * c->classes;
  p.named = p.cell >= NAMED;
  p.numbered = p.cell >= NUMBERED;
  const double names = p.named ? names_width(c) : 40;
  p.left = MARGIN + LINE + names;
  p.top = HEAD + LINE + (p.named ? names : 16);
  return p;
}

static void print_style(FILE *f) {
  fputs("<style>\n"
        ".page { fill: #fff } text { fill: #333 } .title { font-size: 18px; font-weight: bold }\n"
        ".label, .name { font-size: 12px } .name { fill: #666 } .count { font-size: 11px; text-anchor: middle }\n"
        ".strong { font-weight: bold } .middle { text-anchor: middle } .end { text-anchor: end }\n"
        ".grid { fill: none; stroke: #e8e8e8 } .axis { fill: none; stroke: #999 }\n"
        ".right { fill: #0072b2 } .wrong { fill: #d55e00 } .deep { fill: #fff }\n"
        "@media (prefers-color-scheme: dark) {\n"
        ".page { fill: #16181c } text { fill: #ddd } .name { fill: #aaa } .grid { stroke: #2b2e34 }\n"
        ".axis { stroke: #777 } .right { fill: #56b4e9 } .wrong { fill: #f08a3c } .deep { fill: #000 }\n"
        "}\n</style>\n",
        f);
}

static void print_title(const Picture *p) {
  const bool detector = p->c->background;
  const long long images = (long long)confusion_images(p->c), right = (long long)confusion_right(p->c);
  const long long detections = detector ? (long long)confusion_detections(p->c) : 0;
  char text[192];
  int n = snprintf(text, sizeof text, "%lld of %lld %s", right, images, detector ? "objects found" : "images right");
  if (images)
    n += snprintf(text + n, sizeof text - (size_t)n, ": %s %.2f %%", detector ? "recall" : "top-1",
                  100.0 * (double)right / (double)images);
  if (detections)
    snprintf(text + n, sizeof text - (size_t)n, "; of %lld detections: precision %.2f %%", detections,
             100.0 * (double)right / (double)detections);
  print_text(p, MARGIN, 32, "title", text);
}

static void print_head(const Picture *p) {
  const bool detector = p->c->background;
  print_title(p);
  print_text(p, MARGIN, 52, "label",
             detector
                 ? "The darker, the larger the share of its row: blue is right, orange is wrong. The last class is "
                   "the background."
                 : "The darker, the larger the share of a row's images: blue is right, orange is wrong.");
  if (p->c->rule) print_text(p, MARGIN, 68, "label", p->c->rule);
  print_text(p, p->left + p->side / 2, HEAD + 8, "label middle strong", detector ? "detected" : "predicted");
  fprintf(p->f, "<g transform=\"translate(%d %.1f) rotate(-90)\">", MARGIN + 8, p->top + p->side / 2);
  print_text(p, 0, 0, "label middle strong", "truth");
  fputs("</g>\n", p->f);
}

static void print_picture(Picture *p) {
  const Confusion *c = p->c;
  const double width = MAX(p->left + p->side + MARGIN, 640), below = p->numbered ? 0 : (LISTED + 1) * LINE + MARGIN;
  const double height = p->top + p->side + MARGIN + below;
  int64_t *truth = xcalloc((size_t)c->classes, sizeof *truth);
  for (int i = 0; i < c->classes; i++)
    for (int j = 0; j < c->classes; j++) truth[i] += at(p, i, j);
  fprintf(p->f,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" "
          "font-family=\"Helvetica, Arial, sans-serif\">\n",
          width, height, width, height);
  print_style(p->f);
  fprintf(p->f, "<rect class=\"page\" width=\"%.0f\" height=\"%.0f\"/>\n", width, height);
  print_head(p);
  (p->named ? print_names : print_ticks)(p);
  print_frame(p);
  print_cells(p, truth);
  if (p->numbered)
    print_counts(p, truth);
  else
    print_mistakes(p, p->top + p->side + MARGIN + LINE, truth);
  fputs("</svg>\n", p->f);
  free(truth);
}

bool confusion_svg(const char *path, const Confusion *c, Err *err) {
  AtomicFile out;
  if (!file_begin(&out, path, err)) return false;
  Picture p = lay_out(c);
  p.f = out.f;
  print_picture(&p);
  return file_commit(&out, err);
}

bool confusion_draw(const char *folder, const Confusion *c, Err *err) {
  char *path = xasprintf("%s/confusion.svg", folder);
  const bool ok = confusion_svg(path, c, err);
  free(path);
  return ok;
}
