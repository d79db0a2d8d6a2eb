#include "data/batches/holdout.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/digest.h"
#include "base/record.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "data/batches/stratify.h"

static uint32_t name_digest(const char *name) { return (uint32_t)(digest_text(7, name) >> 32); }

static int compare_held(const void *a, const void *b) {
  return strcmp(((const HeldImage *)a)->name, ((const HeldImage *)b)->name);
}

static int compare_digests(const void *a, const void *b) {
  const uint32_t *p = a, *q = b;
  return (*p > *q) - (*p < *q);
}

// ---- drawing --------------------------------------------------------------------------------------------------------

// Each group's images, categories and random key. Random keys are those of names or pixels: ids may change.
typedef struct GroupList {
  int *images, *first;
  uint64_t *order;
  CategoryCount *of;
} GroupList;

static void add_groups(GroupList *p, const ImageList *l, const ImageGroups *g, uint64_t seed) {
  p->images = xcalloc((size_t)g->n, sizeof *p->images);
  p->order = xcalloc((size_t)g->n, sizeof *p->order);
  for (int i = 0; i < l->n; i++) {
    const uint64_t key = rng_key(rng_key(seed, RNG_SPLIT), l->path ? digest_text(8, l->name[i]) : l->key[i]);
    uint64_t *order = &p->order[g->of[i]];
    if (p->images[g->of[i]]++ == 0 || key < *order) *order = key;
  }
}

typedef struct GroupCategory { // of an image
  int group, category, image;
} GroupCategory;

static int compare_group_categories(const void *a, const void *b) {
  const GroupCategory *p = a, *q = b;
  if (p->group != q->group) return p->group - q->group;
  return p->category != q->category ? p->category - q->category : p->image - q->image;
}

// Counts an image once for each of its categories.
static void add_categories(GroupList *p, const ImageList *l, const ImageGroups *g, const ImageCategories *c) {
  const size_t n = (size_t)c->first[l->n];
  GroupCategory *item = xmalloc(n * sizeof *item);
  for (int i = 0; i < l->n; i++)
    for (int k = c->first[i]; k < c->first[i + 1]; k++) item[k] = (GroupCategory){g->of[i], c->of[k], i};
  if (n > 0) qsort(item, n, sizeof *item, compare_group_categories);
  p->first = xcalloc((size_t)g->n + 1, sizeof *p->first);
  p->of = xmalloc(n * sizeof *p->of);
  int used = 0;
  for (size_t k = 0; k < n; k++) {
    const bool same_group = k > 0 && item[k].group == item[k - 1].group,
               same = same_group && item[k].category == item[k - 1].category;
    if (same && item[k].image == item[k - 1].image) continue;
    if (!same) p->of[used++] = (CategoryCount){item[k].category, 0};
    p->of[used - 1].images++;
    p->first[item[k].group + 1] = used;
  }
  for (int i = 0; i < g->n; i++)
    if (p->first[i + 1] < p->first[i]) p->first[i + 1] = p->first[i]; // a group without categories
  free(item);
}

// Whether each image is held out.
static bool *divide(const ImageList *l, const ImageGroups *g, const ImageCategories *c, const HoldoutOptions *o) {
  enum { MILLION = 1000000 };
  const int parts = o->folds ? o->folds : 2, held = o->folds ? o->fold - 1 : 1;
  GroupList groups = {0};
  add_groups(&groups, l, g, o->seed);
  add_categories(&groups, l, g, c);
  int64_t *share = xmalloc((size_t)parts * sizeof *share);
  int *part = xmalloc((size_t)g->n * sizeof *part);
  bool *out = xmalloc((size_t)l->n * sizeof *out);
  for (int i = 0; i < parts; i++) share[i] = 1;
  if (!o->folds) {
    share[1] = llround(float_decimal(o->fraction) * MILLION);
    share[0] = MILLION - share[1];
  }
  stratify(&(Strata){.groups = g->n,
                     .categories = c->n,
                     .images = groups.images,
                     .order = groups.order,
                     .first = groups.first,
                     .of = groups.of},
           share, parts, part);
  for (int i = 0; i < l->n; i++) out[i] = part[g->of[i]] == held;
  free(groups.images);
  free(groups.order);
  free(groups.first);
  free(groups.of);
  free(share);
  free(part);
  return out;
}

