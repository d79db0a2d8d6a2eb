#include "lib/results.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "data/coco/rle.h"

typedef struct ResultSet {
  maskrcnn_results all; // first, so that its address is the set's
  const maskrcnn_result *image[];
} ResultSet;

maskrcnn_results *results_new(int n, uint64_t tag) {
  ResultSet *set = calloc(1, sizeof *set + (size_t)n * sizeof set->image[0]);
  if (!set) return NULL;
  set->all = (maskrcnn_results){.tag = tag, .n = n, .images = set->image};
  return &set->all;
}

// Where there is no memory to say more.
static const maskrcnn_result no_memory = {.status = MASKRCNN_NO_MEMORY, .message = "out of memory"};

static void result_free(const maskrcnn_result *result) {
  if (result != &no_memory) free((void *)result);
}

void results_set(maskrcnn_results *r, int image, const maskrcnn_result *result) {
  const maskrcnn_result **own = &((ResultSet *)r)->image[image];
  if (*own)
    result_free(result);
  else
    *own = result;
}

typedef struct FailedResult {
  maskrcnn_result result; // first, so that its address is the memory's
  char message[];
} FailedResult;

void results_fail(maskrcnn_results *r, int image, maskrcnn_status status, int h, int w, const char *message) {
  const size_t bytes = strlen(message) + 1;
  FailedResult *f = malloc(sizeof *f + bytes);
  if (f) {
    f->result = (maskrcnn_result){.status = status, .message = f->message, .width = w, .height = h};
    memcpy(f->message, message, bytes);
  }
  results_set(r, image, f ? &f->result : &no_memory);
}

void results_count(maskrcnn_results *r, int image) { r->failed += r->images[image]->status != MASKRCNN_OK; }

void maskrcnn_results_free(maskrcnn_results *results) {
  if (!results) return;
  for (int i = 0; i < results->n; i++) result_free(results->images[i]);
  free(results);
}

// ---- one image ------------------------------------------------------------------------------------------------------

typedef struct ImageResult {
  maskrcnn_result result; // first, so that its address is the memory's
  maskrcnn_detections detections;
} ImageResult;

// Pieces of the memory, one behind the other. With base NULL they are only measured.
typedef struct Pieces {
  char *base;
  size_t used;
} Pieces;

static void *piece(Pieces *p, size_t bytes) {
  void *at = p->base ? p->base + p->used : NULL;
  p->used += (bytes + 7) / 8 * 8;
  return at;
}

typedef struct Parts {
  ImageResult *image;
  float *boxes, *scores;
  int *labels;
  int64_t *ids;
  const char **names;
  const maskrcnn_rle **masks;
  maskrcnn_rle *mask;
  uint32_t *counts;
  char *text;
} Parts;

static Parts lay_out(Pieces *p, size_t n, size_t counts, size_t text) {
  return (Parts){.image = piece(p, sizeof *((Parts *)0)->image),
                 .boxes = piece(p, 4 * n * sizeof(float)),
                 .scores = piece(p, n * sizeof(float)),
                 .labels = piece(p, n * sizeof(int)),
                 .ids = piece(p, n * sizeof(int64_t)),
                 .names = piece(p, n * sizeof(char *)),
                 .masks = piece(p, n * sizeof(maskrcnn_rle *)),
                 .mask = piece(p, n * sizeof(maskrcnn_rle)),
                 .counts = piece(p, counts * sizeof(uint32_t)),
                 .text = piece(p, text)};
}

static const char *copy_text(char **to, const char *text) {
  const size_t bytes = strlen(text) + 1;
  const char *at = memcpy(*to, text, bytes);
  *to += bytes;
  return at;
}

static void fill(Parts p, const Detection *found, int n, int h, int w, const Category *category) {
  for (int i = 0; i < n; i++) {
    const Detection *d = &found[i];
    const Category *c = &category[d->label - 1];
    memcpy(p.boxes + 4 * i, d->box, sizeof d->box);
    p.scores[i] = d->score;
    p.labels[i] = d->label;
    p.ids[i] = c->id;
    p.names[i] = copy_text(&p.text, c->name);
    p.mask[i] = (maskrcnn_rle){.height = h, .width = w, .num_counts = d->mask.n, .counts = p.counts};
    p.masks[i] = &p.mask[i];
    if (d->mask.n) memcpy(p.counts, d->mask.runs, (size_t)d->mask.n * sizeof *p.counts);
    p.counts += d->mask.n;
  }
}

const maskrcnn_result *results_of_detections(const Detection *found, int n, int h, int w, const Category *category) {
  size_t counts = 0, text = 0;
  for (int i = 0; i < n; i++) {
    counts += (size_t)found[i].mask.n;
    text += strlen(category[found[i].label - 1].name) + 1;
  }
  Pieces pieces = {0};
  lay_out(&pieces, (size_t)n, counts, text);
  pieces = (Pieces){.base = xmalloc(pieces.used)};
  const Parts p = lay_out(&pieces, (size_t)n, counts, text);
  *p.image = (ImageResult){.result = {.message = "",
                                      .kind = MASKRCNN_DETECTIONS,
                                      .width = w,
                                      .height = h,
                                      .detections = &p.image->detections},
                           .detections = {.n = n,
                                          .boxes = p.boxes,
                                          .scores = p.scores,
                                          .labels = p.labels,
                                          .category_ids = p.ids,
                                          .names = p.names,
                                          .masks = p.masks}};
  fill(p, found, n, h, w, category);
  return &p.image->result;
}

