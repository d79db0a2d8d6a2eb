#include "data/batches/data_identity.h"
#include <math.h>
#include <stdlib.h>
#include "base/alloc.h"
#include "base/digest.h"
#include "base/json.h"
#include "base/record.h"

// ---- a set ----------------------------------------------------------------------------------------------------------

static int64_t as_number(uint64_t digest) { return (int64_t)(digest >> 12); }

static const CocoImage *image_of(const Dataset *d, int i) { return &d->coco.images[d->image[i]]; }

static uint64_t add_file(uint64_t digest, const Dataset *d, int i, const char *name) {
  const CocoImage *im = image_of(d, i);
  digest = digest_word(digest_word(digest, (uint64_t)im->h), (uint64_t)im->w);
  return digest_text(digest_word(digest, d->file_bytes ? (uint64_t)d->file_bytes[d->image[i]] : im->drawn), name);
}

static uint64_t add_annotations(uint64_t digest, const Dataset *d, int i) {
  const CocoImage *im = image_of(d, i);
  digest = digest_word(digest_word(digest_word(digest, im->drawn), im->areas), im->labelled);
  for (int o = d->first_object[i]; o < d->first_object[i + 1]; o++)
    if (d->object[o].ann < 0) digest = digest_word(digest, (uint64_t)d->object[o].label); // its class
  return digest;
}

DataIdentity data_identity(const Dataset *d, const bool *read) {
  uint64_t files = 1, categories = 2, annotations = 3;
  int images = 0;
  for (int i = 0; i < d->coco.num_categories; i++)
    categories = digest_text(digest_word(categories, (uint64_t)d->coco.categories[i].id), d->coco.categories[i].name);
  for (int i = 0; i < d->num_images; i++) {
    if (read && !read[i]) continue;
    images++;
    files = add_file(files, d, i, image_of(d, i)->file_name);
    annotations = add_annotations(annotations, d, i);
  }
  return (DataIdentity){images, as_number(files), as_number(categories), as_number(annotations)};
}

int64_t data_identity_number(const DataIdentity *i) {
  return as_number(
      digest_word(digest_word(digest_word(4, (uint64_t)i->files), (uint64_t)i->categories), (uint64_t)i->annotations));
}

static void record_members(Record *r, const DataIdentity *i) {
  record_int(r, "images", i->images);
  record_int(r, "files", i->files);
  record_int(r, "categories", i->categories);
  record_int(r, "annotations", i->annotations);
}

void data_identity_record(Record *to, const char *key, const DataIdentity *i) {
  Record r = {0};
  record_begin(&r);
  record_members(&r, i);
  record_raw(to, key, record_end(&r));
  record_free(&r);
}

// ---- an image -------------------------------------------------------------------------------------------------------

typedef struct SampleKey {
  uint32_t file;  // digest of the name without folders, length in bytes and size; of images in memory: of the pixels
  uint32_t drawn; // digest of its boxes, masks, length and size; 0: no objects, and a name like 0001.png proves little
} SampleKey;

static SampleKey key_of(const Dataset *d, int i) {
  const CocoImage *im = image_of(d, i);
  const char *name = im->file_name + strlen(im->file_name);
  while (name > im->file_name && name[-1] != '/' && name[-1] != '\\') name--;
  const uint32_t drawn = (uint32_t)(add_file(digest_word(5, im->drawn), d, i, "") >> 32);
  return (SampleKey){(uint32_t)(add_file(6, d, i, d->file_bytes ? name : "") >> 32), im->drawn ? MAX(drawn, 1u) : 0};
}

static int compare_keys(const void *a, const void *b) {
  const SampleKey *p = a, *q = b;
  return p->file != q->file ? (p->file > q->file) - (p->file < q->file) : (p->drawn > q->drawn) - (p->drawn < q->drawn);
}

// The images with the lowest digests, ascending. The caller frees it.
static char *sample_of(const Dataset *d) {
  SampleKey *key = xmalloc((size_t)d->num_images * sizeof *key);
  const int n = MIN(d->num_images, (int)TRAINED_SAMPLE);
  char *text = xmalloc(16 * (size_t)n + 1);
  for (int i = 0; i < d->num_images; i++) key[i] = key_of(d, i);
  qsort(key, (size_t)d->num_images, sizeof *key, compare_keys);
  for (int i = 0; i < n; i++) sprintf(text + 16 * (size_t)i, "%08x%08x", key[i].file, key[i].drawn);
  text[16 * (size_t)n] = '\0';
  free(key);
  return text;
}

// ---- a list ---------------------------------------------------------------------------------------------------------

typedef struct TrainedOn { // an entry
  DataIdentity of;
  SampleKey *sample;
  int n;
} TrainedOn;

typedef struct TrainedList {
  TrainedOn *entry;
  int n;
} TrainedList;

static void list_free(TrainedList *l) {
  for (int i = 0; i < l->n; i++) free(l->entry[i].sample);
  free(l->entry);
  *l = (TrainedList){0};
}

static void read_sample(Json *j, TrainedOn *t) {
  size_t length;
  const char *text = json_string(j, &length);
  free(t->sample); // of an earlier key "sample"
  t->n = (int)(length / 16);
  t->sample = xcalloc((size_t)t->n, sizeof *t->sample);
  for (int i = 0; i < t->n; i++)
    if (sscanf(text + 16 * (size_t)i, "%8x%8x", &t->sample[i].file, &t->sample[i].drawn) != 2)
      json_fail(j, "expected hexadecimal digits");
}

