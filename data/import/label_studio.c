// Label Studio's own JSON: a list of tasks, each with a picture and its annotations, in percent of the picture's size.
// https://labelstud.io/guide/export#Label-Studio-JSON-format-of-annotated-tasks
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "data/images/samples.h"
#include "data/import/base64.h"
#include "data/import/brush.h"
#include "data/import/formats.h"
#include "data/import/masks.h"
#include "data/import/samples_file.h"

// ---- pictures -------------------------------------------------------------------------------------------------------

// The name without what an upload puts before it: eight hexadecimal digits and a hyphen.
static const char *without_prefix(const char *name) {
  const char *last = path_name(name);
  for (int i = 0; i < 8; i++)
    if (!isxdigit((unsigned char)last[i])) return NULL;
  return last[8] == '-' && last[9] ? last + 9 : NULL;
}

static TreeMatch find_name(const Tree *t, JsonValue v, const char *folder, int *file) {
  char *name = value_text(v);
  TreeMatch match = name && *name ? tree_picture(t, name, folder, file) : TREE_MISSING;
  if (!match && name && without_prefix(name)) match = tree_picture(t, without_prefix(name), folder, file);
  free(name);
  return match;
}

// The picture of a task: what `data` names, under whatever key, or file_upload.
static TreeMatch find_picture(const Tree *t, JsonValue task, const char *folder, int *file) {
  const JsonValue data = value_of(task, "data");
  TreeMatch match = find_name(t, value_of(data, "image"), folder, file);
  for (ValueWalk w = value_walk(data.begin ? data : task); value_next(&w);)
    if (!match) match = find_name(t, w.value, folder, file);
  return match ? match : find_name(t, value_of(task, "file_upload"), folder, file);
}

// ---- results --------------------------------------------------------------------------------------------------------

// The first label, from whichever member has it: polygonlabels, labels, …; malloc'ed, NULL: none.
static char *label_of(JsonValue value) {
  char *label = NULL;
  for (ValueWalk w = value_walk(value); value_next(&w);) {
    if (label || !path_ends(w.key, "labels")) continue;
    for (ValueWalk l = value_walk(w.value); value_next(&l);)
      if (!label) label = value_text(l.value);
  }
  return label;
}

static bool has_shape(JsonValue value) {
  return value_of(value, "points").begin || value_of(value, "rle").begin || value_of(value, "radiusX").begin ||
         value_of(value, "imageDataURL").begin || (value_of(value, "width").begin && value_of(value, "height").begin);
}

// Numbers under these keys. False: one is missing.
static bool read_numbers(JsonValue v, const char *const *keys, double *numbers, int n) {
  bool ok = true;
  for (int i = 0; i < n; i++) ok &= isfinite(numbers[i] = value_number(value_of(v, keys[i]), NAN)) != 0;
  return ok;
}

static bool take_brush(const ImportImage *im, JsonValue result, JsonValue rle, Rle *mask) {
  const int n = value_numbers(rle, NULL, 0);
  const double own_h = value_number(value_of(result, "original_height"), im->h),
               own_w = value_number(value_of(result, "original_width"), im->w);
  if (n < 8 || own_h != im->h || own_w != im->w) return false;
  double *numbers = xcalloc((size_t)n, sizeof *numbers);
  uint8_t *code = xmalloc((size_t)n);
  const size_t pixels = (size_t)im->h * (size_t)im->w;
  uint8_t *rgba = xmalloc(4 * pixels);
  value_numbers(rle, numbers, n);
  for (int i = 0; i < n; i++) code[i] = (uint8_t)MAX(0, MIN(255, numbers[i]));
  const bool ok = brush_decode(rgba, 4 * pixels, code, (size_t)n);
  for (size_t i = 0; ok && i < pixels; i++) rgba[i] = rgba[4 * i + 3]; // alpha
  if (ok) *mask = mask_placed(rgba, im->h, im->w, 0, 0, im->h, im->w);
  free(numbers);
  free(code);
  free(rgba);
  return ok;
}

