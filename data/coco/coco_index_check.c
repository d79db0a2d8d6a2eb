#include "data/coco/coco_index_check.h"
#include <math.h>
#include <string.h>
#include "base/utf8.h"

// A bool that holds anything but 0 or 1 must not be read as one.
static bool is_flag(const bool *flag) { return *(const unsigned char *)flag <= 1; }

static bool has_counts(const Coco *c) {
  const int counts[] = {c->unknown_image,
                        c->unknown_category,
                        c->no_segmentation,
                        c->bad_segmentation,
                        c->odd_polygon,
                        c->duplicate_images,
                        c->duplicate_categories,
                        c->num_images,
                        c->num_categories,
                        c->num_anns,
                        c->num_parts,
                        c->num_broken};
  for (int i = 0; i < COUNT(counts); i++)
    if (counts[i] < 0) return false;
  return is_flag(&c->own_ids) && is_flag(&c->no_categories) && is_flag(&c->own_categories);
}

// Names stand one after another, which bounds the work. `at`: where the next is. NULL: there is none.
static bool has_name(const char *stored, const char *names, size_t bytes, size_t *at) {
  if (!stored) return true;
  if ((uintptr_t)stored != *at + 1 || *at >= bytes || !utf8_is(names + *at)) return false;
  *at += strlen(names + *at) + 1;
  return true;
}

static bool has_images(const Coco *c, const char *names, size_t bytes, size_t *at) {
  int anns = 0;
  for (int i = 0; i < c->num_images; i++) {
    const CocoImage *im = &c->images[i];
    if (im->h < 0 || im->w < 0 || im->first_ann != anns || im->anns < 0 || im->anns > c->num_anns - anns) return false;
    if (!has_name(im->file_name, names, bytes, at) || !has_name(im->text_id, names, bytes, at)) return false;
    if (i > 0 && im->id <= im[-1].id) return false;
    anns += im->anns;
  }
  return anns == c->num_anns;
}

static bool has_categories(const Coco *c, const char *names, size_t bytes, size_t *at) {
  for (int i = 0; i < c->num_categories; i++) {
    const CocoCategory *category = &c->categories[i];
    if (!category->name || !is_flag(&category->unnamed) || !is_flag(&category->is_parent)) return false;
    if (!has_name(category->name, names, bytes, at) || !has_name(category->text_id, names, bytes, at)) return false;
    if (i > 0 && category->id <= category[-1].id) return false;
  }
  return true;
}

static bool has_points(const Coco *c) {
  size_t points = 0;
  for (int p = 0; p < c->num_parts; p++)
    if (c->part_points[p] < 3 || c->part_first[p] > c->num_xy ||
        (size_t)c->part_points[p] > (c->num_xy - c->part_first[p]) / 2 ||
        (points += (size_t)c->part_points[p]) > c->num_xy / 2)
      return false;
  bool finite = true;
  for (size_t i = 0; i < c->num_xy; i++) finite &= isfinite(c->xy[i]) != 0;
  return finite;
}

static bool has_runs(const Coco *c, const CocoAnn *a) {
  return a->num_runs >= 0 && a->first_run <= c->num_runs && (size_t)a->num_runs <= c->num_runs - a->first_run &&
         a->rle_h >= 0 && a->rle_w >= 0 && rle_adds_up(c->runs + a->first_run, a->num_runs, a->rle_h, a->rle_w, NULL);
}

static bool is_sound(const Coco *c, const CocoAnn *a) {
  enum { FAR = 1000000000 }; // pixels; no extent is larger
  const bool *const flags[] = {&a->crowd,       &a->text_image, &a->text_category,    &a->left_out,    &a->has_bbox,
                               &a->no_category, &a->was_crowd,  &a->bad_segmentation, &a->odd_polygon, &a->replaced};
  for (int i = 0; i < COUNT(flags); i++)
    if (!is_flag(flags[i])) return false;
  for (int i = 0; i < 4; i++)
    if (!isfinite(a->bbox[i]) || a->extent[i] < -FAR || a->extent[i] > FAR) return false;
  if (isnan(a->area) || a->category < -1 || a->category >= c->num_categories) return false;
  if (a->by < -1 || a->by >= c->num_anns || (unsigned)a->form >= SEG_FORMS || (unsigned)a->type > SEG_RLE) return false;
  if (a->parts < 0 || a->first_part < 0 || a->parts > c->num_parts - a->first_part) return false;
  return a->type == SEG_RLE ? has_runs(c, a) : a->type == SEG_NONE || a->parts > 0;
}

bool coco_index_is_sound(const Coco *c, const char *names, size_t name_bytes) {
  size_t at = 0, parts = 0, runs = 0;
  if (!has_counts(c) || (name_bytes > 0 && names[name_bytes - 1])) return false;
  if (!has_images(c, names, name_bytes, &at) || !has_categories(c, names, name_bytes, &at) || !has_points(c))
    return false;
  for (int i = 0; i < c->num_broken; i++)
    if ((unsigned)c->broken[i].fault > FAULT_TYPE) return false;
  for (int i = 0; i < c->num_images; i++)
    for (int k = c->images[i].first_ann; k < c->images[i].first_ann + c->images[i].anns; k++) {
      const CocoAnn *a = &c->anns[k];
      if (a->image_id != c->images[i].id || !is_sound(c, a)) return false;
      parts += (size_t)a->parts;
      if (a->type == SEG_RLE) runs += (size_t)a->num_runs;
      if (parts > (size_t)c->num_parts || runs > c->num_runs) return false; // none belongs to two annotations
    }
  return at == name_bytes;
}
