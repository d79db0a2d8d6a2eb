#include "page/run_page_results.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

enum { MOST_CATEGORIES = 1000, MOST_CLASSES = 26, MISTAKES = 15 };

// ---- categories -----------------------------------------------------------------------------------------------------

// The first column counts, the others are shares.
static void write_categories(const Page *p, const PageEvaluation *e) {
  const char *heading[PAGE_COLUMNS + 1] = {"category"};
  if (!e->categories) return;
  for (int i = 0; i < e->columns; i++) heading[i + 1] = e->column[i];
  page_element(p, "h3", "Categories, the worst first");
  page_table(p, "Categories", heading, e->columns + 1, 1);
  for (int k = 0; k < MIN(e->categories, MOST_CATEGORIES); k++) {
    fputs("<tr><th scope=\"row\">", p->f);
    page_text(p, e->category[k].name);
    fputs("</th>", p->f);
    for (int i = 0; i < e->columns; i++) page_number(p, e->category[k].value[i], i ? 3 : 0);
    fputs("</tr>\n", p->f);
  }
  page_table_end(p);
  if (e->categories > MOST_CATEGORIES)
    fprintf(p->f, "<p class=\"faint\">and %d more</p>\n", e->categories - MOST_CATEGORIES);
}

static void write_precision(const Page *p, const PageEvaluation *e) {
  PagePanels first = e->category_panels;
  if (e->panels.n) {
    page_element(p, "h3", "Precision over recall");
    page_charts(p, &e->panels, false);
  }
  if (!first.n) return;
  first.n = MIN(first.n, PAGE_CATEGORY_CHARTS);
  fprintf(p->f, "<details><summary>Precision over recall of %s%d categor%s</summary>\n",
          first.n < e->categories ? "the worst " : "", first.n, first.n == 1 ? "y" : "ies");
  page_charts(p, &first, true);
  fputs("</details>\n", p->f);
}

// ---- confusion ------------------------------------------------------------------------------------------------------

typedef struct ClassMistakes {
  int class;
  int64_t wrong;
} ClassMistakes;

static int64_t cell(const Confusion *c, int truth, int found) {
  return c->count[(size_t)truth * (size_t)c->classes + (size_t)found];
}

static int by_wrong(const void *a, const void *b) {
  const ClassMistakes *p = a, *q = b;
  return p->wrong != q->wrong ? (p->wrong < q->wrong) - (p->wrong > q->wrong) : p->class - q->class;
}

static int by_class(const void *a, const void *b) {
  return ((const ClassMistakes *)a)->class - ((const ClassMistakes *)b)->class;
}

// Which classes are shown, in their order: all, or those with most mistakes, the background in any case. Returns how
// many.
static int choose_classes(const PageEvaluation *e, int *class) {
  const Confusion *c = &e->confusion;
  const int last = e->confusion.background ? c->classes - 1 : c->classes;
  ClassMistakes *all = xcalloc((size_t)c->classes, sizeof *all);
  for (int i = 0; i < last; i++) {
    all[i].class = i;
    for (int j = 0; j < c->classes; j++) all[i].wrong += i == j ? 0 : cell(c, i, j) + cell(c, j, i);
  }
  int n = last;
  if (last > MOST_CLASSES) {
    qsort(all, (size_t)last, sizeof *all, by_wrong);
    n = MOST_CLASSES;
    qsort(all, (size_t)n, sizeof *all, by_class);
  }
  for (int i = 0; i < n; i++) class[i] = all[i].class;
  free(all);
  if (e->confusion.background) class[n++] = last;
  return n;
}

// From 0 to 1, so that a few mistakes among many are seen.
static double depth(int64_t n, int64_t all) { return n ? 0.1 + 0.85 * sqrt((double)n / (double)all) : 0; }

