#include "data/coco/confusion.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/output.h"
#include "base/record.h"
#include "base/utf8.h"

// Most classes of a full table, and of a full matrix in JSON; of the lists; letters of a name.
enum { MOST_SHOWN = 30, MOST_WRITTEN = 1000, WORST = 10, MISTAKES = 20, NAME = 24 };

// ---- figures --------------------------------------------------------------------------------------------------------

// A count, and its cell.
typedef struct Counted {
  int truth, predicted;
  int64_t n;
} Counted;

static Counted counted(const Confusion *c, size_t i) {
  return (Counted){(int)(c->cell[i] / c->classes), (int)(c->cell[i] % c->classes), c->count[i]};
}

// A cell's count, for calls in ascending order of cells; *next is 0 at first.
static int64_t next_count(const Confusion *c, int truth, int predicted, size_t *next) {
  if (*next == c->cells) return 0;
  const Counted k = counted(c, *next);
  if (k.truth != truth || k.predicted != predicted) return 0;
  ++*next;
  return k.n;
}

static bool is_background(const Confusion *c, int class) { return c->background && class == c->classes - 1; }

static double share(int64_t part, int64_t of) { return of > 0 ? (double)part / (double)of : NAN; }

ClassFigures *confusion_figures(const Confusion *c) {
  ClassFigures *all = xcalloc((size_t)c->classes, sizeof *all);
  for (size_t i = 0; i < c->cells; i++) {
    const Counted k = counted(c, i);
    all[k.truth].images += k.n;
    all[k.predicted].predicted += k.n;
    if (k.truth == k.predicted) all[k.truth].right += k.n;
  }
  for (int i = 0; i < c->classes; i++) {
    ClassFigures *f = &all[i];
    const bool none = is_background(c, i);
    f->precision = none ? NAN : share(f->right, f->predicted);
    f->recall = none ? NAN : share(f->right, f->images);
    f->f1 = none ? NAN : share(2 * f->right, f->predicted + f->images);
  }
  return all;
}

int64_t confusion_images(const Confusion *c) {
  int64_t sum = 0;
  for (size_t i = 0; i < c->cells; i++) {
    const Counted k = counted(c, i);
    sum += is_background(c, k.truth) ? 0 : k.n;
  }
  return sum;
}

int64_t confusion_detections(const Confusion *c) {
  int64_t sum = 0;
  for (size_t i = 0; i < c->cells; i++) {
    const Counted k = counted(c, i);
    sum += is_background(c, k.predicted) ? 0 : k.n;
  }
  return sum;
}

int64_t confusion_right(const Confusion *c) {
  int64_t sum = 0;
  for (size_t i = 0; i < c->cells; i++) {
    const Counted k = counted(c, i);
    sum += k.truth == k.predicted ? k.n : 0;
  }
  return sum;
}

// Inserts into the few that are kept, so that a matrix of a thousand classes needs no list of all its cells.
int confusion_mistakes(const Confusion *c, Mistake *to, int most) {
  int n = 0;
  for (size_t i = 0; i < c->cells; i++) {
    const Counted k = counted(c, i);
    if (k.truth == k.predicted || k.n == 0 || (n == most && k.n <= to[n - 1].images)) continue;
    if (n < most) n++;
    int rank = n - 1;
    for (; rank > 0 && to[rank - 1].images < k.n; rank--) to[rank] = to[rank - 1];
    to[rank] = (Mistake){k.truth, k.predicted, k.n};
  }
  return n;
}

// ---- text -----------------------------------------------------------------------------------------------------------

const char *confusion_name(const Confusion *c, int class, char number[CLASS_NUMBER]) {
  if (is_background(c, class)) return "background";
  if (c->name && c->name[class] && *c->name[class]) return c->name[class];
  snprintf(number, CLASS_NUMBER, "%d", class);
  return number;
}

// At most `width` letters, padded with spaces if `filled`.
static void print_name(FILE *f, const Confusion *c, int class, int width, bool filled) {
  char number[CLASS_NUMBER];
  const char *name = confusion_name(c, class, number), *p = name, *end = name + strlen(name);
  int letters = 0;
  for (; *p && letters < width; letters++) p += MAX(utf8_length(p, end), 1);
  text_print(f, "%.*s", (int)(p - name), name);
  if (filled) fprintf(f, "%*s", width - letters, "");
}