// ---- classes of one image -------------------------------------------------------------------------------------------

typedef struct ClassResult {
  maskrcnn_result result; // first, so that its address is the memory's
  maskrcnn_classes classes;
} ClassResult;

typedef struct ClassParts {
  ClassResult *image;
  float *scores;
  int *labels;
  int64_t *ids;
  const char **names;
  char *text;
} ClassParts;

static ClassParts lay_out_classes(Pieces *p, size_t n, size_t text) {
  return (ClassParts){.image = piece(p, sizeof *((ClassParts *)0)->image),
                      .scores = piece(p, n * sizeof(float)),
                      .labels = piece(p, n * sizeof(int)),
                      .ids = piece(p, n * sizeof(int64_t)),
                      .names = piece(p, n * sizeof(char *)),
                      .text = piece(p, text)};
}

typedef struct Likely {
  float prob;
  int class;
} Likely;

static int compare_likely(const void *a, const void *b) {
  const Likely *p = a, *q = b;
  if (isnan(p->prob) != isnan(q->prob)) return isnan(p->prob) ? -1 : 1;
  if (p->prob != q->prob && !isnan(p->prob)) return p->prob > q->prob ? -1 : 1;
  return p->class - q->class;
}

const maskrcnn_result *results_of_classes(const float *prob, int classes, int n, int h, int w,
                                          const Category *category) {
  size_t text = 0;
  Likely *list = xmalloc((size_t)classes * sizeof *list);
  for (int i = 0; i < classes; i++) list[i] = (Likely){prob[i], i};
  qsort(list, (size_t)classes, sizeof *list, compare_likely);
  for (int i = 0; i < n; i++) text += strlen(category[list[i].class].name) + 1;
  Pieces pieces = {0};
  lay_out_classes(&pieces, (size_t)n, text);
  pieces = (Pieces){.base = xmalloc(pieces.used)};
  ClassParts p = lay_out_classes(&pieces, (size_t)n, text);
  *p.image = (ClassResult){
      .result = {.message = "", .kind = MASKRCNN_CLASSES, .width = w, .height = h, .classes = &p.image->classes},
      .classes = {.n = n, .scores = p.scores, .labels = p.labels, .category_ids = p.ids, .names = p.names}};
  for (int i = 0; i < n; i++) {
    const Category *c = &category[list[i].class];
    p.scores[i] = list[i].prob;
    p.labels[i] = list[i].class + 1;
    p.ids[i] = c->id;
    p.names[i] = copy_text(&p.text, c->name);
  }
  free(list);
  return &p.image->result;
}

// ---- masks ----------------------------------------------------------------------------------------------------------

static bool mask_usable(const maskrcnn_rle *m) {
  uint64_t pixels = 0;
  if (!m || m->height < 1 || m->width < 1 || m->num_counts < 1 || !m->counts) return false;
  for (int i = 0; i < m->num_counts; i++) pixels += m->counts[i];
  return pixels == (uint64_t)m->height * (uint64_t)m->width;
}

// maskApi's: a run as its difference to the one before the last, in groups of five bits with a sixth for "more", from
// '0' on. rle_to_string is the same for whoever may not run out of memory here.
static size_t put_run(int64_t x, char *text, size_t at, size_t room) {
  for (bool more = true; more; at++) {
    const int bits = (int)(x & 31);
    x >>= 5;
    more = bits & 16 ? x != -1 : x != 0;
    if (at + 1 < room) text[at] = (char)((bits | (more ? 32 : 0)) + '0');
  }
  return at;
}

size_t maskrcnn_mask_string(const maskrcnn_rle *mask, char *text, size_t room) {
  size_t length = 0;
  if (!text) room = 0;
  const bool usable = mask_usable(mask);
  const Rle rle = {.n = usable ? mask->num_counts : 0, .runs = usable ? (uint32_t *)mask->counts : NULL};
  if (room >= rle_string_room(&rle)) return rle_write_string(&rle, text);
  if (usable)
    for (int i = 0; i < mask->num_counts; i++)
      length = put_run((int64_t)mask->counts[i] - (i > 2 ? (int64_t)mask->counts[i - 2] : 0), text, length, room);
  if (room) text[MIN(length, room - 1)] = '\0';
  return length;
}

maskrcnn_status maskrcnn_mask_bitmap(const maskrcnn_rle *mask, uint8_t *bytes, int64_t pitch) {
  if (!mask_usable(mask) || !bytes || pitch < 0 || (pitch && pitch < mask->width) ||
      pitch > MAX_SPAN_BYTES / MAX(mask->height, 1))
    return MASKRCNN_BAD_ARGUMENT;
  if (!pitch) pitch = mask->width;
  int x = 0, y = 0;
  for (int i = 0; i < mask->num_counts; i++)
    for (uint32_t left = mask->counts[i]; left > 0; left--) {
      bytes[y * pitch + x] = i & 1;
      if (++y < mask->height) continue;
      y = 0;
      x++;
    }
  return MASKRCNN_OK;
}
