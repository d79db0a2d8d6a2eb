#include "data/coco/mask_forms.h"

const char *const seg_form_texts[SEG_FORMS] = {
    [FORM_OTHER] = "in an unknown format; COCO's are [[x1, y1, x2, y2, …], …] and {\"size\": [h, w], \"counts\": …}",
    [FORM_FEW] = "polygons with fewer than three points; COCO's are [[x1, y1, x2, y2, x3, y3, …], …]",
    [FORM_RUNS] = "run lengths that do not add up to h x w; COCO's are {\"size\": [h, w], \"counts\": …}",
    [FORM_TEXT] = "strings; COCO's masks are [[x1, y1, x2, y2, …], …] or {\"size\": [h, w], \"counts\": …}",
    [FORM_RLE_SIZE] = "run lengths whose size differs from their image's",
    [FORM_FRACTIONS] = "polygons with coordinates from 0 to 1; COCO's are in pixels",
};

// Whether the annotation has a segmentation of which no part can be used.
static bool unusable(const CocoAnn *a, const CocoImage *im, SegForm *form) {
  const int *e = a->extent;
  *form = a->form;
  if (a->type == SEG_NONE) return a->bad_segmentation;
  *form = a->type == SEG_RLE ? FORM_RLE_SIZE : FORM_FRACTIONS;
  if (a->type == SEG_RLE) return im->h > 0 && im->w > 0 && (a->rle_h != im->h || a->rle_w != im->w);
  return e[0] >= 0 && e[1] >= 0 && e[2] <= 1 && e[3] <= 1;
}

MaskForms mask_forms(const Coco *c) {
  MaskForms f = {0};
  for (int i = 0; i < c->num_images; i++)
    for (int k = c->images[i].first_ann; k < c->images[i].first_ann + c->images[i].anns; k++) {
      const CocoAnn *a = &c->anns[k];
      SegForm form;
      f.masks += a->type != SEG_NONE || a->bad_segmentation;
      if (!unusable(a, &c->images[i], &form)) continue;
      if (f.unusable++ == 0) f.first = a;
      f.form[form]++;
    }
  return f;
}

SegForm mask_forms_most(const MaskForms *f) {
  SegForm most = FORM_OTHER;
  for (SegForm k = 0; k < SEG_FORMS; k++)
    if (2 * f->form[k] > f->unusable) most = k;
  return most;
}

bool mask_forms_check(const Coco *c, Err *err) {
  const MaskForms f = mask_forms(c);
  if (2 * f.unusable <= f.masks) return true;
  return err_set(err, "%s: %d of %d masks cannot be used (first: annotation %lld): they are %s", c->path, f.unusable,
                 f.masks, (long long)f.first->id, seg_form_texts[mask_forms_most(&f)]);
}
