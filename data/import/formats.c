#include "data/import/formats.h"
#include <stdlib.h>
#include <string.h>
#include "base/cli.h"
#include "base/command.h"
#include "base/file.h"

// Files that name each object come before masks that may have been made of them.
const ImportFormat *const import_formats[] = {
    &import_cvat, &import_label_studio, &import_via,     &import_labelme,      &import_supervisely,
    &import_yolo, &import_voc,          &import_dsb2018, &import_label_images, NULL};

const ImportFormat *import_format(const char *name) {
  for (int i = 0; import_formats[i]; i++)
    if (!strcmp(import_formats[i]->name, name)) return import_formats[i];
  return NULL;
}

static int number_of(const ImportFormat *f, Tree *t, bool as_classes) {
  return f != &import_label_images || !as_classes || label_images_are_plain(t) ? f->detect(t) : 0;
}

bool import_is_done(const char *dir, bool as_classes, Err *err) {
  Tree t;
  if (!path_is_dir(dir) || !tree_open(&t, dir, NULL, err)) return true; // what opens it tells
  const ImportFormat *found = NULL;
  int n = json_kinds(&t, JSON_COCO);
  for (int i = 0; n == 0 && import_formats[i]; i++) {
    n = number_of(import_formats[i], &t, as_classes);
    if (n > 0) found = import_formats[i];
  }
  char *word = cli_word(dir);
  if (found)
    err_set(err, "%s holds %d %s%s, which train cannot read; convert %s first: %s %s --to OUT", dir, n, found->about,
            n == 1 ? "" : "s", n == 1 ? "it" : "them", command_name("import"), word);
  free(word);
  tree_free(&t);
  return !found;
}

// ---- JSON -----------------------------------------------------------------------------------------------------------

static bool has(JsonValue object, const char *key) { return value_of(object, key).begin; }

static JsonKind kind_of(JsonValue v) {
  if (value_type(v) == JSON_ARRAY) {
    JsonKind kind = JSON_UNKNOWN;
    ValueWalk w = value_walk(v);
    if (value_next(&w)) {
      kind = kind_of(w.value) == JSON_LABEL_STUDIO ? JSON_LABEL_STUDIO : JSON_UNKNOWN;
      value_stop(&w);
    }
    return kind;
  }
  if (value_type(v) != JSON_OBJECT) return JSON_UNKNOWN;
  if (has(v, "shapes")) return JSON_LABELME;
  if (has(v, "_via_img_metadata")) return JSON_VIA;
  if (has(v, "data") && (has(v, "annotations") || has(v, "completions") || has(v, "predictions")))
    return JSON_LABEL_STUDIO;
  if (has(v, "result") && has(v, "task")) return JSON_LABEL_STUDIO;             // an annotation as storage gets it
  if (has(v, "annotation_id") && has(v, "lead_time")) return JSON_LABEL_STUDIO; // JSON-MIN
  if (has(v, "images") && has(v, "annotations")) return JSON_COCO;
  if (has(v, "objects") && has(v, "size")) return JSON_SUPERVISELY;
  ValueWalk w = value_walk(v);
  bool via = false;
  if (value_next(&w)) {
    via = has(w.value, "filename") && has(w.value, "regions");
    value_stop(&w);
  }
  return via ? JSON_VIA : JSON_UNKNOWN;
}

JsonKind json_kind(Tree *t, int file) {
  TreeFile *f = &t->file[file];
  if (f->kind != JSON_UNREAD || !path_ends(f->path, ".json") || (t->only && strcmp(f->path, t->only))) return f->kind;
  size_t size = 0;
  bool latin1;
  char *text = text_read(f->full, &size, &latin1, NULL);
  JsonValue v;
  const bool whole = text && value_read(&v, f->path, text, size, NULL);
  if (text && !whole) { // a part may tell
    const size_t mark = size >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3) ? 3 : 0;
    v = (JsonValue){text + mark, text + size};
  }
  f->kind = text ? kind_of(v) : JSON_UNKNOWN;
  if (f->kind == JSON_UNKNOWN && !whole) f->kind = JSON_BROKEN;
  free(text);
  return f->kind;
}

int json_kinds(Tree *t, JsonKind kind) {
  int n = 0;
  for (int i = 0; i < t->n; i++) n += json_kind(t, i) == kind;
  return n;
}

void json_read_each(ImportSet *s, JsonKind kind, void (*read)(ImportSet *s, const TreeFile *f, JsonValue v)) {
  for (int i = 0; i < s->tree->n; i++) {
    const JsonKind own = json_kind(s->tree, i);
    s->files += own == kind;
    if (own != kind && own != JSON_BROKEN) continue;
    const TreeFile *f = &s->tree->file[i];
    size_t size;
    char *text = import_read(s, i, &size);
    JsonValue v;
    Err err;
    if (text && !value_read(&v, f->path, text, size, &err))
      import_broken(s, "%s", err.msg);
    else if (text)
      read(s, f, v);
    free(text);
  }
}
