#include "data/coco/csv.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/record.h"
#include "base/text.h"

// ---- fields -------------------------------------------------------------------------------------------------------

static void write_text(FILE *f, const char *text) {
  const bool computed = text[strspn(text, " ")] && strchr("=+-@\t\r\n", text[strspn(text, " ")]);
  const bool quoted = strpbrk(text, ",\"\r\n") || text[0] == ' ' || (text[0] && text[strlen(text) - 1] == ' ');
  if (quoted) fputc('"', f); // which does not keep a spreadsheet from computing
  if (computed) fputc('\'', f);
  for (; *text; text++) {
    if (*text == '"') fputc('"', f);
    fputc(*text, f);
  }
  if (quoted) fputc('"', f);
}

static void write_number(FILE *f, double value) {
  char text[NUMBER_TEXT];
  fputs(number_text(value, text), f);
}

static void write_class_name(FILE *f, const ResultClass *c) {
  if (c->name && *c->name)
    write_text(f, c->name);
  else
    fprintf(f, "%lld", (long long)c->id);
}

// ---- rows ---------------------------------------------------------------------------------------------------------

static const char objects_header[] = "file_name,image_id,category,category_id,score,area,x,y,width,height\r\n";

// Caller frees.
static char *counts_header(const ResultClasses *classes) {
  char *text = NULL;
  size_t size;
  FILE *f = text_open(&text, &size);
  fputs("file_name,image_id,width,height,count,area", f);
  for (int i = 0; i < classes->n && classes->n > 1; i++) {
    fputc(',', f);
    write_class_name(f, &classes->items[i]);
  }
  fputs("\r\n", f);
  text_close(f);
  return text;
}

static double area_of(const CocoResult *r) { return r->has_segm ? (double)rle_area(&r->rle) : r->bbox[2] * r->bbox[3]; }

static void write_object(FILE *f, const ResultClasses *classes, const ResultImage *image, const CocoResult *r) {
  write_text(f, image->file_name);
  fprintf(f, ",%lld,", (long long)image->id);
  write_text(f, result_class_name(classes, r->category_id));
  fprintf(f, ",%lld,", (long long)r->category_id);
  write_number(f, r->score);
  fputc(',', f);
  write_number(f, area_of(r));
  for (int k = 0; k < 4; k++) {
    fputc(',', f);
    write_number(f, r->bbox[k]);
  }
  fputs("\r\n", f);
}

static void write_counts(FILE *f, const ResultClasses *classes, const ResultImage *image, const CocoResult *found,
                         int n) {
  double area = 0;
  int *count = xcalloc((size_t)classes->n, sizeof *count);
  for (int i = 0; i < n; i++) {
    const int class = result_class_index(classes, found[i].category_id);
    if (class >= 0) count[class]++;
    area += area_of(&found[i]);
  }
  write_text(f, image->file_name);
  fprintf(f, ",%lld,%d,%d,%d,", (long long)image->id, image->w, image->h, n);
  write_number(f, area);
  for (int i = 0; i < classes->n && classes->n > 1; i++) fprintf(f, ",%d", count[i]);
  fputs("\r\n", f);
  free(count);
}

// ---- files --------------------------------------------------------------------------------------------------------

static bool open_in(GrowingFile *g, const char *folder, const char *name, const char *header, Err *err) {
  char *path = xasprintf("%s/%s", folder, name);
  const bool ok = growing_open(g, path, header, "", err);
  free(path);
  return ok;
}

bool csv_open(CsvWriter *w, const char *folder, const ResultClasses *classes, Err *err) {
  *w = (CsvWriter){.classes = *classes, .header = counts_header(classes)};
  if (open_in(&w->objects, folder, CSV_OBJECTS, objects_header, err)) {
    if (open_in(&w->counts, folder, CSV_COUNTS, w->header, err)) return true;
    growing_abort(&w->objects);
  }
  free(w->header);
  w->header = NULL;
  return false;
}

bool csv_add(CsvWriter *w, const ResultImage *image, const CocoResult *found, int n, Err *err) {
  char *objects = NULL, *counts = NULL;
  size_t objects_size, counts_size;
  FILE *f = text_open(&objects, &objects_size);
  for (int i = 0; i < n; i++) write_object(f, &w->classes, image, &found[i]);
  text_close(f);
  f = text_open(&counts, &counts_size);
  write_counts(f, &w->classes, image, found, n);
  text_close(f);
  const bool ok =
      growing_add(&w->objects, objects, objects_size, err) && growing_add(&w->counts, counts, counts_size, err);
  free(objects);
  free(counts);
  if (ok) w->n += n;
  return ok;
}

bool csv_commit(CsvWriter *w, Err *err) {
  Err first;
  const bool objects = growing_commit(&w->objects, &first), counts = growing_commit(&w->counts, err);
  free(w->header);
  if (!objects) *err = first;
  return objects && counts;
}

void csv_keep(CsvWriter *w) {
  growing_keep(&w->objects);
  growing_keep(&w->counts);
  free(w->header);
}

void csv_abort(CsvWriter *w) {
  growing_abort(&w->objects);
  growing_abort(&w->counts);
  free(w->header);
}
