// Reads a segmentation in any of the forms that tools write: polygons as lists of numbers, as points [x, y] or
// {"x", "y"}, with or without the outer list; run lengths, alone or in a list.
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "data/coco/coco_read.h"

// The first unusable part determines the form.
static void refuse_part(CocoAnn *a, SegForm form) {
  if (!a->bad_segmentation) a->form = form;
  a->bad_segmentation = true;
}

// ---- polygons -------------------------------------------------------------------------------------------------------

enum { NUMBERS_AT_ONCE = 64, DEEPEST = 3 }; // DEEPEST: [[[[x, y], …]]]

static void keep_number(CocoReader *r, double value) {
  Coco *c = &r->coco;
  array_reserve((void **)&c->xy, &r->xy_cap, c->num_xy + 1, sizeof *c->xy);
  c->xy[c->num_xy++] = value;
}

// The numbers from xy[first] on become a polygon, which needs three points.
static void keep_polygon(CocoReader *r, CocoAnn *a, size_t first, bool usable) {
  Coco *c = &r->coco;
  const size_t odd = (c->num_xy - first) % 2; // an x without its y is ignored, as in pycocotools
  c->num_xy -= odd;
  const size_t numbers = c->num_xy - first;
  if (!usable || numbers < 6 || numbers / 2 > INT_MAX) {
    c->num_xy = first;
    refuse_part(a, usable ? FORM_FEW : FORM_OTHER);
    return;
  }
  a->odd_polygon |= odd > 0;
  array_reserve((void **)&c->part_points, &r->part_points_cap, (size_t)c->num_parts + 1, sizeof *c->part_points);
  array_reserve((void **)&c->part_first, &r->part_first_cap, (size_t)c->num_parts + 1, sizeof *c->part_first);
  c->part_points[c->num_parts] = (int)(numbers / 2);
  c->part_first[c->num_parts++] = first;
}

static bool read_object(CocoReader *r, CocoAnn *a);

// Reads a list of numbers, of points, or of such lists. A list of two numbers within another is a point: returns true,
// with the numbers left at the end of xy for the list around it.
static bool read_list(CocoReader *r, CocoAnn *a, int depth) {
  Json *j = &r->json;
  Coco *c = &r->coco;
  size_t own = c->num_xy; // where this list's own numbers begin
  bool usable = true, has_lists = false, has_points = false;
  if (!json_begin_array(j)) return false;
  for (;;) {
    array_reserve((void **)&c->xy, &r->xy_cap, c->num_xy + NUMBERS_AT_ONCE, sizeof *c->xy);
    c->num_xy += json_numbers(j, c->xy + c->num_xy, NUMBERS_AT_ONCE);
    if (!json_next(j)) break;
    const JsonType type = json_peek(j);
    if (type == JSON_NUMBER) {
      keep_number(r, coco_read_finite(r));
    } else if ((type == JSON_ARRAY && depth < DEEPEST) || type == JSON_OBJECT) {
      const bool alone = c->num_xy == own;
      if (type == JSON_ARRAY ? read_list(r, a, depth + 1) : read_object(r, a)) {
        has_points = true;
      } else {
        has_lists = true;
        usable &= alone; // a list of lists has no numbers of its own
        own = c->num_xy;
      }
    } else { // null is what some writers make of NaN
      usable = false;
      json_skip(j);
    }
  }
  const size_t numbers = c->num_xy - own;
  if (depth > 0 && usable && !has_points && !has_lists && numbers == 2) return true;
  if (numbers > 0 || !usable || (depth > 0 && !has_lists)) keep_polygon(r, a, own, usable && !has_lists);
  return false;
}

static int whole(double pixels) { return (int)MAX(-1e9, MIN(pixels, 1e9)); }

