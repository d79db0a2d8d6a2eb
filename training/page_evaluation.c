#include "training/page_evaluation.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/record.h"

// ---- writing --------------------------------------------------------------------------------------------------------

// A string as JSON has it: that of an object of one member, without what stands around it.
static void write_string(FILE *f, const char *text) {
  Record r = {0};
  record_begin(&r);
  record_str(&r, "", text);
  fputs(r.text + strlen("{\"\":"), f);
  record_free(&r);
}

static void write_number(FILE *f, double value) {
  char text[NUMBER_TEXT];
  fputs(isfinite(value) ? number_text(value, text) : "null", f);
}

static void write_numbers(FILE *f, const double *value, int n) {
  fputc('[', f);
  for (int i = 0; i < n; i++) {
    if (i) fputc(',', f);
    write_number(f, value[i]);
  }
  fputc(']', f);
}

static void write_metrics(FILE *f, const PagePairs *p) {
  fputs(",\n\"metrics\":{", f);
  for (int i = 0; i < p->n; i++) {
    if (i) fputc(',', f);
    write_string(f, p->item[i].name);
    fputc(':', f);
    write_string(f, p->item[i].value);
  }
  fputc('}', f);
}

static void write_categories(FILE *f, const PageEvaluation *e) {
  fputs(",\n\"columns\":[", f);
  for (int i = 0; i < e->columns; i++) {
    if (i) fputc(',', f);
    write_string(f, e->column[i]);
  }
  fputs("],\n\"categories\":[", f);
  for (int k = 0; k < e->categories; k++) {
    fputs(k ? ",\n[" : "[", f);
    write_string(f, e->category[k].name);
    for (int i = 0; i < e->columns; i++) {
      fputc(',', f);
      write_number(f, e->category[k].value[i]);
    }
    fputc(']', f);
  }
  fputc(']', f);
}

static void write_panel(FILE *f, const PagePanel *p) {
  fputs("{\"title\":", f);
  write_string(f, p->title);
  fputs(",\"x\":", f);
  write_string(f, p->x_label);
  fputs(",\"unit\":", f);
  write_string(f, p->unit);
  fputs(",\"curves\":[", f);
  for (int i = 0; i < p->n; i++) {
    fputs(i ? ",[" : "[", f);
    write_string(f, p->curve[i].label);
    fputc(',', f);
    write_numbers(f, p->curve[i].x, p->curve[i].n);
    fputc(',', f);
    write_numbers(f, p->curve[i].y, p->curve[i].n);
    fputc(']', f);
  }
  fputs("]}", f);
}

static void write_panels(FILE *f, const char *key, const PagePanels *p) {
  fprintf(f, ",\n\"%s\":[", key);
  for (int i = 0; i < p->n; i++) {
    if (i) fputs(",\n", f);
    write_panel(f, &p->item[i]);
  }
  fputc(']', f);
}

static void write_confusion(FILE *f, const Confusion *c) {
  const char *comma = "";
  if (!c->count) {
    fputs(",\n\"confusion\":null", f);
    return;
  }
  fprintf(f, ",\n\"confusion\":{\"background\":%s,\"names\":[", c->background ? "true" : "false");
  for (int i = 0; i < c->classes; i++) {
    char number[CLASS_NUMBER];
    if (i) fputc(',', f);
    write_string(f, confusion_name(c, i, number));
  }
  fputs("],\"cells\":[", f);
  for (int i = 0; i < c->classes; i++)
    for (int j = 0; j < c->classes; j++) {
      const long long n = c->count[(size_t)i * (size_t)c->classes + (size_t)j];
      if (!n) continue;
      fprintf(f, "%s[%d,%d,%lld]", comma, i, j, n);
      comma = ",";
    }
  fputs("]}", f);
}

static void write_pictures(FILE *f, const PageEvaluation *e) {
  fputs(",\n\"pictures\":[", f);
  for (int i = 0; i < e->pictures; i++) {
    const PagePicture *p = &e->picture[i];
    const char *const part[] = {p->group, p->file, p->caption, p->truth, p->found};
    fputs(i ? ",\n[" : "[", f);
    for (int k = 0; k < COUNT(part); k++) {
      if (k) fputc(',', f);
      write_string(f, part[k]);
    }
    fputc(']', f);
  }
  fputc(']', f);
}