static bool check_names(const ImageList *l, Err *err) {
  for (int i = 0; i < l->n; i++) {
    if (!l->name[i]) return err_set(err, "%s: an image has no file_name", l->of);
    if (!utf8_is(l->name[i])) return err_set(err, "%s: %s: the name is not UTF-8; rename the file", l->of, l->name[i]);
  }
  return true;
}

static bool check_groups(const ImageList *l, const ImageGroups *g, const HoldoutOptions *o, Err *err) {
  if (o->group && l->n > 0 && g->unmatched == l->n)
    return err_set(err,
                   "--group %.100s matches none of the %d file names of %s (%.100s); it is a POSIX extended regular "
                   "expression, with [0-9] for a digit",
                   o->group, l->n, l->of, l->name[0]);
  const double least = o->folds ? 0 : 0.5 / MAX(l->n, 1), fraction = float_decimal(o->fraction);
  if (g->n < 2)
    return err_set(err, "%s: nothing can be held out: %s", l->of,
                   l->n < 2   ? "it has fewer than two images"
                   : o->group ? "all images are in one group; choose another --group, or leave it out"
                              : "all image files are identical");
  if (o->folds > g->n)
    return err_set(err, "--fold %d/%d: %s has only %d groups of images; choose at most %d folds", o->fold, o->folds,
                   l->of, g->n, g->n);
  if (!o->folds && fraction < least)
    return err_set(err, "--val-fraction %g of the %d images of %s is less than half an image; give at least %g",
                   fraction, l->n, l->of, ceil(1e4 * least) / 1e4);
  return true;
}

static uint32_t annotations_of(const ImageList *l, int image) { return l->annotations ? l->annotations[image] : 0; }

static void list_sides(Holdout *h, const ImageList *l, const bool *out) {
  h->val = xmalloc((size_t)l->n * sizeof *h->val);
  h->train = xmalloc((size_t)l->n * sizeof *h->train);
  for (int i = 0; i < l->n; i++)
    if (out[i])
      h->val[h->held++] = (HeldImage){xstrdup(l->name[i]), l->key[i], annotations_of(l, i)};
    else
      h->train[h->trained++] = name_digest(l->name[i]);
  int n = 0;
  if (h->held) qsort(h->val, (size_t)h->held, sizeof *h->val, compare_held);
  for (int i = 0; i < h->held; i++)
    if (n > 0 && !strcmp(h->val[n - 1].name, h->val[i].name))
      free(h->val[i].name);
    else
      h->val[n++] = h->val[i];
  h->held = n;
  if (h->trained) qsort(h->train, (size_t)h->trained, sizeof *h->train, compare_digests);
}

static void note_numbers(const Holdout *h, const ImageList *l, const ImageGroups *g, const HoldoutOptions *o, int out,
                         Notes *notes) {
  char copies[96] = "", groups[96] = "";
  if (g->copies) snprintf(copies, sizeof copies, "; identical to another image: %d, kept on one side", g->copies);
  if (o->group)
    snprintf(groups, sizeof groups, "; groups that stay together: %d; names that --group does not match: %d", g->n,
             g->unmatched);
  notes_add(notes, "%s: %s holds out %d of %d images (%.1f %%) for evaluation%s%s", l->of, h->by, out, l->n,
            100.0 * out / l->n, copies, groups);
}

bool holdout_draw(Holdout *h, ImageList *l, const ImageCategories *c, const HoldoutOptions *o, const char *split,
                  Notes *notes, Err *err) {
  ImageGroups g;
  int held = 0;
  if (!check_names(l, err)) return false;
  image_groups_find(&g, l, o->group);
  const bool ok = check_groups(l, &g, o, err);
  if (ok) {
    *h = (Holdout){.split = xstrdup(split), .by = holdout_option_text(o), .groups = g.n, .is_new = true};
    bool *out = divide(l, &g, c, o);
    image_list_read(l, out);
    for (int i = 0; i < l->n; i++) held += out[i] = out[i] && l->key[i] != 0;
    list_sides(h, l, out);
    note_numbers(h, l, &g, o, held, notes);
    free(out);
  }
  image_groups_free(&g);
  return ok;
}