static void measure_extent(const Coco *c, CocoAnn *a) {
  double x1 = INFINITY, y1 = INFINITY, x2 = -INFINITY, y2 = -INFINITY;
  for (int p = a->first_part; p < a->first_part + a->parts; p++) {
    const double *xy = c->xy + c->part_first[p];
    for (const double *end = xy + 2 * (size_t)c->part_points[p]; xy < end; xy += 2) {
      x1 = MIN(x1, xy[0]);
      y1 = MIN(y1, xy[1]);
      x2 = MAX(x2, xy[0]);
      y2 = MAX(y2, xy[1]);
    }
  }
  a->extent[0] = whole(floor(x1));
  a->extent[1] = whole(floor(y1));
  a->extent[2] = whole(ceil(x2));
  a->extent[3] = whole(ceil(y2));
}

// ---- run lengths ----------------------------------------------------------------------------------------------------

// A run list as in the file, where the size may come after the runs.
typedef struct RawRuns {
  char *string; // or, when NULL, the counts at the end of coco.runs
  size_t length, counts;
  int size[2]; // h, w
  bool usable;
} RawRuns;

static void read_counts(CocoReader *r, RawRuns *raw) {
  Json *j = &r->json;
  Coco *c = &r->coco;
  const JsonType type = json_peek(j);
  if (type == JSON_STRING) {
    const char *s = json_string(j, &raw->length);
    free(raw->string);
    raw->string = memcpy(xmalloc(raw->length + 1), s, raw->length + 1);
    return;
  }
  raw->counts = 0;
  raw->usable &= type == JSON_ARRAY;
  if (type != JSON_ARRAY) json_skip(j);
  if (type == JSON_ARRAY && json_begin_array(j))
    while (json_next(j)) {
      int64_t run = -1;
      if (json_peek(j) != JSON_NUMBER)
        json_skip(j);
      else if (!json_is_int(j, &run))
        run = -1;
      raw->usable &= run >= 0 && run <= UINT32_MAX && raw->counts < INT_MAX;
      array_reserve((void **)&c->runs, &r->runs_cap, c->num_runs + raw->counts + 1, sizeof *c->runs);
      c->runs[c->num_runs + raw->counts++] = (uint32_t)run;
    }
}

static void read_size(Json *j, RawRuns *raw) {
  int n = 0;
  if (json_peek(j) != JSON_ARRAY) {
    json_skip(j);
  } else if (json_begin_array(j)) {
    for (; json_next(j); n++) {
      int64_t extent = -1;
      if (json_peek(j) != JSON_NUMBER)
        json_skip(j);
      else if (!json_is_int(j, &extent))
        extent = -1;
      raw->usable &= extent >= 0 && extent <= INT_MAX;
      if (n < 2 && raw->usable) raw->size[n] = (int)extent;
    }
  }
  raw->usable &= n == 2;
}

// Appends the runs to coco.runs if they add up to their size.
static bool decode_runs(CocoReader *r, const RawRuns *raw, Rle *mask) {
  Coco *c = &r->coco;
  *mask = (Rle){.h = raw->size[0], .w = raw->size[1], .n = (int)raw->counts};
  // Allocated even if there are no runs.
  array_reserve((void **)&c->runs, &r->runs_cap, c->num_runs + (raw->string ? raw->length : raw->counts) + 1,
                sizeof *c->runs);
  mask->runs = c->runs + c->num_runs;
  return raw->string ? rle_decode(mask->runs, &mask->n, raw->string, raw->length, mask->h, mask->w, NULL)
                     : rle_adds_up(mask->runs, mask->n, mask->h, mask->w, NULL);
}