bool page_evaluation_write(const char *path, const PageEvaluation *e, Err *err) {
  AtomicFile out;
  if (!file_begin(&out, path, err)) return false;
  FILE *f = out.f;
  fprintf(f, "{\"step\":%lld,\"images\":%d,\"left_out\":%d,\"rule\":", (long long)e->step, e->images, e->left_out);
  write_string(f, e->rule);
  write_metrics(f, &e->metrics);
  write_categories(f, e);
  write_panels(f, "panels", &e->panels);
  write_panels(f, "category_panels", &e->category_panels);
  write_confusion(f, &e->confusion);
  write_pictures(f, e);
  fputs("}\n", f);
  return file_commit(&out, err);
}

// ---- reading --------------------------------------------------------------------------------------------------------

// Owned; NULL for null.
static char *read_text(Json *j) {
  size_t n;
  if (json_peek(j) == JSON_NULL) {
    json_skip(j);
    return NULL;
  }
  return xstrdup(json_string(j, &n));
}

// As a name that has to be there.
static char *read_name(Json *j) {
  char *text = read_text(j);
  return text ? text : xstrdup("");
}

static double read_number(Json *j) {
  if (json_peek(j) != JSON_NULL) return json_number(j);
  json_skip(j);
  return NAN;
}

static void read_metrics(Json *j, PagePairs *p) {
  const char *key;
  if (json_begin_object(j))
    while ((key = json_key(j))) {
      char *name = xstrdup(key), *value = read_name(j);
      page_pair_add(p, name, value);
      free(name);
      free(value);
    }
}

static void read_columns(Json *j, PageEvaluation *e) {
  if (json_begin_array(j))
    while (json_next(j)) {
      if (e->columns < PAGE_COLUMNS)
        e->column[e->columns++] = read_name(j);
      else
        json_fail(j, "at most %d columns", PAGE_COLUMNS);
    }
}

static void read_categories(Json *j, PageEvaluation *e) {
  size_t cap = 0;
  if (json_begin_array(j))
    while (json_next(j)) {
      array_reserve((void **)&e->category, &cap, (size_t)e->categories + 1, sizeof *e->category);
      PageCategory *c = &e->category[e->categories++];
      *c = (PageCategory){0};
      int n = -1;
      if (json_begin_array(j))
        while (json_next(j)) {
          if (n < 0)
            c->name = read_name(j);
          else if (n < PAGE_COLUMNS)
            c->value[n] = read_number(j);
          else
            json_skip(j);
          n++;
        }
      if (!c->name) c->name = xstrdup("");
    }
}

// What a curve's two lists are: x first, then y, as many.
static void read_points(Json *j, PageCurve *c, bool y) {
  int n = 0;
  if (json_begin_array(j))
    while (json_next(j)) {
      const double value = read_number(j);
      if (!y)
        page_curve_add(c, value, NAN);
      else if (n < c->n)
        c->y[n] = value;
      n++;
    }
}

static void read_curves(Json *j, PagePanel *p) {
  if (json_begin_array(j))
    while (json_next(j)) {
      PageCurve *c = NULL;
      int place = 0;
      if (json_begin_array(j))
        while (json_next(j)) {
          if (place == 0) {
            char *label = read_name(j);
            c = page_panel_curve(p, NULL, label);
            free(label);
          } else {
            read_points(j, c, place > 1);
          }
          place++;
        }
    }
}

static void read_panels(Json *j, PagePanels *all) {
  const char *key;
  if (json_begin_array(j))
    while (json_next(j)) {
      PagePanel *p = page_panel_add(all, "", "", "");
      if (json_begin_object(j))
        while ((key = json_key(j))) {
          char **text = !strcmp(key, "title")  ? &p->title
                        : !strcmp(key, "x")    ? &p->x_label
                        : !strcmp(key, "unit") ? &p->unit
                                               : NULL;
          if (text) {
            free(*text);
            *text = read_name(j);
          } else if (!strcmp(key, "curves")) {
            read_curves(j, p);
          } else {
            json_skip(j);
          }
        }
    }
}