static void write_count(const Page *p, int64_t n, int64_t all, bool right) {
  const double s = depth(n, all);
  if (n)
    fprintf(p->f, "<td class=\"%s%s\" style=\"--s:%.2f\">%lld</td>", right ? "r" : "w",
            s > 0.85  ? " deep"
            : s > 0.6 ? " half"
                      : "",
            s, (long long)n);
  else
    fputs("<td></td>", p->f);
}

static void write_name(const Page *p, const Confusion *c, int class) {
  char number[CLASS_NUMBER];
  page_text(p, confusion_name(c, class, number));
}

// A row of counts, and behind them what is in the classes that are not shown.
static void write_row(const Page *p, const PageEvaluation *e, const int *class, int n, int truth) {
  const Confusion *c = &e->confusion;
  int64_t all = 0, shown = 0;
  for (int j = 0; j < c->classes; j++) all += cell(c, truth, j);
  fputs("<tr><th scope=\"row\">", p->f);
  write_name(p, c, truth);
  fputs("</th>", p->f);
  for (int j = 0; j < n; j++) {
    shown += cell(c, truth, class[j]);
    write_count(p, cell(c, truth, class[j]), all, class[j] == truth);
  }
  if (n < c->classes) write_count(p, all - shown, all, false);
  fputs("</tr>\n", p->f);
}

static void write_matrix(const Page *p, const PageEvaluation *e) {
  const Confusion *c = &e->confusion;
  int class[MOST_CLASSES + 1];
  const int n = choose_classes(e, class);
  if (n < c->classes)
    fprintf(p->f, "<p class=\"faint\">The %d of %d classes with most mistakes; the last column is all others.</p>\n",
            n - e->confusion.background, c->classes - e->confusion.background);
  fputs("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Confusion\"><table class=\"confusion\">\n"
        "<thead><tr><th>truth ↓ found →</th>",
        p->f);
  for (int j = 0; j < n; j++) {
    fputs("<th scope=\"col\"><span>", p->f);
    write_name(p, c, class[j]);
    fputs("</span></th>", p->f);
  }
  fputs(n < c->classes ? "<th scope=\"col\"><span>others</span></th></tr></thead>\n<tbody>\n"
                       : "</tr></thead>\n<tbody>\n",
        p->f);
  for (int i = 0; i < n; i++) write_row(p, e, class, n, class[i]);
  page_table_end(p);
}

static void write_mistakes(const Page *p, const PageEvaluation *e) {
  static const char *const heading[] = {"truth", "taken for", "how often", "of the truth's, %"};
  Mistake list[MISTAKES];
  const int n = confusion_mistakes(&e->confusion, list, MISTAKES);
  if (!n) return;
  page_element(p, "h3", "Commonest mistakes");
  page_table(p, "Commonest mistakes", heading, 4, 2);
  for (int i = 0; i < n; i++) {
    const bool nothing = e->confusion.background && list[i].truth == e->confusion.classes - 1; // all of it is false
    int64_t all = 0;
    for (int j = 0; j < e->confusion.classes; j++) all += cell(&e->confusion, list[i].truth, j);
    fputs("<tr><th scope=\"row\">", p->f);
    write_name(p, &e->confusion, list[i].truth);
    fputs("</th><td class=\"name\">", p->f);
    write_name(p, &e->confusion, list[i].predicted);
    fprintf(p->f, "</td><td class=\"n\">%lld</td>", (long long)list[i].images);
    page_number(p, nothing ? NAN : 100 * (double)list[i].images / (double)all, 1);
    fputs("</tr>\n", p->f);
  }
  page_table_end(p);
}

static void write_confusion(const Page *p, const PageEvaluation *e) {
  if (!e->confusion.count) return;
  page_section(p, "confusion", "Confusion");
  page_element(p, "p class=\"faint\"", e->rule);
  write_matrix(p, e);
  write_mistakes(p, e);
  page_section_end(p);
}

// ---- images ---------------------------------------------------------------------------------------------------------

