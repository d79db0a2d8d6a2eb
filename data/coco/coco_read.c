// Parses annotations and detections from JSON: ids, boxes, flags, and segmentations in each of COCO's forms.
#include "data/coco/coco_read.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/digest.h"
#include "base/mapped.h"

// Maps a regular file, which saves a copy; pipes and files that cannot be mapped are read.
static bool open_text(CocoReader *r, const char *path, size_t *size, Err *err) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  struct stat st;
  if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
    r->text = mapped_open(fd, (size_t)st.st_size, path);
    if (r->text) r->map_bytes = *size = (size_t)st.st_size;
  }
  if (fd >= 0) close(fd);
  if (!r->text) r->text = file_read(path, size, err);
  return r->text != NULL;
}

bool coco_read_open(CocoReader *r, const char *path, Err *err) {
  *r = (CocoReader){0};
  size_t size;
  if (!open_text(r, path, &size, err)) return false;
  r->coco.path = xstrdup(path);
  json_open(&r->json, r->coco.path, r->text, size);
  return true;
}

void coco_read_close(CocoReader *r) {
  json_close(&r->json);
  if (r->map_bytes > 0)
    mapped_close(r->text, r->map_bytes);
  else
    free(r->text);
  free(r->scores);
}

// Whether a string is an integer.
static bool is_id(const char *text, int64_t *id) {
  char *end;
  errno = 0;
  *id = strtoll(text, &end, 10);
  return end != text && *end == '\0' && errno == 0;
}

int64_t coco_read_id(Json *j) {
  int64_t id = 0;
  if (json_peek(j) != JSON_STRING) return json_int(j);
  const char *text = json_string(j, NULL);
  if (!j->failed && !is_id(text, &id))
    json_fail(j,
              "expected a whole number as an id, found \"%.40s\"; give images and categories numbers, here and in the "
              "annotations",
              text);
  return id;
}

// Nothing refers to annotation ids, so an id that is text or null is replaced by the default already in *id.
static void read_ann_id(Json *j, int64_t *id) {
  int64_t given;
  if (json_peek(j) == JSON_NULL)
    json_skip(j);
  else if (json_peek(j) != JSON_STRING)
    *id = json_int(j);
  else if (is_id(json_string(j, NULL), &given))
    *id = given;
}

char *coco_read_string(Json *j) {
  if (json_peek(j) == JSON_STRING) return xstrdup(json_string(j, NULL));
  json_skip(j);
  return NULL;
}

int coco_read_extent(Json *j) {
  int64_t pixels = json_int(j);
  if (pixels >= 0 && pixels <= INT_MAX) return (int)pixels;
  json_fail(j, "expected a size in pixels, found %lld", (long long)pixels);
  return 0;
}

static void read_bbox(Json *j, CocoAnn *a) {
  a->has_bbox = false; // of an earlier, repeated key
  if (json_peek(j) == JSON_NULL) {
    json_skip(j);
    return;
  }
  int n = 0;
  if (json_begin_array(j))
    for (; json_next(j); n++) {
      double value = json_number(j);
      if (n < 4) a->bbox[n] = value;
    }
  if (n != 0 && n != 4) json_fail(j, "expected 4 numbers in bbox, found %d", n);
  a->has_bbox = n == 4;
}

enum { NUMBERS_AT_ONCE = 64 };

// The first unusable part determines the form. Returns false.
static bool refuse_part(CocoAnn *a, SegForm form) {
  if (!a->bad_segmentation) a->form = form;
  a->bad_segmentation = true;
  return false;
}