// A PNG of the picture's size, as a data URL.
static bool take_bitmap(const TreeFile *f, const ImportImage *im, JsonValue url, Rle *mask) {
  char *text = value_text(url);
  size_t size;
  uint8_t *bytes = text ? base64_decode(text, &size) : NULL;
  Samples samples;
  const bool ok = bytes && samples_decode(&samples, bytes, size, f->path, NULL);
  const bool same = ok && samples.h == im->h && samples.w == im->w;
  if (same) *mask = mask_of_samples(&samples, false, 0, 0, im->h, im->w);
  if (ok) samples_free(&samples);
  free(bytes);
  free(text);
  return same;
}

// value: of the result; in JSON-MIN they are one.
static void take_result(ImportSet *s, const TreeFile *f, int image, JsonValue result, JsonValue value,
                        const char *label) {
  static const char *const box[] = {"x", "y", "width", "height"}, *const round[] = {"x", "y", "radiusX", "radiusY"};
  const JsonValue points = value_of(value, "points"), rle = value_of(value, "rle"),
                  url = value_of(value, "imageDataURL");
  const double w = s->images[image].w / 100., h = s->images[image].h / 100.;
  const double turn = value_number(value_of(value, "rotation"), 0), angle = isfinite(turn) ? turn * acos(-1) / 180 : 0;
  double v[4], *xy = NULL;
  Rle mask;
  if (points.begin) {
    const int n = value_points(points, &xy);
    for (int i = 0; i < n; i++) {
      xy[2 * i] *= w;
      xy[2 * i + 1] *= h;
    }
    if (n < 3)
      import_invalid(s, s->images[image].name, "polygon: fewer than 3 points");
    else
      object_polygon(import_object(s, image, label, NULL), xy, n);
    free(xy);
  } else if (rle.begin || url.begin) {
    if (rle.begin ? take_brush(&s->images[image], result, rle, &mask) : take_bitmap(f, &s->images[image], url, &mask))
      object_mask(import_object(s, image, label, NULL), mask);
    else
      import_invalid(s, s->images[image].name,
                     "brush mask: it cannot be decoded, or its size is not that of its image");
  } else if (value_of(value, "radiusX").begin && read_numbers(value, round, v, 4)) {
    object_ellipse(import_object(s, image, label, NULL), v[0] * w, v[1] * h, v[2] * w, v[3] * h, angle);
  } else if (read_numbers(value, box, v, 4)) {
    ImportObject *o = import_object(s, image, label, NULL);
    if (angle == 0)
      object_box(o, v[0] * w, v[1] * h, (v[0] + v[2]) * w, (v[1] + v[3]) * h);
    else
      object_rectangle(o, v[0] * w, v[1] * h, (v[0] + v[2]) * w, (v[1] + v[3]) * h, angle, false);
  } else {
    import_invalid(s, s->images[image].name, "shape: its numbers are missing");
  }
}

// The label that another result with the same id gives: a shape and its labels may be two results.
static char *label_elsewhere(JsonValue results, JsonValue id) {
  char *own = value_text(id), *label = NULL;
  for (ValueWalk w = value_walk(results); own && value_next(&w);)
    if (!label && value_is(value_of(w.value, "id"), own)) label = label_of(value_of(w.value, "value"));
  free(own);
  return label;
}

static void take_results(ImportSet *s, const TreeFile *f, int image, JsonValue results) {
  TextTable seen = {0}; // ids of results with a shape
  for (ValueWalk w = value_walk(results); value_next(&w);) {
    const JsonValue value = value_of(w.value, "value");
    char *name = value_text(value_of(w.value, "type")), *id = value_text(value_of(w.value, "id"));
    const bool repeated = id && text_table_find(&seen, id) >= 0;
    if (id && has_shape(value)) text_table_add(&seen, id);
    if (name && (!strncmp(name, "keypoint", 8) || !strncmp(name, "vector", 6))) {
      import_drop(s, s->images[image].name, "shape: no area (%s)", !strncmp(name, "key", 3) ? "key point" : "vector");
    } else if (has_shape(value) && !repeated) {
      char *label = label_of(value);
      if (!label) label = label_elsewhere(results, value_of(w.value, "id"));
      if (!label && s->options.class_name) label = xstrdup(s->options.class_name);
      if (label)
        take_result(s, f, image, w.value, value, label);
      else
        import_invalid(s, s->images[image].name, "shape: it has no label");
      free(label);
    }
    free(name);
    free(id);
  }
  text_table_free(&seen);
}

