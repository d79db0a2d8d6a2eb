// Reads and writes detections in COCO's result format: an array of {image_id, category_id, score, bbox, segmentation},
// and the names of file and category where they are known.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/record.h"
#include "base/text.h"
#include "data/coco/coco.h"
#include "data/coco/coco_read.h"
#include "data/coco/polygons.h"

static void read_detections(CocoReader *r) {
  if (json_begin_array(&r->json))
    while (json_next(&r->json)) coco_read_object(r, NULL);
}

// Ids that are texts are those of the ground truth, which are the first in the tables.
static void take_texts(CocoReader *r, const Coco *gt) {
  TextIds *image = &r->image_ids, *category = &r->category_ids;
  image->id = xmalloc((size_t)gt->num_images * sizeof *image->id);
  category->id = xmalloc((size_t)gt->num_categories * sizeof *category->id);
  for (int i = 0; i < gt->num_images; i++)
    if (gt->images[i].text_id) image->id[text_table_add(&image->texts, gt->images[i].text_id)] = gt->images[i].id;
  for (int i = 0; i < gt->num_categories; i++)
    if (gt->categories[i].text_id)
      category->id[text_table_add(&category->texts, gt->categories[i].text_id)] = gt->categories[i].id;
}

// Replaces the number of a text by the ground truth's id; false if the text is not among the first `known`.
static bool resolve_text(const TextIds *ids, int known, int64_t *id, const char *what, Err *err) {
  if (*id >= known) return err_set(err, "no %s has the id \"%.40s\"", what, ids->texts.text[*id]);
  *id = ids->id[*id];
  return true;
}

typedef struct KnownTexts { // numbers of texts that are ids of the ground truth
  int images, categories;
} KnownTexts;

// Takes one detection out of the reader. Polygons become runs at their image's size, which only the ground truth knows.
static bool take_result(CocoResult *result, CocoReader *r, int i, const Coco *gt, KnownTexts known, Err *err) {
  CocoAnn *a = &r->coco.anns[i];
  Err why;
  if ((a->text_image && !resolve_text(&r->image_ids, known.images, &a->image_id, "image", &why)) ||
      (a->text_category && !resolve_text(&r->category_ids, known.categories, &a->category_id, "category", &why)))
    return err_set(err, "%s: detection %d: %s", r->coco.path, i + 1, why.msg);
  if (a->no_category) return err_set(err, "%s: detection %d: its category_id is null; remove it", r->coco.path, i + 1);
  *result = (CocoResult){.image_id = a->image_id, .category_id = a->category_id, .score = r->scores[i]};
  result->has_bbox = a->has_bbox;
  result->bad_segm = a->bad_segmentation;
  memcpy(result->bbox, a->bbox, sizeof a->bbox);
  if (a->type == SEG_RLE) {
    result->rle = coco_ann_runs(&r->coco, a);
    result->has_segm = result->shares_runs = true;
  } else if (gt && coco_find_image(gt, a->image_id) >= 0) {
    const CocoImage *image = &gt->images[coco_find_image(gt, a->image_id)];
    result->has_segm = coco_ann_rle(&r->coco, a, image->h, image->w, &result->rle);
  }
  const char *lack = isnan(result->score)                     ? "score"
                     : !result->has_bbox && !result->has_segm ? "bbox or valid segmentation"
                                                              : NULL;
  return !lack ||
         err_set(err, "%s: detection %d, of image %lld, has no %s", r->coco.path, i + 1, (long long)a->image_id, lack);
}

bool coco_results_load(CocoResults *results, const char *path, const Coco *gt, Err *err) {
  *results = (CocoResults){0};
  CocoReader r;
  if (!coco_read_open(&r, path, err)) return false;
  Json *j = &r.json;
  if (gt) take_texts(&r, gt);
  const KnownTexts known = {r.image_ids.texts.n, r.category_ids.texts.n};
  bool found = true;
  if (json_peek(j) == JSON_OBJECT) {
    found = false;
    json_begin_object(j);
    for (const char *key; (key = json_key(j));) {
      if (strcmp(key, "detections") == 0) {
        found = true;
        read_detections(&r);
      } else {
        json_skip(j);
      }
    }
  } else {
    read_detections(&r);
  }
  bool ok = json_done(j) || err_set(err, "%s", j->err.msg);
  if (ok && !found) ok = err_set(err, "%s: expected an array of detections or an object with \"detections\"", path);
  if (ok) results->items = xcalloc((size_t)r.coco.num_anns, sizeof *results->items);
  for (int i = 0; ok && i < r.coco.num_anns; i++)
    ok = take_result(&results->items[results->n++], &r, i, gt, known, err);
  results->runs = r.coco.runs;
  r.coco.runs = NULL; // moved
  if (!ok) coco_results_free(results);
  coco_free(&r.coco);
  coco_read_close(&r);
  return ok;
}

