#include "page/album.h"
#include <stdlib.h>
#include <string.h>
#include "base/record.h"
#include "base/text.h"
#include "page/data_uri.h"

enum { SIDE = 640 }; // longer side of a picture before masks are drawn, in pixels

// ---- which images ---------------------------------------------------------------------------------------------------

// A permutation of the split's images in which neighbours in the file, which are often alike, are far apart: steps of
// the golden section, made coprime to the number of images.
static int shuffled(int k, int n) {
  int step = MAX((int)(0.618 * n), 1);
  for (int a = n, b = step; b != 1;) { // Euclid's algorithm; if the gcd is not 1, the next step is tried
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

// What one picture should show: a defect type or a category, of one split.
typedef struct Group {
  int split, defect, category; // the other of the two is -1
  int next;                    // position in the shuffled order from which to search on
} Group;

// The index of an object's category in its data set.
static int category_of(const Diagnosis *f, const Object *o) { return f->classes ? o->label : o->label - 1; }

static bool in_group(const Group *g, const Diagnosis *f, int i) {
  const DiagnosisSplit *s = &f->split[g->split];
  const Dataset *d = s->data;
  if (g->defect >= 0) return s->defects[d->image[i]] >> g->defect & 1;
  for (int o = d->first_object[i]; o < d->first_object[i + 1]; o++)
    if (category_of(f, &d->object[o]) == g->category) return true;
  return false;
}

// Marks the group's next image that is not chosen yet; false if there is none.
static bool choose_next(Group *g, const Diagnosis *f, uint8_t *chosen) {
  const int n = f->split[g->split].data->num_images;
  while (g->next < n) {
    int i = shuffled(g->next++, n);
    if (chosen[i] || !in_group(g, f, i)) continue;
    chosen[i] = 1;
    return true;
  }
  return false;
}

// Takes one image from each group in turn until no group has any left or `max` are chosen; returns the number chosen.
static int choose_in_turn(Group *groups, int n, const Diagnosis *f, uint8_t **chosen, int max) {
  int count = 0;
  for (bool more = true; more && count < max;) {
    more = false;
    for (int g = 0; g < n && count < max; g++) {
      bool found = choose_next(&groups[g], f, chosen[groups[g].split]);
      count += found;
      more |= found;
    }
  }
  return count;
}

// Images with a defect (at most half, if there are others), then some of every category, then any.
static void choose(const Diagnosis *f, uint8_t **chosen, int max) {
  int categories = 0, wrong = 0, right = 0;
  for (int s = 0; s < DIAGNOSIS_SPLITS; s++) categories += f->split[s].data ? f->split[s].data->coco.num_categories : 0;
  Group *defects = xmalloc((size_t)DIAGNOSIS_SPLITS * (size_t)f->defect_types.n * sizeof *defects);
  Group *of_category = xmalloc((size_t)categories * sizeof *of_category);
  for (int k = 0; k < MAX(f->defect_types.n, categories); k++) // splits alternate, so that few places are shared
    for (int s = 0; s < DIAGNOSIS_SPLITS; s++) {
      if (!f->split[s].data) continue;
      if (k < f->defect_types.n) defects[wrong++] = (Group){s, k, -1, 0};
      if (k < f->split[s].data->coco.num_categories) of_category[right++] = (Group){s, -1, k, 0};
    }
  int count = choose_in_turn(defects, wrong, f, chosen, (max + 1) / 2);
  count += choose_in_turn(of_category, right, f, chosen, max - count);
  count += choose_in_turn(defects, wrong, f, chosen, max - count);
  for (int s = 0; s < DIAGNOSIS_SPLITS; s++)
    for (int i = 0; f->split[s].data && i < f->split[s].data->num_images && count < max; i++)
      if (!chosen[s][i]) {
        chosen[s][i] = 1;
        count++;
      }
  free(defects);
  free(of_category);
}

// ---- an image -------------------------------------------------------------------------------------------------------

typedef struct AlbumImage {
  int split, image;
  Jpeg picture; // bytes NULL: it cannot be read
  Record says;
} AlbumImage;

// [[category, count], …] of an image.
static char *objects_json(const Diagnosis *f, const AlbumImage *w) {
  const DiagnosisSplit *s = &f->split[w->split];
  const Dataset *d = s->data;
  char *text;
  size_t size;
  FILE *out = text_open(&text, &size);
  int *count = xcalloc((size_t)f->categories, sizeof *count);
  for (int o = d->first_object[w->image]; o < d->first_object[w->image + 1]; o++)
    count[s->category[category_of(f, &d->object[o])]]++;
  const char *comma = "";
  fputc('[', out);
  for (int k = 0; k < f->categories; k++)
    if (count[k]) {
      fprintf(out, "%s[%d,%d]", comma, k, count[k]);
      comma = ",";
    }
  fputc(']', out);
  text_close(out);
  free(count);
  return text;
}

static void record_wrong(Record *r, const Diagnosis *f, const AlbumImage *w) {
  const DiagnosisSplit *s = &f->split[w->split];
  char wrong[256] = "[";
  int used = 1;
  for (int k = 0; k < f->defect_types.n; k++)
    if (s->defects[s->data->image[w->image]] >> k & 1)
      used += snprintf(wrong + used, sizeof wrong - (size_t)used, "%s%d", used > 1 ? "," : "", k);
  snprintf(wrong + used, sizeof wrong - (size_t)used, "]");
  record_raw(r, "wrong", wrong);
}

// Makes the picture, and the record except for the picture's address.
static void show(const Diagnosis *f, AlbumImage *w) {
  const Dataset *d = f->split[w->split].data;
  const CocoImage *im = &d->coco.images[d->image[w->image]];
  Thumbnail t;
  Err err = {""};
  if (thumbnail_open(&t, d, w->image, SIDE, &err)) {
    w->picture = f->classes ? thumbnail_plain(&t) : thumbnail_truth(&t, d, w->image);
    thumbnail_close(&t);
  }
  char *objects = objects_json(f, w);
  record_begin(&w->says);
  record_int(&w->says, "split", w->split);
  record_int(&w->says, "id", im->id);
  record_str(&w->says, "file", im->file_name);
  record_int(&w->says, "w", im->w);
  record_int(&w->says, "h", im->h);
  record_raw(&w->says, "objects", objects);
  record_wrong(&w->says, f, w);
  record_str(&w->says, "note", *err.msg ? err.msg : NULL);
  free(objects);
}

// Adds the picture's address: a data URI, or a file that is written to the picture folder.
static bool keep(AlbumImage *w, PictureFolder *folder, Err *err) {
  char *src = NULL;
  bool ok = true;
  if (w->picture.bytes && folder)
    ok = picture_folder_add(folder, &w->picture, &src, err);
  else if (w->picture.bytes)
    src = data_uri(w->picture.bytes, w->picture.size);
  record_str(&w->says, "src", src);
  record_end(&w->says);
  free(src);
  free(w->picture.bytes);
  w->picture = (Jpeg){0};
  return ok;
}

// ---- all of them ----------------------------------------------------------------------------------------------------

// Pictures are made on all cores, a few at a time to bound memory, and written in order.
static bool write_some(Document *to, const Diagnosis *f, AlbumImage *some, int n, bool *first, PictureFolder *folder,
                       Err *err) {
#pragma omp parallel for schedule(dynamic)
  for (int k = 0; k < n; k++) show(f, &some[k]);
  bool ok = true;
  for (int k = 0; k < n; k++) {
    ok = ok && keep(&some[k], folder, err);
    free(some[k].picture.bytes);
    some[k].picture.bytes = NULL;
    if (!ok) continue;
    document_jsons(to, *first ? "\n" : ",\n");
    *first = false;
    document_jsons(to, some[k].says.text);
  }
  return ok;
}

bool album_write(Document *to, const Diagnosis *f, int max, PictureFolder *folder, Err *err) {
  enum { AT_A_TIME = 32 };
  AlbumImage some[AT_A_TIME] = {0};
  uint8_t *chosen[DIAGNOSIS_SPLITS];
  int n = 0;
  bool ok = true, first = true;
  for (int s = 0; s < DIAGNOSIS_SPLITS; s++)
    chosen[s] = xcalloc(f->split[s].data ? (size_t)f->split[s].data->num_images : 0, 1);
  choose(f, chosen, max);
  document_jsons(to, "[");
  for (int s = 0; s < DIAGNOSIS_SPLITS; s++)
    for (int i = 0; ok && f->split[s].data && i < f->split[s].data->num_images; i++) {
      if (!chosen[s][i]) continue;
      some[n].split = s;
      some[n++].image = i;
      if (n < AT_A_TIME) continue;
      ok = write_some(to, f, some, n, &first, folder, err);
      n = 0;
    }
  ok = ok && write_some(to, f, some, n, &first, folder, err);
  document_jsons(to, "]");
  for (int k = 0; k < AT_A_TIME; k++) record_free(&some[k].says);
  for (int s = 0; s < DIAGNOSIS_SPLITS; s++) free(chosen[s]);
  return ok;
}
