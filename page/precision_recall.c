#include "page/precision_recall.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/record.h"
#include "base/utf8.h"
#include "page/xml.h"

// ---- JSON -----------------------------------------------------------------------------------------------------------

// Closes what `r` has begun, of which it is a member.
static void write_curves(FILE *f, Record *r, double ap, EvalPrecision precision) {
  static const char *const keys[EVAL_CURVES] = {"precision_50", "precision_75", "precision"};
  char text[NUMBER_TEXT];
  record_num(r, "AP", ap < 0 ? NAN : ap);
  fputs(r->text, f);
  for (int c = 0; c < EVAL_CURVES; c++) {
    fprintf(f, ",\"%s\":", keys[c]);
    if (precision[c][0] < 0) {
      fputs("null", f);
      continue;
    }
    for (int i = 0; i < EVAL_RECALLS; i++) fprintf(f, "%c%s", i ? ',' : '[', number_text(precision[c][i], text));
    fputc(']', f);
  }
  fputc('}', f);
}

static void write_json(FILE *f, const EvalSummary *s) {
  Record r = {0};
  record_begin(&r);
  record_str(&r, "iou", eval_kinds[s->kind]);
  record_int(&r, "max_dets", s->max_dets[EVAL_LIMITS - 1]);
  fprintf(f, "%s,\"recall\":", r.text);
  for (int i = 0; i < EVAL_RECALLS; i++) fprintf(f, "%c%g", i ? ',' : '[', i / 100.);
  fputs("],\"all\":", f);
  record_begin(&r);
  write_curves(f, &r, s->ap_last, s->precision[s->num_categories]);
  fputs(",\"category\":[", f);
  for (int k = 0; k < s->num_categories; k++) {
    if (k) fputc(',', f);
    record_begin(&r);
    record_int(&r, "id", s->categories[k].id);
    record_str(&r, "name", s->categories[k].name);
    write_curves(f, &r, s->categories[k].ap, s->precision[k]);
  }
  fputs("]}\n", f);
  record_free(&r);
}

// ---- picture --------------------------------------------------------------------------------------------------------

// Sizes in pixels: of the page, of the panel of all, of a category's cell, of what surrounds the axes of either.
enum { WIDTH = 860, HEAD = 82, LARGE = 340, COLUMNS = 4, CELL = 178, LEFT = 56, RIGHT = 24, BOTTOM = 52 };
enum { SMALL_LEFT = 38, SMALL_RIGHT = 12, SMALL_TOP = 34, SMALL_BOTTOM = 26, LETTERS = 21, MOST_SHOWN = 100 };

// The square in which recall and precision go from 0 to 1.
typedef struct Axes {
  double left, top, w, h;
} Axes;

static void print_text(FILE *f, double x, double y, const char *style, const char *text) {
  fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, style);
  xml_print(f, text);
  fputs("</text>\n", f);
}

// Of the points of a level stretch the first and the last alone.
static void print_curve(FILE *f, const Axes *a, int curve, const double *precision) {
  fprintf(f, "<path class=\"curve c%d\" d=\"", curve);
  for (int i = 0; i < EVAL_RECALLS; i++) {
    const bool level =
        i > 0 && i + 1 < EVAL_RECALLS && precision[i] == precision[i - 1] && precision[i] == precision[i + 1];
    if (!level) fprintf(f, "%c%.1f %.1f", i ? 'L' : 'M', a->left + a->w * i / 100, a->top + a->h * (1 - precision[i]));
  }
  fputs("\"/>\n", f);
}

static void print_axes(FILE *f, const Axes *a, int lines) {
  char label[16];
  for (int i = 0; i <= lines; i++) {
    const double share = (double)i / lines, x = a->left + a->w * share, y = a->top + a->h * (1 - share);
    fprintf(f, "<path class=\"grid\" d=\"M%.1f %.1fh%.1fM%.1f %.1fv%.1f\"/>\n", a->left, y, a->w, x, a->top, a->h);
    snprintf(label, sizeof label, "%g", share);
    print_text(f, a->left - 6, y + 4, "tick end", label);
    print_text(f, x, a->top + a->h + 15, "tick middle", label);
  }
  fprintf(f, "<path class=\"axis\" d=\"M%.1f %.1fv%.1fh%.1f\"/>\n", a->left, a->top, a->h, a->w);
}

static void print_curves(FILE *f, const Axes *a, EvalPrecision precision) {
  for (int c = EVAL_CURVES - 1; c >= 0; c--)
    if (precision[c][0] >= 0) print_curve(f, a, c, precision[c]);
}

static void print_legend(FILE *f) {
  static const char *const names[EVAL_CURVES] = {"IoU 0.50", "IoU 0.75", "mean of IoU 0.50 … 0.95"};
  double x = LEFT;
  for (int c = 0; c < EVAL_CURVES; c++) {
    fprintf(f, "<path class=\"curve c%d\" d=\"M%.1f %dh18\"/>\n", c, x, HEAD - 22);
    print_text(f, x + 24, HEAD - 18, "label", names[c]);
    x += 110;
  }
}

static void print_all(FILE *f, const EvalSummary *s) {
  const Axes a = {LEFT, HEAD, WIDTH - LEFT - RIGHT, LARGE - BOTTOM};
  print_axes(f, &a, 5);
  print_curves(f, &a, s->precision[s->num_categories]);
  print_text(f, a.left + a.w / 2, a.top + a.h + 34, "label middle", "recall");
  fprintf(f, "<g transform=\"translate(18 %.1f) rotate(-90)\">", a.top + a.h / 2);
  print_text(f, 0, 0, "label middle", "precision");
  fputs("</g>\n", f);
}