// The runs become the annotation's mask, or a part of it if it has some: unite_runs.
static void keep_runs(CocoReader *r, CocoAnn *a, const RawRuns *raw) {
  Coco *c = &r->coco;
  Rle mask;
  if (!raw->usable || !decode_runs(r, raw, &mask) ||
      (a->type == SEG_RLE && (mask.h != a->rle_h || mask.w != a->rle_w))) {
    refuse_part(a, FORM_RUNS);
    return;
  }
  if (a->type != SEG_RLE) {
    a->first_run = c->num_runs;
    r->num_masks = 0;
  }
  a->type = SEG_RLE;
  a->rle_h = mask.h;
  a->rle_w = mask.w;
  a->num_runs = mask.n;
  array_reserve((void **)&r->mask_runs, &r->mask_runs_cap, (size_t)r->num_masks + 1, sizeof *r->mask_runs);
  r->mask_runs[r->num_masks++] = mask.n;
  c->num_runs += (size_t)mask.n;
}

// The union of an annotation's run lists, which stand one after another, in their place.
static void unite_runs(CocoReader *r, CocoAnn *a) {
  Coco *c = &r->coco;
  if (a->type != SEG_RLE || r->num_masks == 1) return;
  Rle *parts = xmalloc((size_t)r->num_masks * sizeof *parts);
  uint32_t *runs = c->runs + a->first_run;
  for (int i = 0; i < r->num_masks; runs += r->mask_runs[i++])
    parts[i] = (Rle){.h = a->rle_h, .w = a->rle_w, .n = r->mask_runs[i], .runs = runs};
  Rle all = rle_merge(parts, r->num_masks, false);
  free(parts);
  c->num_runs = a->first_run;
  array_reserve((void **)&c->runs, &r->runs_cap, c->num_runs + (size_t)all.n + 1, sizeof *c->runs);
  memcpy(c->runs + c->num_runs, all.runs, (size_t)all.n * sizeof *c->runs);
  c->num_runs += (size_t)all.n;
  a->num_runs = all.n;
  rle_free(&all);
}

// An object is a point {"x", "y"}, whose numbers are left at the end of xy, or run lengths. Returns whether it is a
// point.
static bool read_object(CocoReader *r, CocoAnn *a) {
  Json *j = &r->json;
  RawRuns raw = {.usable = true};
  bool has_runs = false, has[2] = {false};
  double point[2];
  if (json_begin_object(j))
    for (const char *key; (key = json_key(j));) {
      const int axis = !strcmp(key, "x") ? 0 : !strcmp(key, "y") ? 1 : -1;
      if (axis >= 0 && json_peek(j) == JSON_NUMBER) {
        point[axis] = coco_read_finite(r);
        has[axis] = true;
      } else if (!strcmp(key, "counts")) {
        has_runs = true;
        read_counts(r, &raw);
      } else if (!strcmp(key, "size")) {
        read_size(j, &raw);
      } else {
        json_skip(j);
      }
    }
  const bool is_point = has[0] && has[1] && !has_runs;
  for (int k = 0; is_point && k < 2; k++) keep_number(r, point[k]);
  if (!is_point && !j->failed) keep_runs(r, a, &raw);
  free(raw.string);
  return is_point;
}

void coco_read_segmentation(CocoReader *r, CocoAnn *a) {
  Coco *c = &r->coco;
  a->type = SEG_NONE; // discards the value of an earlier key "segmentation"
  a->odd_polygon = a->bad_segmentation = false;
  a->first_part = c->num_parts;
  const JsonType type = json_peek(&r->json);
  if (type == JSON_ARRAY) {
    read_list(r, a, 0);
  } else if (type == JSON_OBJECT) {
    if (read_object(r, a)) refuse_part(a, FORM_OTHER); // a point alone
  } else {
    if (type != JSON_NULL) refuse_part(a, type == JSON_STRING ? FORM_TEXT : FORM_OTHER);
    json_skip(&r->json);
  }
  unite_runs(r, a);
  a->parts = c->num_parts - a->first_part;
  if (a->type == SEG_RLE && a->parts > 0) refuse_part(a, FORM_OTHER); // the polygons are not used
  if (a->type == SEG_RLE) a->parts = 0;
  if (a->parts == 0) return;
  a->type = SEG_POLYGONS;
  measure_extent(c, a);
}
