// The formats that are imported: one row each.
#pragma once
#include "data/import/import.h"
#include "data/import/value.h"

typedef struct ImportFormat {
  const char *name;
  const char *about;      // what one of its files is called in messages
  int (*detect)(Tree *t); // annotation files, or pictures with masks, of this format; 0: there are none
  void (*read)(ImportSet *s);
} ImportFormat;

extern const ImportFormat *const import_formats[];   // the first that is found is taken; NULL at the end
const ImportFormat *import_format(const char *name); // NULL: there is none

extern const ImportFormat import_labelme, import_via, import_label_studio, import_supervisely, import_yolo, import_cvat,
    import_voc, import_dsb2018, import_label_images;

// Whether a folder without COCO's annotations has none, either, that an import converts; false with a message that says
// which, and how. as_classes: its folders may be classes, so that photographs in one that is called so are no masks.
bool import_is_done(const char *dir, bool as_classes, Err *err);
// Whether the first label image has so few values that it is no photograph.
bool label_images_are_plain(Tree *t);

// What a JSON file holds, by its members; looked at once.
typedef enum JsonKind {
  JSON_UNREAD,
  JSON_UNKNOWN,
  JSON_BROKEN, // no JSON, and what there is of it does not tell
  JSON_COCO,
  JSON_LABELME,
  JSON_VIA,
  JSON_LABEL_STUDIO,
  JSON_SUPERVISELY,
} JsonKind;
JsonKind json_kind(Tree *t, int file);
int json_kinds(Tree *t, JsonKind kind); // how many there are
// Reads each file of `kind`, whose value is v, and counts it. A file that is no JSON is broken.
void json_read_each(ImportSet *s, JsonKind kind, void (*read)(ImportSet *s, const TreeFile *f, JsonValue v));
