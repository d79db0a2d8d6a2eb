#include "page/album.h"
#include <stdlib.h>
#include <string.h>
#include "base/record.h"
#include "base/text.h"
#include "data/pictures/thumbnail.h"
#include "page/album_page.h"
#include "page/data_uri.h"

enum { SIDE = 640 }; // the longer side of a picture before masks are drawn, pixels

// ---- which images ---------------------------------------------------------------------------------------------------

// The images of a split in an order in which neighbours in the file, often alike, are far apart: steps of the golden
// section, made coprime to their number.
static int shuffled(int k, int n) {
  int step = MAX((int)(0.618 * n), 1);
  for (int a = n, b = step; b != 1;) { // Euclid's; where it ends above 1, the next step is tried
    int rest = a % b;
    if (rest == 0) {
      a = n;
      b = ++step;
    } else {
      a = b;
      b = rest;
    }
  }
  return (int)((int64_t)k * step % n);
}

// What the album should show: a kind of defect, or a category, of one split.
typedef struct Group {
  int split, defect, category; // the one that is not meant: -1
  int next;                    // place in the shuffled order from which to look on
} Group;

static bool in_group(const Group *g, const Split *s, int i) {
  const Dataset *d = &s->data;
  if (g->defect >= 0) return s->defects.of_image[d->image[i]] >> g->defect & 1;
  for (int o = d->first_object[i]; o < d->first_object[i + 1]; o++)
    if (d->object[o].label == g->category + 1) return true;
  return false;
}

// Marks the group's next image that is not chosen yet; false when there is none.
static bool choose_next(Group *g, const Split *s, uint8_t *chosen) {
  const int n = s->data.num_images;
  while (g->next < n) {
    int i = shuffled(g->next++, n);
    if (chosen[i] || !in_group(g, s, i)) continue;
    chosen[i] = 1;
    return true;
  }
  return false;
}

// One image of each group in turn until none has any left or `max` are chosen; returns how many.
static int choose_in_turn(Group *groups, int n, const Split *const *splits, uint8_t **chosen, int max) {
  int count = 0;
  for (bool more = true; more && count < max;) {
    more = false;
    for (int g = 0; g < n && count < max; g++) {
      bool found = choose_next(&groups[g], splits[groups[g].split], chosen[groups[g].split]);
      count += found;
      more |= found;
    }
  }
  return count;
}

// Images with a defect, at most half where there are others, then some of every category, then any.
static void choose(const Split *const *splits, int n, uint8_t **chosen, int max) {
  int categories = 0, wrong = 0, right = 0;
  for (int s = 0; s < n; s++) categories += splits[s]->open ? splits[s]->data.coco.num_categories : 0;
  Group *defects = xmalloc((size_t)n * DEFECTS * sizeof *defects);
  Group *kinds = xmalloc((size_t)categories * sizeof *kinds);
  for (int s = 0; s < n; s++) {
    if (!splits[s]->open) continue;
    for (int k = 0; k < DEFECTS; k++) defects[wrong++] = (Group){s, k, -1, 0};
    for (int k = 0; k < splits[s]->data.coco.num_categories; k++) kinds[right++] = (Group){s, -1, k, 0};
  }
  int count = choose_in_turn(defects, wrong, splits, chosen, (max + 1) / 2);
  count += choose_in_turn(kinds, right, splits, chosen, max - count);
  count += choose_in_turn(defects, wrong, splits, chosen, max - count);
  for (int s = 0; s < n; s++)
    for (int i = 0; splits[s]->open && i < splits[s]->data.num_images && count < max; i++)
      if (!chosen[s][i]) {
        chosen[s][i] = 1;
        count++;
      }
  free(defects);
  free(kinds);
}

// ---- a picture ------------------------------------------------------------------------------------------------------

// Image i with its objects drawn, as an address; NULL when it cannot be read. Caller frees.
static char *picture(const Split *s, int i) {
  Thumbnail t;
  if (!thumbnail_open(&t, &s->data, i, SIDE, NULL)) return NULL;
  Jpeg jpeg = thumbnail_truth(&t, &s->data, i);
  char *src = data_uri(jpeg.bytes, jpeg.size);
  free(jpeg.bytes);
  thumbnail_close(&t);
  return src;
}

// ---- the page -------------------------------------------------------------------------------------------------------

// JSON inside a script: "<" only stands in strings, where it could end the script.
static void write_json(FILE *f, const char *json) {
  for (; *json; json++) {
    if (*json == '<')
      fputs("\\u003c", f);
    else
      fputc(*json, f);
  }
}

// Categories go by their name's first place among those of all splits.
typedef struct NameList {
  const char **name;
  int n;
} NameList;

static int place_of(const NameList *l, const char *name) {
  int k = 0;
  while (k < l->n && strcmp(l->name[k], name) != 0) k++;
  return k;
}