void coco_results_free(CocoResults *results) {
  for (int i = 0; i < results->n; i++)
    if (!results->items[i].shares_runs) rle_free(&results->items[i].rle);
  free(results->items);
  free(results->runs);
  *results = (CocoResults){0};
}

static void write_number(FILE *f, double value) {
  char text[NUMBER_TEXT];
  fputs(number_text(value, text), f);
}

// The backslash is the only character of COCO's run-length strings that JSON escapes.
static void write_counts(FILE *f, const Rle *mask) {
  char *counts = rle_to_string(mask), *from = counts;
  for (char *slash; (slash = strchr(from, '\\')); from = slash + 1) {
    fwrite(from, 1, (size_t)(slash - from), f);
    fputs("\\\\", f);
  }
  fputs(from, f);
  free(counts);
}

static void write_polygons(FILE *f, const Rle *mask) {
  Contours c = polygons_of(mask);
  const double *xy = c.xy;
  fputs(",\"polygons\":[", f);
  for (int i = 0; i < c.parts; i++) {
    fputs(i ? ",[" : "[", f);
    for (int k = 0; k < 2 * c.points[i]; k++) fprintf(f, k ? ",%.0f" : "%.0f", *xy++); // whole pixels
    fputc(']', f);
  }
  fputc(']', f);
  contours_free(&c);
}

void coco_result_write(FILE *f, const CocoResult *r, bool polygons) {
  fprintf(f, "\"category_id\":%lld", (long long)r->category_id);
  if (r->has_bbox)
    for (int k = 0; k < 4; k++) {
      fputs(k == 0 ? ",\"bbox\":[" : ",", f);
      write_number(f, r->bbox[k]);
    }
  fputs(r->has_bbox ? "],\"score\":" : ",\"score\":", f);
  write_number(f, r->score);
  if (r->has_segm) {
    fprintf(f, ",\"segmentation\":{\"size\":[%d,%d],\"counts\":\"", r->rle.h, r->rle.w);
    write_counts(f, &r->rle);
    fputs("\"}", f);
  }
  if (r->has_segm && polygons) write_polygons(f, &r->rle);
}

static bool is_finite(const CocoResult *r) {
  bool ok = isfinite(r->score);
  for (int k = 0; k < 4; k++) ok &= !r->has_bbox || isfinite(r->bbox[k]);
  return ok;
}

bool coco_results_finite(const CocoResult *results, int n, const char *path, int64_t before, Err *err) {
  for (int i = 0; i < n; i++)
    if (!is_finite(&results[i]))
      return err_set(err, "%s: detection %lld has a bbox or score that is not finite", path, (long long)before + i + 1);
  return true;
}

bool coco_writer_open(CocoWriter *w, const char *path, Err *err) {
  *w = (CocoWriter){0};
  return growing_open(&w->grown, path, "[", "\n]\n", err);
}

bool coco_writer_add(CocoWriter *w, const CocoResult *results, int n, Err *err) {
  if (!coco_results_finite(results, n, w->grown.file.path, w->n, err)) return false;
  if (n == 0) return true;
  char *text = NULL;
  size_t size;
  Record names = {0};
  FILE *f = text_open(&text, &size);
  for (int i = 0; i < n; i++) {
    fputs(w->n + i == 0 ? "\n" : ",\n", f);
    record_begin(&names);
    record_int(&names, "image_id", results[i].image_id);
    if (w->file_name) record_str(&names, "file_name", w->file_name);
    if (w->classes) record_str(&names, "category", result_class_name(w->classes, results[i].category_id));
    fprintf(f, "%s,", names.text);
    coco_result_write(f, &results[i], w->polygons);
    fputc('}', f);
  }
  text_close(f);
  record_free(&names);
  const bool ok = growing_add(&w->grown, text, size, err);
  free(text);
  if (ok) w->n += n;
  return ok;
}

bool coco_writer_commit(CocoWriter *w, Err *err) { return growing_commit(&w->grown, err); }
void coco_writer_keep(CocoWriter *w) { growing_keep(&w->grown); }
void coco_writer_abort(CocoWriter *w) { growing_abort(&w->grown); }

bool coco_results_save(const CocoResults *results, const char *path, Err *err) {
  CocoWriter w;
  if (!coco_writer_open(&w, path, err)) return false;
  if (coco_writer_add(&w, results->items, results->n, err)) return coco_writer_commit(&w, err);
  coco_writer_abort(&w);
  return false;
}
