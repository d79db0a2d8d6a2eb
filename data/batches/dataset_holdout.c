#include "data/batches/dataset_holdout.h"
#include <stdlib.h>
#include "base/alloc.h"
#include "base/digest.h"

bool holdout_used(const HoldoutUse *use) { return use->held || (use->draw && holdout_wanted(use->draw)); }

bool dataset_choose_side(Dataset *d, ImageList *l, const ImageCategories *c, const HoldoutUse *use, const char *split,
                         bool *keep, Err *err) {
  Holdout drawn;
  if (use->held) return holdout_select(use->held, l, use->side, keep, &d->notes, err);
  if (!holdout_draw(&drawn, l, c, use->draw, split, &d->notes, err)) return false;
  d->holdout = xmalloc(sizeof *d->holdout);
  *d->holdout = drawn;
  return holdout_select(d->holdout, l, HOLDOUT_TRAIN, keep, &d->notes, err);
}

// Not 0. Does not depend on ids, on the order of annotations or on how crowds are treated.
static uint32_t digest_of(const Coco *c, const CocoImage *im) {
  uint64_t sum = 0;
  for (const CocoAnn *a = c->anns + im->first_ann; a < c->anns + im->first_ann + im->anns; a++) {
    const uint64_t drawn = digest_bytes(a->drawn, &a->area, sizeof a->area);
    sum += digest_text(digest_word(drawn, a->crowd || a->was_crowd),
                       a->category < 0 ? NULL : c->categories[a->category].name);
  }
  return (uint32_t)(digest_word(9, sum) >> 32) | 1;
}

static ImageList list_of(const Dataset *d) {
  const Coco *c = &d->coco;
  const size_t n = (size_t)c->num_images;
  uint32_t *annotations = xmalloc(n * sizeof *annotations);
  for (int i = 0; i < c->num_images; i++) annotations[i] = digest_of(c, &c->images[i]);
  ImageList l = {.of = c->path,
                 .n = c->num_images,
                 .name = xmalloc(n * sizeof *l.name),
                 .path = xmalloc(n * sizeof *l.path),
                 .bytes = d->file_bytes,
                 .annotations = annotations,
                 .key = xcalloc(n, sizeof *l.key)};
  for (int i = 0; i < c->num_images; i++) {
    const char *name = l.name[i] = c->images[i].file_name;
    l.path[i] = d->file && d->file[i] ? xstrdup(d->file[i]) : xasprintf("%s/%s", d->folder, name ? name : "");
  }
  return l;
}

static void list_free(ImageList *l) {
  for (int i = 0; i < l->n; i++) free(l->path[i]);
  free(l->path);
  free(l->name);
  free((void *)l->annotations);
  free(l->key);
}

// Categories of the objects that could be trained on. Caller frees both lists.
static ImageCategories categories_of(const Dataset *d) {
  const Coco *c = &d->coco;
  int *first = xmalloc(((size_t)c->num_images + 1) * sizeof *first), n = 0;
  int *of = xmalloc((size_t)c->num_anns * sizeof *of);
  for (int i = 0; i < c->num_images; i++) {
    const CocoImage *im = &c->images[i];
    float box[4];
    first[i] = n;
    for (const CocoAnn *a = c->anns + im->first_ann; a < c->anns + im->first_ann + im->anns; a++)
      if (!a->crowd && a->category >= 0 && dataset_box(im, a, d->box_extra, box)) of[n++] = a->category;
  }
  first[c->num_images] = n;
  return (ImageCategories){c->num_categories, first, of};
}

// Leaves out the images that are not marked.
static void keep_images(Dataset *d, const bool *keep) {
  int n = 0;
  for (int i = 0; i < d->coco.num_images; i++) {
    if (!keep[i] && d->file) free(d->file[i]);
    if (!keep[i]) continue;
    if (d->file) d->file[n] = d->file[i];
    if (d->by_last) d->by_last[n] = d->by_last[i];
    d->file_bytes[n] = d->file_bytes[i];
    d->absent[n++] = d->absent[i];
  }
  coco_keep_images(&d->coco, keep);
  d->former_crowds = 0;
  for (int a = 0; a < d->coco.num_anns; a++) d->former_crowds += d->coco.anns[a].was_crowd;
}

// What concerns the whole file is reported with the training side.
static void forget_reported(Dataset *d) {
  notes_free(&d->notes);
  d->coco.unknown_image = d->coco.duplicate_images = d->coco.duplicate_categories = 0;
}

bool dataset_hold_out(Dataset *d, const DatasetOptions *o, const char *split, Err *err) {
  const HoldoutUse *use = &o->holdout;
  if (!holdout_used(use)) return true;
  ImageList l = list_of(d);
  const ImageCategories categories = categories_of(d);
  bool *keep = xcalloc((size_t)l.n, sizeof *keep);
  if (use->held && use->held->is_new) forget_reported(d);
  const bool ok = dataset_choose_side(d, &l, &categories, use, split, keep, err);
  free((void *)categories.first);
  free((void *)categories.of);
  list_free(&l);
  if (ok) keep_images(d, keep);
  free(keep);
  if (!ok || d->coco.num_images > 0) return ok;
  return err_set(err, "%s: no image is left to %s", d->coco.path,
                 use->draw || use->side == HOLDOUT_TRAIN ? "train on" : "evaluate on");
}