// ---- selecting ------------------------------------------------------------------------------------------------------

// An index into h->val; -1: the name was not held out.
static int held_index(const Holdout *h, const char *name) {
  const HeldImage key = {.name = (char *)name};
  const HeldImage *found = h->held ? bsearch(&key, h->val, (size_t)h->held, sizeof *h->val, compare_held) : NULL;
  return found ? (int)(found - h->val) : -1;
}

static bool was_trained_on(const Holdout *h, const char *name) {
  const uint32_t digest = name_digest(name);
  return h->trained && bsearch(&digest, h->train, (size_t)h->trained, sizeof *h->train, compare_digests);
}

// Whether all images that were held out are listed.
static bool check_listed(const Holdout *h, const ImageList *l, const int *held, Err *err) {
  bool *found = xcalloc((size_t)h->held, sizeof *found);
  int absent = 0, first = -1;
  for (int i = 0; i < l->n; i++)
    if (held[i] >= 0) found[held[i]] = true;
  for (int i = h->held - 1; i >= 0; i--) {
    if (found[i]) continue;
    absent++;
    first = i;
  }
  free(found);
  if (!absent) return true;
  if (absent == h->held)
    return err_set(err,
                   "%s: none of the %d images that training held out is in it (%s); to evaluate on other data, give "
                   "another --split, or --val-json FILE without --split",
                   l->of, h->held, h->val[first].name);
  return err_set(err, "%s: %d of the %d images that training held out are not in it: %s%s", l->of, absent, h->held,
                 h->val[first].name, absent > 1 ? ", …" : "");
}

// Whether all these files are as they were.
static bool check_contents(const Holdout *h, ImageList *l, const int *held, const bool *keep, Err *err) {
  int changed = 0, first = -1;
  image_list_read(l, keep);
  for (int i = l->n - 1; i >= 0; i--) {
    if (!keep[i] || l->key[i] == h->val[held[i]].key) continue;
    changed++;
    first = i;
  }
  if (!changed) return true;
  const char *file = l->path ? l->path[first] : l->name[first];
  return err_set(err, "%s: %s; it was held out in training, and %d of the %d images held out are no longer the same",
                 file, l->key[first] ? "the image has changed" : "the file is missing or cannot be read", changed,
                 h->held);
}

static void note_annotations(const Holdout *h, const ImageList *l, const int *held, Notes *notes) {
  int changed = 0, first = -1;
  for (int i = l->n - 1; i >= 0; i--) {
    const uint32_t was = held[i] >= 0 ? h->val[held[i]].annotations : 0, is = annotations_of(l, i);
    if (!was || !is || was == is) continue;
    changed++;
    first = i;
  }
  if (changed)
    notes_add(notes,
              "%s: annotations have changed since training held these images out: %d of %d; first: %s; scores are of "
              "the annotations as they are now",
              l->of, changed, h->held, l->name[first]);
}

bool holdout_select(const Holdout *h, ImageList *l, HoldoutSide side, bool *keep, Notes *notes, Err *err) {
  int *held = xmalloc((size_t)l->n * sizeof *held), later = 0;
  for (int i = 0; i < l->n; i++) {
    held[i] = l->name[i] ? held_index(h, l->name[i]) : -1;
    const bool trained = held[i] < 0 && l->name[i] && was_trained_on(h, l->name[i]);
    keep[i] = side == HOLDOUT_VAL ? held[i] >= 0 : trained;
    later += held[i] < 0 && !trained;
  }
  bool ok = true;
  if (!h->is_new && side == HOLDOUT_VAL) ok = check_listed(h, l, held, err) && check_contents(h, l, held, keep, err);
  if (ok && !h->is_new && side == HOLDOUT_VAL) note_annotations(h, l, held, notes);
  if (ok && later)
    notes_add(notes,
              "%s: images added after training, which were neither trained on nor held out, and are left out: %d",
              l->of, later);
  free(held);
  return ok;
}