static int letters_of(const char *name) {
  const char *end = name + strlen(name);
  int n = 0;
  for (; *name; n++) name += MAX(utf8_length(name, end), 1);
  return n;
}

static int name_width(const Confusion *c) {
  char number[CLASS_NUMBER];
  int width = 0;
  for (int i = 0; i < c->classes; i++) width = MAX(width, letters_of(confusion_name(c, i, number)));
  return MIN(width, NAME);
}

static int digits(int64_t n) { return snprintf(NULL, 0, "%lld", (long long)n); }

static void print_percent(FILE *f, int width, double value) {
  if (isnan(value))
    fprintf(f, "%*s", width + 2, "-");
  else
    fprintf(f, "%*.2f %%", width, 100 * value);
}

// Prints zero as a point, so that other counts stand out.
static void print_count(FILE *f, int width, int64_t n) {
  if (n)
    fprintf(f, "%*lld", width, (long long)n);
  else
    fprintf(f, "%*s", width, ".");
}

// Columns have the numbers of the rows.
static void print_table(FILE *f, const Confusion *c) {
  const int name = name_width(c), number = digits(c->classes - 1);
  int64_t most = c->classes - 1;
  for (size_t i = 0; i < c->cells; i++) most = MAX(most, c->count[i]);
  const int cell = digits(most) + 1;
  fprintf(f, "%*s", number + 1 + name, "");
  for (int i = 0; i < c->classes; i++) fprintf(f, "%*d", cell, i);
  fprintf(f, "%11s%11s\n", "recall", "precision");
  size_t next = 0;
  ClassFigures *figures = confusion_figures(c);
  for (int i = 0; i < c->classes; i++) {
    fprintf(f, "%*d ", number, i);
    print_name(f, c, i, name, true);
    for (int j = 0; j < c->classes; j++) print_count(f, cell, next_count(c, i, j, &next));
    print_percent(f, 9, figures[i].recall);
    print_percent(f, 9, figures[i].precision);
    fputc('\n', f);
  }
  free(figures);
}

typedef struct Ranked {
  int class;
  double recall;
} Ranked;

static int compare_recall(const void *a, const void *b) {
  const Ranked *p = a, *q = b;
  return p->recall != q->recall ? (p->recall > q->recall) - (p->recall < q->recall) : p->class - q->class;
}

static void print_worst(FILE *f, const Confusion *c) {
  Ranked *list = xcalloc((size_t)c->classes, sizeof *list);
  ClassFigures *figures = confusion_figures(c);
  int n = 0;
  for (int i = 0; i < c->classes; i++) {
    const double recall = figures[i].recall;
    if (!isnan(recall)) list[n++] = (Ranked){i, recall};
  }
  qsort(list, (size_t)n, sizeof *list, compare_recall);
  fprintf(f, "\nclasses with the lowest recall\n%9s%11s%8s  class\n", "recall", "precision",
          c->background ? "objects" : "images");
  for (int i = 0; i < MIN(n, WORST); i++) {
    const ClassFigures *of = &figures[list[i].class];
    print_percent(f, 7, of->recall);
    print_percent(f, 9, of->precision);
    fprintf(f, "%8lld  ", (long long)of->images);
    print_name(f, c, list[i].class, NAME, false);
    fputc('\n', f);
  }
  free(list);
  free(figures);
}

static void print_mistakes(FILE *f, const Confusion *c) {
  Mistake list[MISTAKES];
  const int n = confusion_mistakes(c, list, MISTAKES);
  if (!n) return;
  ClassFigures *figures = confusion_figures(c);
  fprintf(f, "\nmost frequent errors\n%8s%11s  true class, predicted class\n", c->background ? "number" : "images",
          "of truth");
  for (int i = 0; i < n; i++) {
    fprintf(f, "%8lld", (long long)list[i].images);
    print_percent(f, 9, share(list[i].images, figures[list[i].truth].images));
    fputs("  ", f);
    print_name(f, c, list[i].truth, NAME, true);
    fputs("  ", f);
    print_name(f, c, list[i].predicted, NAME, false);
    fputc('\n', f);
  }
  free(figures);
}