static NameList name_categories(const Split *const *splits, int n) {
  NameList l = {0};
  size_t cap = 0;
  for (int s = 0; s < n; s++)
    for (int k = 0; splits[s]->open && k < splits[s]->data.coco.num_categories; k++) {
      const char *name = splits[s]->data.coco.categories[k].name;
      if (place_of(&l, name) < l.n) continue;
      array_reserve((void **)&l.name, &cap, (size_t)l.n + 1, sizeof *l.name);
      l.name[l.n++] = name;
    }
  return l;
}

// [[category, count], …] of image i.
static char *objects_json(const Dataset *d, int i, const NameList *names) {
  char *text;
  size_t size;
  FILE *f = text_open(&text, &size);
  int *count = xcalloc((size_t)names->n, sizeof *count);
  for (int o = d->first_object[i]; o < d->first_object[i + 1]; o++)
    count[place_of(names, d->coco.categories[d->object[o].label - 1].name)]++;
  const char *comma = "";
  fputc('[', f);
  for (int k = 0; k < names->n; k++)
    if (count[k]) {
      fprintf(f, "%s[%d,%d]", comma, k, count[k]);
      comma = ",";
    }
  fputc(']', f);
  text_close(f);
  free(count);
  return text;
}

static void record_image(Record *r, const Split *s, int split, int i, const NameList *names) {
  const CocoImage *im = &s->data.coco.images[s->data.image[i]];
  char *src = picture(s, i), *objects = objects_json(&s->data, i, names), wrong[256] = "[";
  int used = 1;
  for (int k = 0; k < DEFECTS; k++)
    if (s->defects.of_image[s->data.image[i]] >> k & 1)
      used += snprintf(wrong + used, sizeof wrong - (size_t)used, "%s%d", used > 1 ? "," : "", k);
  snprintf(wrong + used, sizeof wrong - (size_t)used, "]");
  record_begin(r);
  record_int(r, "split", split);
  record_int(r, "id", im->id);
  record_str(r, "file", im->file_name);
  record_int(r, "w", im->w);
  record_int(r, "h", im->h);
  record_raw(r, "objects", objects);
  record_raw(r, "wrong", wrong);
  record_str(r, "note", s->defects.reason[i]);
  record_str(r, "src", src);
  record_end(r);
  free(src);
  free(objects);
}

// Pictures are made on all cores, some at a time so that only these wait in memory, and written in order.
static void write_images(FILE *f, const Split *const *splits, int n, uint8_t **chosen, const NameList *names) {
  enum { AT_A_TIME = 32 };
  Record made[AT_A_TIME] = {0};
  int image[AT_A_TIME];
  const char *comma = "";
  for (int s = 0; s < n; s++) {
    for (int i = 0, count = 0; splits[s]->open && i < splits[s]->data.num_images; i++) {
      if (chosen[s][i]) image[count++] = i;
      if (count < AT_A_TIME && i + 1 < splits[s]->data.num_images) continue;
#pragma omp parallel for schedule(dynamic)
      for (int k = 0; k < count; k++) record_image(&made[k], splits[s], s, image[k], names);
      for (int k = 0; k < count; k++, comma = ",\n") {
        fputs(comma, f);
        write_json(f, made[k].text);
      }
      count = 0;
    }
  }
  for (int k = 0; k < AT_A_TIME; k++) record_free(&made[k]);
}

static void write_page(FILE *f, const char *title, const Split *const *splits, int n, uint8_t **chosen) {
  NameList names = name_categories(splits, n);
  Record r = {0};
  const char **split = xmalloc((size_t)n * sizeof *split), *what[DEFECTS], *treatment[DEFECTS];
  for (int s = 0; s < n; s++) split[s] = splits[s]->name ? splits[s]->name : "";
  for (int k = 0; k < DEFECTS; k++) {
    what[k] = defect_info[k].what;
    treatment[k] = defect_info[k].treatment;
  }
  record_begin(&r);
  record_str(&r, "title", title);
  record_strings(&r, "splits", split, n);
  record_strings(&r, "categories", names.name, names.n);
  record_strings(&r, "defects", what, DEFECTS);
  record_strings(&r, "treatments", treatment, DEFECTS);
  fputs(album_head, f);
  write_json(f, r.text);
  fputs(",\"images\":[\n", f);
  write_images(f, splits, n, chosen, &names);
  fputs("]}", f);
  fputs(album_tail, f);
  record_free(&r);
  free(split);
  free(names.name);
}

bool album_write(const char *path, const char *title, const Split *const *splits, int n, int max, Err *err) {
  AtomicFile out;
  if (!file_begin(&out, path, err)) return false;
  uint8_t **chosen = xcalloc((size_t)n, sizeof *chosen);
  for (int s = 0; s < n; s++) chosen[s] = xcalloc((size_t)splits[s]->data.num_images, 1);
  choose(splits, n, chosen, max);
  write_page(out.f, title, splits, n, chosen);
  for (int s = 0; s < n; s++) free(chosen[s]);
  free(chosen);
  return file_commit(&out, err);
}