// Only pictures that are made of pixels: an address of another kind would be another's.
static const char *safe_address(const char *src) {
  static const char scheme[] = "data:image/jpeg;base64,";
  if (!src || strncmp(src, scheme, sizeof scheme - 1)) return "";
  const char *data = src + sizeof scheme - 1;
  return data[strspn(data, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")] ? "" : src;
}

static void write_picture(const Page *p, const char *src, const char *what, const char *file) {
  fprintf(p->f, "<img src=\"%s\" alt=\"%s: ", safe_address(src), what);
  page_attribute(p, file);
  fputs("\">", p->f);
}

static bool has_room(Page *p, const PagePicture *image) {
  const size_t bytes = strlen(image->truth) + (image->found ? strlen(image->found) : 0);
  if (p->pictures + bytes > p->room) {
    p->left_out++;
    return false;
  }
  p->pictures += bytes;
  return true;
}

static void write_image(Page *p, const PagePicture *image) {
  if (!has_room(p, image)) return;
  fputs("<figure>", p->f);
  if (image->found) {
    fputs("<div class=\"pair\"><span>truth</span><span>found</span>", p->f);
    write_picture(p, image->truth, "truth", image->file);
    write_picture(p, image->found, "found", image->file);
    fputs("</div>", p->f);
  } else {
    write_picture(p, image->truth, "image", image->file);
  }
  fputs("<figcaption><b>", p->f);
  page_text(p, image->file);
  fputs("</b> ", p->f);
  page_text(p, image->caption);
  fputs("</figcaption></figure>\n", p->f);
}

// Images of a group follow one another.
static void write_images(Page *p, const PageEvaluation *e) {
  const char *group = NULL;
  if (!e->pictures) return;
  page_section(p, "images", "Images");
  for (int i = 0; i < e->pictures; i++) {
    if (!group || strcmp(group, e->picture[i].group)) {
      if (group) fputs("</div>\n", p->f);
      group = e->picture[i].group;
      page_element(p, "h3", group);
      fprintf(p->f, "<div class=\"pictures%s\">\n", e->picture[i].found ? "" : " single");
    }
    write_image(p, &e->picture[i]);
  }
  fputs("</div>\n", p->f);
  page_section_end(p);
}

// ---- all ------------------------------------------------------------------------------------------------------------

// Without ground truth that defines it, a figure is negative.
static double metric_value(const char *text) {
  const double value = strtod(text, NULL);
  return value < 0 ? NAN : value;
}

static void write_metrics(const Page *p, const PageEvaluation *e) {
  fputs("<details><summary>All figures</summary>\n", p->f);
  page_table(p, "All figures", (const char *const[]){"figure", "value"}, 2, 1);
  for (int i = 0; i < e->metrics.n; i++) {
    fputs("<tr><th scope=\"row\">", p->f);
    page_text(p, e->metrics.item[i].name);
    fputs("</th>", p->f);
    page_number(p, metric_value(e->metrics.item[i].value), 4);
    fputs("</tr>\n", p->f);
  }
  page_table_end(p);
  fputs("</details>\n", p->f);
}

void page_evaluation(Page *p, const PageEvaluation *e) {
  page_section(p, "evaluation", "Evaluation");
  if (e->step == PAGE_UNSCORED) {
    page_element(p, "p class=\"faint\"", "None is kept so far.");
    page_section_end(p);
    return;
  }
  fputs("<p class=\"faint\">", p->f);
  if (e->step >= 0) fprintf(p->f, "After step %lld, on ", (long long)e->step);
  fprintf(p->f, "%d images", e->images);
  if (e->left_out) fprintf(p->f, "; %d are left out, because they cannot be read", e->left_out);
  fputs(".</p>\n", p->f);
  write_metrics(p, e);
  write_categories(p, e);
  write_precision(p, e);
  page_section_end(p);
  write_confusion(p, e);
  write_images(p, e);
}