static void print_category(FILE *f, const EvalSummary *s, int category, int place) {
  const EvalCategory *k = &s->categories[category];
  const double wide = (double)(WIDTH - RIGHT) / COLUMNS;
  const Axes a = {SMALL_LEFT + wide * (place % COLUMNS), HEAD + LARGE + SMALL_TOP + CELL * (place / COLUMNS),
                  wide - SMALL_LEFT - SMALL_RIGHT, CELL - SMALL_TOP - SMALL_BOTTOM};
  char title[4 * LETTERS + 32], id[24];
  snprintf(id, sizeof id, "%lld", (long long)k->id);
  const char *name = k->name && *k->name ? k->name : id, *p = name, *end = name + strlen(name);
  for (int letters = 0; *p && letters < LETTERS; letters++) p += MAX(utf8_length(p, end), 1);
  snprintf(title, sizeof title, "%.*s%s", (int)(p - name), name, *p ? "…" : "");
  print_text(f, a.left, a.top - 8, "name", title);
  snprintf(title, sizeof title, "%.3f", k->ap);
  print_text(f, a.left + a.w, a.top - 8, "name end", title);
  print_axes(f, &a, 2);
  print_curves(f, &a, s->precision[category]);
}

typedef struct Shown {
  int category;
  double ap;
} Shown;

static int compare_ap(const void *pa, const void *pb) {
  const Shown *a = pa, *b = pb;
  return a->ap != b->ap ? (a->ap > b->ap) - (a->ap < b->ap) : a->category - b->category;
}

// The categories that have a panel, in their order; returns how many.
static int choose(const EvalSummary *s, Shown *list, int *defined) {
  int n = 0;
  for (int k = 0; k < s->num_categories; k++)
    if (s->categories[k].ap >= 0) list[n++] = (Shown){k, s->categories[k].ap};
  *defined = n;
  if (n > MOST_SHOWN) qsort(list, (size_t)n, sizeof *list, compare_ap);
  return MIN(n, MOST_SHOWN);
}

static void print_style(FILE *f) {
  fputs(
      "<style>\n"
      ".page { fill: #fff } text { fill: #333 } .title { font-size: 18px; font-weight: bold }\n"
      ".label { font-size: 12px } .name { font-size: 12px; font-weight: bold } .tick { font-size: 11px; fill: #666 }\n"
      ".middle { text-anchor: middle } .end { text-anchor: end }\n"
      "path { fill: none; stroke-linejoin: round } .grid { stroke: #e8e8e8 } .axis { stroke: #999 }\n"
      ".curve { stroke-width: 1.8 } .c0 { stroke: #0072b2 } .c1 { stroke: #d55e00 } .c2 { stroke: #009e73 }\n"
      "@media (prefers-color-scheme: dark) {\n"
      ".page { fill: #16181c } text { fill: #ddd } .tick { fill: #aaa } .grid { stroke: #2b2e34 }\n"
      ".axis { stroke: #777 } .c0 { stroke: #56b4e9 } .c1 { stroke: #f08a3c } .c2 { stroke: #3cc79a }\n"
      "}\n</style>\n",
      f);
}

static void print_title(FILE *f, const EvalSummary *s, int shown, int defined) {
  char text[192];
  int n = snprintf(text, sizeof text, "Precision over recall, %s", eval_kinds[s->kind]);
  if (s->ap_last >= 0) snprintf(text + n, sizeof text - (size_t)n, ": AP %.3f", s->ap_last);
  print_text(f, LEFT, 32, "title", text);
  n = snprintf(text, sizeof text, "Below each category with its AP");
  if (shown < defined) n += snprintf(text + n, sizeof text - (size_t)n, ": the lowest %d of %d", shown, defined);
  if (defined < s->num_categories)
    snprintf(text + n, sizeof text - (size_t)n, "; left out, without objects: %d", s->num_categories - defined);
  print_text(f, WIDTH - RIGHT, HEAD - 18, "label end", text);
}

static void write_svg(FILE *f, const EvalSummary *s) {
  Shown *list = xmalloc((size_t)s->num_categories * sizeof *list);
  int defined;
  const int n = choose(s, list, &defined), height = HEAD + LARGE + (n + COLUMNS - 1) / COLUMNS * CELL + BOTTOM / 2;
  fprintf(f,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
          "font-family=\"Helvetica, Arial, sans-serif\">\n",
          WIDTH, height, WIDTH, height);
  print_style(f);
  fprintf(f, "<rect class=\"page\" width=\"%d\" height=\"%d\"/>\n", WIDTH, height);
  print_title(f, s, n, defined);
  print_legend(f);
  print_all(f, s);
  for (int i = 0; i < n; i++) print_category(f, s, list[i].category, i);
  fputs("</svg>\n", f);
  free(list);
}

// ---- files ----------------------------------------------------------------------------------------------------------

static bool write_file(const char *path, void (*write)(FILE *f, const EvalSummary *s), const EvalSummary *s, Err *err) {
  AtomicFile out;
  if (!file_begin(&out, path, err)) return false;
  write(out.f, s);
  return file_commit(&out, err);
}

bool precision_recall_json(const char *path, const EvalSummary *s, Err *err) {
  return write_file(path, write_json, s, err);
}

bool precision_recall_svg(const char *path, const EvalSummary *s, Err *err) {
  return write_file(path, write_svg, s, err);
}

bool precision_recall_write(const char *folder, const EvalSummary *s, Err *err) {
  char *json = xasprintf("%s/precision_recall.json", folder), *svg = xasprintf("%s/precision_recall.svg", folder);
  const bool ok = precision_recall_json(json, s, err) && precision_recall_svg(svg, s, err);
  free(json);
  free(svg);
  return ok;
}