static void read_names(Json *j, Confusion *c) {
  char **name = NULL;
  size_t cap = 0;
  if (json_begin_array(j))
    while (json_next(j)) {
      array_reserve((void **)&name, &cap, (size_t)c->classes + 1, sizeof *name);
      name[c->classes++] = read_name(j);
    }
  c->name = (const char *const *)name;
}

// Behind the names.
static void read_cells(Json *j, Confusion *c) {
  int64_t *count = xcalloc((size_t)c->classes * (size_t)c->classes, sizeof *count);
  if (json_begin_array(j))
    while (json_next(j)) {
      int64_t cell[3] = {-1, -1, 0};
      int n = 0;
      if (json_begin_array(j))
        while (json_next(j)) {
          const int64_t value = json_int(j);
          if (n < 3) cell[n++] = value;
        }
      if (cell[0] >= 0 && cell[0] < c->classes && cell[1] >= 0 && cell[1] < c->classes)
        count[cell[0] * c->classes + cell[1]] = cell[2];
      else
        json_fail(j, "expected two of %d classes", c->classes);
    }
  c->count = count;
}

static void read_confusion(Json *j, Confusion *c) {
  const char *key;
  if (json_peek(j) == JSON_NULL) {
    json_skip(j);
  } else if (json_begin_object(j)) {
    while ((key = json_key(j))) {
      if (!strcmp(key, "background"))
        c->background = json_bool(j);
      else if (!strcmp(key, "names") && !c->name)
        read_names(j, c);
      else if (!strcmp(key, "cells") && c->name && !c->count)
        read_cells(j, c);
      else
        json_skip(j);
    }
  }
}

static void read_pictures(Json *j, PageEvaluation *e) {
  size_t cap = 0;
  if (json_begin_array(j))
    while (json_next(j)) {
      array_reserve((void **)&e->picture, &cap, (size_t)e->pictures + 1, sizeof *e->picture);
      PagePicture *p = &e->picture[e->pictures++];
      *p = (PagePicture){0};
      char **part[] = {&p->group, &p->file, &p->caption, &p->truth, &p->found};
      int n = 0;
      if (json_begin_array(j))
        for (; json_next(j); n++) {
          if (n < COUNT(part))
            *part[n] = read_text(j);
          else
            json_skip(j);
        }
      if (!p->group || !p->truth) json_fail(j, "expected [group, file, caption, truth, found]");
    }
}

static void read_member(Json *j, const char *key, PageEvaluation *e) {
  if (!strcmp(key, "step"))
    e->step = json_int(j);
  else if (!strcmp(key, "images"))
    e->images = (int)json_int(j);
  else if (!strcmp(key, "left_out"))
    e->left_out = (int)json_int(j);
  else if (!strcmp(key, "rule") && !e->rule)
    e->rule = read_text(j);
  else if (!strcmp(key, "metrics"))
    read_metrics(j, &e->metrics);
  else if (!strcmp(key, "columns"))
    read_columns(j, e);
  else if (!strcmp(key, "categories") && !e->category)
    read_categories(j, e);
  else if (!strcmp(key, "panels"))
    read_panels(j, &e->panels);
  else if (!strcmp(key, "category_panels"))
    read_panels(j, &e->category_panels);
  else if (!strcmp(key, "confusion"))
    read_confusion(j, &e->confusion);
  else if (!strcmp(key, "pictures") && !e->picture)
    read_pictures(j, e);
  else
    json_skip(j);
}

bool page_evaluation_read(const char *path, PageEvaluation *e, Err *err) {
  Json j;
  const char *key;
  size_t size;
  char *text = file_read(path, &size, err);
  e->step = PAGE_UNSCORED;
  if (!text) return false;
  json_open(&j, path, text, size);
  if (json_begin_object(&j))
    while ((key = json_key(&j))) read_member(&j, key, e);
  const bool ok = json_done(&j) || err_set(err, "%s", j.err.msg);
  json_close(&j);
  free(text);
  return ok;
}

int64_t page_evaluation_step(const char *path) {
  int64_t step = -1;
  char line[64] = "";
  FILE *f = fopen(path, "r");
  if (!f) return -1;
  long long found;
  if (fgets(line, sizeof line, f) && sscanf(line, "{\"step\":%lld", &found) == 1) step = found;
  fclose(f);
  return step;
}