static void read_entry(Json *j, TrainedOn *t) {
  const char *key;
  if (!json_begin_object(j)) return;
  while ((key = json_key(j)))
    if (!strcmp(key, "images"))
      t->of.images = (int)json_int(j);
    else if (!strcmp(key, "files"))
      t->of.files = json_int(j);
    else if (!strcmp(key, "categories"))
      t->of.categories = json_int(j);
    else if (!strcmp(key, "annotations"))
      t->of.annotations = json_int(j);
    else if (!strcmp(key, "sample"))
      read_sample(j, t);
    else
      json_skip(j);
}

static bool list_read(TrainedList *l, const char *text) {
  Json j;
  *l = (TrainedList){0};
  json_open(&j, "trained_on", text, strlen(text));
  if (json_begin_array(&j))
    while (json_next(&j)) {
      l->entry = xrealloc(l->entry, (size_t)(l->n + 1) * sizeof *l->entry);
      l->entry[l->n] = (TrainedOn){0};
      read_entry(&j, &l->entry[l->n++]);
    }
  const bool ok = json_done(&j) && l->n > 0;
  json_close(&j);
  if (!ok) list_free(l);
  return ok;
}

static bool same_identity(const DataIdentity *a, const DataIdentity *b) {
  return a->images == b->images && a->files == b->files && a->categories == b->categories &&
         a->annotations == b->annotations;
}

char *trained_on_text(const char *before, const Dataset *train) {
  const DataIdentity own = data_identity(train, NULL);
  TrainedList l = {0};
  const bool reads = before && list_read(&l, before);
  char *sample = sample_of(train);
  Record r = {0};
  record_begin(&r);
  record_members(&r, &own);
  record_str(&r, "sample", sample);
  const bool again = reads && same_identity(&l.entry[l.n - 1].of, &own);
  char *text = again   ? xstrdup(before)
               : reads ? xasprintf("%.*s,%s]", (int)strlen(before) - 1, before, record_end(&r))
                       : xasprintf("[%s]", record_end(&r));
  list_free(&l);
  record_free(&r);
  free(sample);
  return text;
}

bool trained_on_same(const char *list, const Dataset *train, bool other_files, Err *err) {
  TrainedList l;
  if (!list_read(&l, list)) return err_set(err, "its list of training data (trained_on) cannot be read");
  const DataIdentity is = data_identity(train, NULL);
  DataIdentity was = l.entry[l.n - 1].of;
  list_free(&l);
  if (other_files) was.files = is.files;
  char what[128] = "";
  const struct {
    bool differ;
    const char *name;
  } part[] = {{was.files != is.files, "image files (names, lengths or sizes)"},
              {was.categories != is.categories, "categories"},
              {was.annotations != is.annotations, "annotations"}};
  for (int i = 0; i < COUNT(part); i++)
    if (part[i].differ)
      snprintf(what + strlen(what), sizeof what - strlen(what), "%s%s", *what ? ", " : "", part[i].name);
  if (same_identity(&was, &is)) return true;
  char missing[64] = "";
  if (train->missing) snprintf(missing, sizeof missing, "; files missing now: %d", train->missing);
  return err_set(err, "%s differs from the data of this run in its %s%s", train->coco.path, what, missing);
}

// ---- comparing ------------------------------------------------------------------------------------------------------

static int compare_drawn(const void *a, const void *b) {
  const uint32_t *p = a, *q = b;
  return (*p > *q) - (*p < *q);
}

// The sample's digests of boxes and masks, ascending.
static uint32_t *drawn_of(const TrainedOn *t) {
  uint32_t *drawn = xmalloc((size_t)t->n * sizeof *drawn);
  for (int i = 0; i < t->n; i++) drawn[i] = t->sample[i].drawn;
  qsort(drawn, (size_t)t->n, sizeof *drawn, compare_drawn);
  return drawn;
}

// The number of scored images that an entry contains. Images are compared by boxes and masks, which finds copies under
// another name unless the entry is only a sample. Equal names prove little unless most names are equal.
static double count_in(const TrainedOn *t, const SampleKey *key, int n) {
  const bool whole = t->of.images <= t->n;
  uint32_t *drawn = drawn_of(t);
  int asked = 0, by_file = 0, by_both = 0, by_file_alone = 0;
  for (int i = 0; i < n && t->n > 0; i++) {
    int low = 0, high = t->n;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (t->sample[middle].file < key[i].file)
        low = middle + 1;
      else
        high = middle;
    }
    asked += whole || key[i].file <= t->sample[t->n - 1].file;
    bool file = false;
    bool both = whole && key[i].drawn && bsearch(&key[i].drawn, drawn, (size_t)t->n, sizeof *drawn, compare_drawn);
    for (; low < t->n && t->sample[low].file == key[i].file; low++) {
      file = true;
      both |= t->sample[low].drawn && t->sample[low].drawn == key[i].drawn;
    }
    by_file += file;
    by_both += both;
    by_file_alone += file && !key[i].drawn;
  }
  free(drawn);
  int known =
      2 * by_file >= asked ? MAX(by_file, by_both) : by_both + (50 * by_file_alone >= asked ? by_file_alone : 0);
  return whole ? known : known * (double)t->of.images / t->n;
}

int trained_on_count(const char *list, const Dataset *d, const bool *read, bool *exact) {
  TrainedList l;
  *exact = true;
  if (!list_read(&l, list)) return -1;
  SampleKey *key = xmalloc((size_t)d->num_images * sizeof *key);
  int n = 0;
  double known = 0;
  for (int i = 0; i < d->num_images; i++)
    if (!read || read[i]) key[n++] = key_of(d, i);
  for (int e = 0; e < l.n; e++) {
    known += count_in(&l.entry[e], key, n);
    *exact &= l.entry[e].of.images <= l.entry[e].n;
  }
  free(key);
  list_free(&l);
  return (int)fmin(lround(known), n);
}
