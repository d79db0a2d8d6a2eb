#include "page/evaluation_read.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/record.h"
#include "base/run_folder.h"
#include "page/data_uri.h"

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

// The count of a cell: one, or at each score, of which that at `place` is shown; zeros at the end are left out.
static int64_t read_count(Json *j, int place) {
  if (json_peek(j) != JSON_ARRAY) return json_int(j);
  int64_t count = 0;
  int n = 0;
  if (json_begin_array(j))
    while (json_next(j)) {
      const int64_t value = json_int(j);
      if (n++ == place) count = value;
    }
  return count;
}

// Behind the names.
static void read_cells(Json *j, Confusion *c, int place) {
  int64_t *count = xcalloc((size_t)c->classes * (size_t)c->classes, sizeof *count);
  if (json_begin_array(j))
    while (json_next(j)) {
      int64_t cell[3] = {-1, -1, 0};
      int n = 0;
      if (json_begin_array(j))
        while (json_next(j)) {
          const int64_t value = n == 2 ? read_count(j, place) : json_int(j);
          if (n < 3) cell[n++] = value;
        }
      if (cell[0] >= 0 && cell[0] < c->classes && cell[1] >= 0 && cell[1] < c->classes)
        count[cell[0] * c->classes + cell[1]] = cell[2];
      else
        json_fail(j, "expected two of %d classes", c->classes);
    }
  c->count = count;
}

static int read_scores(Json *j, double *score, int most) {
  int n = 0;
  if (json_begin_array(j))
    while (json_next(j)) {
      const double value = read_number(j);
      if (n < most) score[n++] = value;
    }
  return n;
}

static int place_of(double value, const double *score, int n) {
  for (int i = 0; i < n; i++)
    if (score[i] == value) return i;
  return 0;
}

static void read_confusion(Json *j, Confusion *c) {
  const char *key;
  double scores[32] = {0};
  int n = 0, place = 0; // of the score that the report was asked for
  if (json_peek(j) == JSON_NULL) {
    json_skip(j);
  } else if (json_begin_object(j)) {
    while ((key = json_key(j))) {
      if (!strcmp(key, "background"))
        c->background = json_bool(j);
      else if (!strcmp(key, "names") && !c->name)
        read_names(j, c);
      else if (!strcmp(key, "scores"))
        n = read_scores(j, scores, COUNT(scores));
      else if (!strcmp(key, "report_score"))
        place = place_of(read_number(j), scores, n);
      else if (!strcmp(key, "cells") && c->name && !c->count)
        read_cells(j, c, place);
      else
        json_skip(j);
    }
  }
}

// A picture's address: of a file below the folder, which may be gone; older versions wrote the address itself.
static char *address_of(const char *folder, char *name) {
  static const char below[] = RUN_PICTURES "/";
  char *address = NULL;
  size_t size;
  if (!name || !strncmp(name, "data:", 5)) return name;
  if (!strncmp(name, below, sizeof below - 1) && !strchr(name + sizeof below - 1, '/')) {
    char *path = xasprintf("%s/%s", folder, name), *bytes = file_read(path, &size, NULL);
    if (bytes) address = data_uri((const uint8_t *)bytes, size);
    free(bytes);
    free(path);
  }
  free(name);
  return address;
}

static void read_pictures(Json *j, const char *folder, PageEvaluation *e) {
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
      p->truth = address_of(folder, p->truth);
      p->found = address_of(folder, p->found);
      if (!p->truth) page_picture_free(&e->picture[--e->pictures]);
    }
}

static void read_pairs(Json *j, PagePairs *p) {
  const char *key;
  if (json_begin_object(j))
    while ((key = json_key(j))) {
      char *name = xstrdup(key), *value = read_name(j);
      page_pair_add(p, name, value);
      free(name);
      free(value);
    }
}

// Text of older versions, a number since, or null where no ground truth defines one, which was -1.
static void read_metrics(Json *j, PagePairs *p) {
  const char *key;
  char text[NUMBER_TEXT];
  if (json_begin_object(j))
    while ((key = json_key(j))) {
      char *name = xstrdup(key), *value = NULL;
      if (json_peek(j) == JSON_STRING) value = read_text(j);
      const double number = value ? NAN : read_number(j);
      page_pair_add(p, name, value ? value : number_text(isnan(number) ? -1 : number, text));
      free(name);
      free(value);
    }
}

static void read_member(Json *j, const char *key, const char *folder, RunPage *page) {
  PageEvaluation *e = &page->evaluation;
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
    read_pictures(j, folder, e);
  else if (!strcmp(key, "name") && !page->name)
    page->name = read_name(j);
  else if (!strcmp(key, "state") && !page->state)
    page->state = read_name(j);
  else if (!strcmp(key, "facts"))
    read_pairs(j, &page->facts);
  else if (!strcmp(key, "settings"))
    read_pairs(j, &page->settings);
  else
    json_skip(j);
}

bool evaluation_read(const char *path, const char *folder, RunPage *p, Err *err) {
  Json j;
  const char *key;
  size_t size;
  char *text = file_read(path, &size, err);
  p->evaluation.step = PAGE_UNSCORED;
  if (!text) return false;
  json_open(&j, path, text, size);
  if (json_begin_object(&j))
    while ((key = json_key(&j))) read_member(&j, key, folder, p);
  const bool ok = json_done(&j) || err_set(err, "%s", j.err.msg);
  json_close(&j);
  free(text);
  return ok;
}