// The members of a task of JSON-MIN that are lists of shapes.
static void take_members(ImportSet *s, const TreeFile *f, int image, JsonValue task) {
  for (ValueWalk w = value_walk(task); value_next(&w);) {
    if (value_type(w.value) != JSON_ARRAY) continue;
    for (ValueWalk r = value_walk(w.value); value_next(&r);) {
      char *label = has_shape(r.value) ? label_of(r.value) : NULL;
      if (label)
        take_result(s, f, image, r.value, r.value, label);
      else if (has_shape(r.value))
        import_invalid(s, s->images[image].name, "shape: it has no label");
      free(label);
    }
  }
}

// ---- tasks ----------------------------------------------------------------------------------------------------------

static bool is_cancelled(JsonValue annotation) {
  return value_truth(value_of(annotation, "was_cancelled")) || value_truth(value_of(annotation, "skipped"));
}

// The annotation that counts: the ground truth, or else the first that was not cancelled.
static JsonValue choose(ImportSet *s, const TreeFile *f, JsonValue annotations) {
  JsonValue taken = {0};
  bool truth = false;
  for (ValueWalk w = value_walk(annotations); value_next(&w);) {
    if (is_cancelled(w.value)) {
      import_drop(s, f->path, "annotation: cancelled");
      continue;
    }
    if (taken.begin)
      import_drop(s, f->path, "annotation: a second one of its task; the first, or the ground truth, counts");
    const bool is = value_truth(value_of(w.value, "ground_truth"));
    if (!taken.begin || (is && !truth)) taken = w.value;
    truth |= is;
  }
  return taken;
}

// An annotation may be a file of its own, with its task inside.
static void read_task(ImportSet *s, const TreeFile *f, JsonValue of) {
  const JsonValue within = value_of(of, "task"), task = value_type(within) == JSON_OBJECT ? within : of;
  char *folder = path_folder(f->path), *name = value_text(value_of(value_of(task, "data"), "image"));
  const JsonValue annotations = value_of(task, "annotations"), older = value_of(task, "completions");
  const JsonValue all = annotations.begin ? annotations : older;
  int file, image = -1;
  const TreeMatch match = find_picture(s->tree, task, folder, &file);
  if (match == TREE_EXACT || match == TREE_NAME)
    image = import_image(s, file, split_of(f->path, true));
  else
    import_broken(s, "%s: its image %s %s; put it in this folder, or name its folder with --images", f->path,
                  name ? name : "", match == TREE_SEVERAL ? "may be one of several files" : "is not found");
  for (ValueWalk w = value_walk(value_of(task, "predictions")); image >= 0 && value_next(&w);)
    if (value_type(w.value) == JSON_OBJECT) import_drop(s, f->path, "prediction: made by a model");
  const bool alone = task.begin != of.begin;
  if (alone && is_cancelled(of)) import_drop(s, f->path, "annotation: cancelled");
  const JsonValue results = value_of(!alone ? choose(s, f, all) : is_cancelled(of) ? (JsonValue){0} : of, "result");
  if (image >= 0 && value_of(task, "data").begin) take_results(s, f, image, results);
  if (image >= 0 && !value_of(task, "data").begin) take_members(s, f, image, task);
  free(folder);
  free(name);
}

// A task, or a list of tasks.
static void read_file(ImportSet *s, const TreeFile *f, JsonValue v) {
  if (value_type(v) == JSON_OBJECT) {
    read_task(s, f, v);
    return;
  }
  for (ValueWalk w = value_walk(v); value_next(&w);) read_task(s, f, w.value);
}

static void read_label_studio(ImportSet *s) { json_read_each(s, JSON_LABEL_STUDIO, read_file); }

static int detect_label_studio(Tree *t) { return json_kinds(t, JSON_LABEL_STUDIO); }

const ImportFormat import_label_studio = {"label-studio", "Label Studio JSON file", detect_label_studio,
                                          read_label_studio};