// One part: a closed polygon needs three points. False, keeping nothing, if it cannot be one.
static bool read_part(CocoReader *r, CocoAnn *a) {
  Json *j = &r->json;
  Coco *c = &r->coco;
  bool usable = true, points = false;
  size_t first = c->num_xy;
  if (json_begin_array(j))
    for (;;) {
      array_reserve((void **)&c->xy, &r->xy_cap, c->num_xy + NUMBERS_AT_ONCE + 1, sizeof *c->xy);
      c->num_xy += json_numbers(j, c->xy + c->num_xy, NUMBERS_AT_ONCE);
      if (!json_next(j)) break;
      if (json_peek(j) == JSON_NUMBER) {
        c->xy[c->num_xy++] = json_number(j);
      } else { // null is what some writers make of NaN
        usable = false;
        points |= json_peek(j) == JSON_ARRAY || json_peek(j) == JSON_OBJECT;
        json_skip(j);
      }
    }
  size_t odd = (c->num_xy - first) % 2; // an x without its y is ignored, as in pycocotools
  c->num_xy -= odd;
  size_t numbers = c->num_xy - first;
  if (!usable || numbers < 6 || numbers / 2 > INT_MAX) {
    c->num_xy = first;
    return refuse_part(a, points || numbers == 2 ? FORM_PAIRS : usable ? FORM_FEW : FORM_OTHER);
  }
  if (odd) a->odd_polygon = true;
  array_reserve((void **)&c->part_points, &r->part_points_cap, (size_t)c->num_parts + 1, sizeof *c->part_points);
  array_reserve((void **)&c->part_first, &r->part_first_cap, (size_t)c->num_parts + 1, sizeof *c->part_first);
  c->part_points[c->num_parts] = (int)(numbers / 2);
  c->part_first[c->num_parts] = first;
  c->num_parts++;
  return true;
}

static int whole(double pixels) { return (int)MAX(-1e9, MIN(pixels, 1e9)); }

static void measure_extent(const Coco *c, CocoAnn *a) {
  const double *xy = c->xy + c->part_first[a->first_part];
  double x1 = xy[0], y1 = xy[1], x2 = x1, y2 = y1;
  for (const double *end = c->xy + c->num_xy; xy < end; xy += 2) {
    x1 = MIN(x1, xy[0]);
    y1 = MIN(y1, xy[1]);
    x2 = MAX(x2, xy[0]);
    y2 = MAX(y2, xy[1]);
  }
  a->extent[0] = whole(floor(x1));
  a->extent[1] = whole(floor(y1));
  a->extent[2] = whole(ceil(x2));
  a->extent[3] = whole(ceil(y2));
}

// An element of a list of polygons that is not a list.
static void skip_part(Json *j, CocoAnn *a) {
  const JsonType type = json_peek(j);
  refuse_part(a, type == JSON_NUMBER ? FORM_NUMBERS : type == JSON_OBJECT ? FORM_LISTED : FORM_OTHER);
  json_skip(j);
}

// The usable polygons make up the mask.
static void read_polygons(CocoReader *r, CocoAnn *a) {
  Json *j = &r->json;
  a->first_part = r->coco.num_parts;
  if (json_begin_array(j))
    while (json_next(j)) {
      if (json_peek(j) == JSON_ARRAY)
        read_part(r, a);
      else
        skip_part(j, a);
    }
  a->parts = r->coco.num_parts - a->first_part;
  a->type = a->parts > 0 ? SEG_POLYGONS : SEG_NONE;
  if (a->parts > 0) measure_extent(&r->coco, a);
}

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
  if (json_peek(j) == JSON_STRING) {
    const char *s = json_string(j, &raw->length);
    free(raw->string);
    raw->string = memcpy(xmalloc(raw->length + 1), s, raw->length + 1);
    return;
  }
  raw->counts = 0;
  if (json_begin_array(j))
    while (json_next(j)) {
      int64_t run = json_int(j);
      raw->usable &= run >= 0 && run <= UINT32_MAX && raw->counts < INT_MAX;
      array_reserve((void **)&c->runs, &r->runs_cap, c->num_runs + raw->counts + 1, sizeof *c->runs);
      c->runs[c->num_runs + raw->counts++] = (uint32_t)run;
    }
}

// Appends the runs to coco.runs if they add up to the annotation's size.
static bool keep_runs(CocoReader *r, CocoAnn *a, const RawRuns *raw) {
  Coco *c = &r->coco;
  a->rle_h = raw->size[0];
  a->rle_w = raw->size[1];
  a->first_run = c->num_runs;
  a->num_runs = (int)raw->counts;
  bool usable;
  size_t room = raw->string ? raw->length : 0;
  // Allocated even if there are no runs.
  array_reserve((void **)&c->runs, &r->runs_cap, c->num_runs + room + 1, sizeof *c->runs);
  if (raw->string) {
    usable = rle_decode(c->runs + c->num_runs, &a->num_runs, raw->string, raw->length, a->rle_h, a->rle_w, NULL);
  } else {
    usable = rle_adds_up(c->runs + c->num_runs, a->num_runs, a->rle_h, a->rle_w, NULL);
  }
  if (!usable) return false;
  a->type = SEG_RLE;
  c->num_runs += (size_t)a->num_runs;
  return true;
}

