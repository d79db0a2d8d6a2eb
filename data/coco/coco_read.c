// Parses annotations and detections from JSON: ids, boxes and flags; segmentation.c reads their masks.
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
#include "base/regular.h"

// Maps a regular file, which saves a copy; pipes and files that cannot be mapped are read.
static bool open_text(CocoReader *r, const char *path, size_t *size, Err *err) {
  int fd = input_open(path, NULL);
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
  free(r->mask_runs);
  text_table_free(&r->image_ids.texts);
  text_table_free(&r->category_ids.texts);
  text_table_free(&r->supercategories);
  free(r->supercategory);
  free(r->image_ids.id);
  free(r->category_ids.id);
}

const char *const coco_faults[] = {
    [FAULT_NONE] = NULL,
    [FAULT_NUMBER] = "a number is Infinity or NaN",
    [FAULT_BOX] = "its bbox is not 4 numbers",
    [FAULT_IDS] = "its image_id or category_id is missing or not an id",
    [FAULT_TYPE] = "a value has a wrong type",
};

// Whether a string is an integer.
static bool is_id(const char *text, int64_t *id) {
  char *end;
  errno = 0;
  *id = strtoll(text, &end, 10);
  return end != text && *end == '\0' && errno == 0;
}

int64_t coco_text_id(TextIds *ids, const char *text, bool *is_text) {
  int64_t id;
  *is_text = !is_id(text, &id);
  return *is_text ? text_table_add(&ids->texts, text) : id;
}

int64_t coco_read_id(Json *j, TextIds *ids, bool *is_text) {
  *is_text = false;
  if (json_peek(j) != JSON_STRING) return json_int(j);
  const char *text = json_string(j, NULL);
  return j->failed ? 0 : coco_text_id(ids, text, is_text);
}

static void set_fault(CocoReader *r, CocoFault fault) {
  if (r->lenient && !r->fault) r->fault = fault;
}

// Whether the next value has this type. If annotations may be left out, it is otherwise skipped, and the annotation is
// at fault; a strict reader fails when it reads the value.
static bool has_type(CocoReader *r, JsonType type, CocoFault fault) {
  if (!r->lenient || json_peek(&r->json) == type) return true;
  set_fault(r, fault);
  json_skip(&r->json);
  return false;
}

double coco_read_finite(CocoReader *r) {
  const double value = json_number(&r->json);
  if (!isfinite(value)) set_fault(r, FAULT_NUMBER);
  return value;
}

static int64_t read_reference(CocoReader *r, TextIds *ids, bool *is_text) {
  Json *j = &r->json;
  int64_t id = 0;
  *is_text = false;
  if (!r->lenient || json_peek(j) == JSON_STRING) return coco_read_id(j, ids, is_text);
  if (has_type(r, JSON_NUMBER, FAULT_IDS) && !json_is_int(j, &id)) set_fault(r, FAULT_IDS);
  return id;
}

// Nothing refers to annotation ids, so an id that is text or null is replaced by the default already in *id.
static void read_ann_id(CocoReader *r, int64_t *id) {
  Json *j = &r->json;
  int64_t given;
  if (json_peek(j) == JSON_NULL)
    json_skip(j);
  else if (json_peek(j) == JSON_STRING)
    *id = is_id(json_string(j, NULL), &given) ? given : *id;
  else if (!r->lenient)
    *id = json_int(j);
  else if (has_type(r, JSON_NUMBER, FAULT_TYPE) && json_is_int(j, &given))
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

static void read_bbox(CocoReader *r, CocoAnn *a) {
  Json *j = &r->json;
  a->has_bbox = false; // of an earlier, repeated key
  if (json_peek(j) == JSON_NULL) {
    json_skip(j);
    return;
  }
  int n = 0;
  if (has_type(r, JSON_ARRAY, FAULT_BOX) && json_begin_array(j))
    for (; json_next(j); n++) {
      const double value = has_type(r, JSON_NUMBER, FAULT_BOX) ? coco_read_finite(r) : 0;
      if (n < 4) a->bbox[n] = value;
    }
  if (n != 0 && n != 4) {
    if (!r->lenient) json_fail(j, "expected 4 numbers in bbox, found %d", n);
    set_fault(r, FAULT_BOX);
  }
  a->has_bbox = n == 4;
}

static bool read_flag(CocoReader *r) {
  Json *j = &r->json;
  if (json_peek(j) == JSON_NULL) {
    json_skip(j);
    return false;
  }
  int64_t number;
  if (!r->lenient || json_peek(j) == JSON_BOOL) return json_bool(j);
  if (!has_type(r, JSON_NUMBER, FAULT_TYPE)) return false;
  if (json_is_int(j, &number) && (number == 0 || number == 1)) return number == 1;
  set_fault(r, FAULT_TYPE);
  return false;
}

// NaN if it is absent, or not finite in a file whose areas can be those of masks.
static double read_optional_number(CocoReader *r) {
  Json *j = &r->json;
  if (json_peek(j) != JSON_NULL && has_type(r, JSON_NUMBER, FAULT_TYPE)) {
    const double value = json_number(j);
    return isfinite(value) ? value : NAN;
  }
  if (json_peek(j) == JSON_NULL) json_skip(j);
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

static void read_members(CocoReader *r, CocoAnn *a, double *score) {
  Json *j = &r->json;
  bool has_image = false, has_category = false;
  if (json_begin_object(j))
    for (const char *key; (key = json_key(j));) {
      if (strcmp(key, "image_id") == 0) {
        a->image_id = read_reference(r, &r->image_ids, &a->text_image);
        has_image = true;
      } else if (strcmp(key, "category_id") == 0) {
        a->no_category = json_peek(j) == JSON_NULL;
        if (a->no_category)
          json_skip(j);
        else
          a->category_id = read_reference(r, &r->category_ids, &a->text_category);
        has_category = true;
      } else if (strcmp(key, "id") == 0) {
        read_ann_id(r, &a->id);
      } else if (strcmp(key, "bbox") == 0) {
        read_bbox(r, a);
      } else if (strcmp(key, "segmentation") == 0) {
        coco_read_segmentation(r, a);
      } else if (strcmp(key, "area") == 0) {
        a->area = read_optional_number(r);
      } else if (strcmp(key, "iscrowd") == 0) {
        a->crowd = read_flag(r);
      } else if (strcmp(key, "score") == 0) {
        *score = read_optional_number(r);
      } else {
        json_skip(j);
      }
    }
  if (has_image && has_category) return;
  if (!r->lenient) json_fail(j, "an annotation or detection without image_id or category_id");
  set_fault(r, FAULT_IDS);
}

static void list_broken(CocoReader *r, const CocoAnn *a) {
  Coco *c = &r->coco;
  array_reserve((void **)&c->broken, &r->broken_cap, (size_t)c->num_broken + 1, sizeof *c->broken);
  c->broken[c->num_broken++] =
      (CocoBroken){.id = a->id, .image_id = a->text_image ? 0 : a->image_id, .fault = r->fault};
}

void coco_read_object(CocoReader *r, const char *key) {
  Coco *c = &r->coco;
  // An id that is absent or no number becomes the position in the file, counted from 1: the evaluator takes 0 for "no
  // match".
  CocoAnn a = {.id = c->num_anns + c->num_broken + 1, .category = -1, .area = NAN};
  int64_t keyed;
  if (key && is_id(key, &keyed)) a.id = keyed;
  double score = NAN;
  r->fault = FAULT_NONE;
  if (has_type(r, JSON_OBJECT, FAULT_TYPE)) read_members(r, &a, &score);
  if (r->fault) {
    list_broken(r, &a);
    return;
  }
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