static void print_totals(FILE *f, const Confusion *c) {
  const int64_t images = confusion_images(c), right = confusion_right(c);
  fputs(c->background ? "recall " : "top-1 ", f);
  print_percent(f, 0, share(right, images));
  fprintf(f, ": %lld of %lld %s of %d classes", (long long)right, (long long)images,
          c->background ? "objects" : "images", c->classes - c->background);
  if (c->background) {
    const int64_t detections = confusion_detections(c);
    fputs("; precision ", f);
    print_percent(f, 0, share(right, detections));
    fprintf(f, ": %lld of %lld detections", (long long)right, (long long)detections);
    if (c->rule) text_print(f, "; %s", c->rule);
  }
  fputc('\n', f);
}

void confusion_print(FILE *f, const Confusion *c) {
  print_totals(f, c);
  if (c->classes <= MOST_SHOWN) {
    fprintf(f, "\nrows: true class; columns: %s class\n", c->background ? "detected" : "predicted");
    print_table(f, c);
    return;
  }
  print_worst(f, c);
  print_mistakes(f, c);
}

// ---- JSON -----------------------------------------------------------------------------------------------------------

static void write_class(FILE *f, Record *r, const Confusion *c, int class, const ClassFigures *figures) {
  char number[CLASS_NUMBER];
  record_begin(r);
  record_str(r, "name", confusion_name(c, class, number));
  record_int(r, c->background ? "objects" : "images", figures->images);
  record_int(r, c->background ? "detections" : "predicted", figures->predicted);
  record_int(r, "right", figures->right);
  record_num(r, "precision", figures->precision);
  record_num(r, "recall", figures->recall);
  record_num(r, "f1", figures->f1);
  fprintf(f, "%s%s", class ? "," : "", record_end(r));
}

static void write_matrix(FILE *f, const Confusion *c) {
  size_t next = 0;
  fputs("],\"matrix\":[", f);
  for (int i = 0; i < c->classes; i++)
    for (int j = 0; j < c->classes; j++)
      fprintf(f, "%s%lld%s",
              j   ? ","
              : i ? ",["
                  : "[",
              (long long)next_count(c, i, j, &next), j == c->classes - 1 ? "]" : "");
}

static void write_cells(FILE *f, const Confusion *c) {
  fputs("],\"cells\":[", f);
  for (size_t i = 0; i < c->cells; i++) {
    const Counted k = counted(c, i);
    fprintf(f, "%s[%d,%d,%lld]", i ? "," : "", k.truth, k.predicted, (long long)k.n);
  }
}

static void write_json(FILE *f, const Confusion *c) {
  const int64_t images = confusion_images(c), right = confusion_right(c);
  Record r = {0};
  record_begin(&r);
  record_int(&r, "classes", c->classes - c->background);
  record_int(&r, c->background ? "objects" : "images", images);
  if (c->background) record_int(&r, "detections", confusion_detections(c));
  record_int(&r, "right", right);
  record_num(&r, c->background ? "recall" : "top1", share(right, images));
  if (c->background) record_num(&r, "precision", share(right, confusion_detections(c)));
  if (c->rule) record_str(&r, "rule", c->rule);
  fprintf(f, "%s,\"class\":[", r.text);
  ClassFigures *figures = confusion_figures(c);
  for (int i = 0; i < c->classes - c->background; i++) write_class(f, &r, c, i, &figures[i]);
  free(figures);
  if (c->classes - c->background > MOST_WRITTEN)
    write_cells(f, c);
  else
    write_matrix(f, c);
  fputs("]}\n", f);
  record_free(&r);
}

// ---- files ----------------------------------------------------------------------------------------------------------

static bool write_file(const char *path, void (*write)(FILE *f, const Confusion *c), const Confusion *c, Err *err) {
  AtomicFile out;
  if (!file_begin(&out, path, err)) return false;
  write(out.f, c);
  return file_commit(&out, err);
}

bool confusion_text(const char *path, const Confusion *c, Err *err) {
  return write_file(path, confusion_print, c, err);
}
bool confusion_json(const char *path, const Confusion *c, Err *err) { return write_file(path, write_json, c, err); }

bool confusion_write(const char *folder, const Confusion *c, Err *err) {
  char *text = xasprintf("%s/confusion.txt", folder), *json = xasprintf("%s/confusion.json", folder);
  const bool ok = confusion_text(text, c, err) && confusion_json(json, c, err);
  free(text);
  free(json);
  return ok;
}