static void read_rle(CocoReader *r, CocoAnn *a) {
  Json *j = &r->json;
  RawRuns raw = {.usable = true};
  if (json_begin_object(j))
    for (const char *key; (key = json_key(j));) {
      if (strcmp(key, "counts") == 0) {
        read_counts(r, &raw);
      } else if (strcmp(key, "size") == 0 && json_begin_array(j)) {
        int n = 0;
        for (; json_next(j); n++) {
          int extent = coco_read_extent(j);
          if (n < 2) raw.size[n] = extent;
        }
        raw.usable &= n == 2;
      } else {
        json_skip(j);
      }
    }
  if (!raw.usable || j->failed || !keep_runs(r, a, &raw)) refuse_part(a, FORM_RUNS);
  free(raw.string);
}

static void read_segmentation(CocoReader *r, CocoAnn *a) {
  a->type = SEG_NONE; // discards the value of an earlier key "segmentation"
  a->odd_polygon = a->bad_segmentation = false;
  const JsonType type = json_peek(&r->json);
  switch (type) {
  case JSON_ARRAY: read_polygons(r, a); break;
  case JSON_OBJECT: read_rle(r, a); break;
  default:
    if (type != JSON_NULL) refuse_part(a, type == JSON_STRING ? FORM_TEXT : FORM_OTHER);
    json_skip(&r->json);
  }
}

static bool read_flag(Json *j) {
  if (json_peek(j) != JSON_NULL) return json_bool(j);
  json_skip(j);
  return false;
}

static double read_optional_number(Json *j) {
  if (json_peek(j) != JSON_NULL) return json_number(j);
  json_skip(j);
  return NAN;
}

// Called while the points are still in the cache.
static uint64_t digest_drawn(const Coco *c, const CocoAnn *a) {
  uint64_t digest = digest_bytes(digest_word(0, a->has_bbox), a->bbox, sizeof a->bbox);
  for (int p = a->first_part; p < a->first_part + a->parts; p++)
    digest = digest_bytes(digest, c->xy + c->part_first[p], (size_t)c->part_points[p] * 2 * sizeof *c->xy);
  if (a->type != SEG_RLE) return digest;
  const Rle runs = coco_ann_runs(c, a);
  return digest_bytes(digest, runs.runs, (size_t)runs.n * sizeof *runs.runs);
}

void coco_read_object(CocoReader *r) {
  Json *j = &r->json;
  Coco *c = &r->coco;
  // An id that is absent or no number becomes the position in the file, counted from 1: the evaluator takes 0 for "no
  // match".
  CocoAnn a = {.id = c->num_anns + 1, .category = -1, .area = NAN};
  double score = NAN;
  bool has_image = false, has_category = false;
  if (json_begin_object(j))
    for (const char *key; (key = json_key(j));) {
      if (strcmp(key, "image_id") == 0) {
        a.image_id = coco_read_id(j);
        has_image = true;
      } else if (strcmp(key, "category_id") == 0) {
        a.no_category = json_peek(j) == JSON_NULL;
        if (a.no_category)
          json_skip(j);
        else
          a.category_id = coco_read_id(j);
        has_category = true;
      } else if (strcmp(key, "id") == 0) {
        read_ann_id(j, &a.id);
      } else if (strcmp(key, "bbox") == 0) {
        read_bbox(j, &a);
      } else if (strcmp(key, "segmentation") == 0) {
        read_segmentation(r, &a);
      } else if (strcmp(key, "area") == 0) {
        a.area = read_optional_number(j);
      } else if (strcmp(key, "iscrowd") == 0) {
        a.crowd = read_flag(j);
      } else if (strcmp(key, "score") == 0) {
        score = read_optional_number(j);
      } else {
        json_skip(j);
      }
    }
  if (!has_image || !has_category) json_fail(j, "an annotation or detection without image_id or category_id");
  if (a.bad_segmentation)
    c->bad_segmentation++;
  else if (a.type == SEG_NONE)
    c->no_segmentation++;
  c->odd_polygon += a.odd_polygon;
  a.drawn = digest_drawn(c, &a);
  array_reserve((void **)&c->anns, &r->anns_cap, (size_t)c->num_anns + 1, sizeof *c->anns);
  array_reserve((void **)&r->scores, &r->scores_cap, (size_t)c->num_anns + 1, sizeof *r->scores);
  r->scores[c->num_anns] = score;
  c->anns[c->num_anns++] = a;
}
