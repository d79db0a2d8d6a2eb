// What a reader of an annotation tool's format fills, and what is written from it as COCO. Coordinates are pixels of
// the picture as its tool shows it, upright by its EXIF orientation unless the annotations give the stored size;
// (0, 0) is the corner of the first pixel.
#pragma once
#include <stdint.h>
#include "base/text_table.h"
#include "data/coco/rle.h"
#include "data/import/tree.h"

// Of a number in a file, which may be any.
static inline int import_int(double v) { return (int)MAX(-1e9, MIN(v, 1e9)); }

typedef struct ImportObject {
  int category;   // of ImportSet.categories
  int source;     // ImportSet.files when it was added: objects of one annotation file have the same
  char *group;    // parts with the same text, and category, are one object; NULL: none. Owned
  bool has_box;   // a box without a mask
  double box[4];  // x1 y1 x2 y2
  int parts;      // polygons: part p has points[p] points
  int *points;    // [parts]
  double *xy;     // x, y pairs of all parts, one after the other
  size_t numbers; // in xy
  Rle mask;       // united with the polygons; runs NULL: none. Owned
  double bbox[4]; // set by import_settle: x y w h
  uint64_t area;  // likewise: pixels
} ImportObject;

typedef struct ImportImage {
  int file;       // of the tree; -1: it is in `bytes`
  char *name;     // relative path, or for embedded ones a name
  char *picture;  // what it is called when it is written; set by import_name_pictures. Owned
  uint8_t *bytes; // owned
  size_t size;
  const char *split; // a text of ImportSet.splits; NULL: it is left out
  int h, w;          // as the coordinates have them
  int stored_h, stored_w, orientation;
  bool upright; // the coordinates are
  bool tiff;    // to be written as PNG
  ImportObject *objects;
  int n;
  size_t cap;
} ImportImage;

// Something that happened to files or objects, with how often.
typedef struct ImportCount {
  char *what;
  bool dropped; // what the result lacks
  int64_t n;
  char *first; // where it happened first; NULL: nothing tells
} ImportCount;

extern const char *const import_values[]; // "auto", "instances", "classes": ImportValues
typedef enum ImportValues { IMPORT_AUTO, IMPORT_INSTANCES, IMPORT_CLASSES } ImportValues;

typedef struct ImportOptions {
  const char *class_name; // of objects that have no class; NULL: the format's own way
  const char *attribute;  // that holds the class; NULL: found
  int values;             // of label images: ImportValues
  bool strict;            // a file or object that is malformed ends the program
} ImportOptions;

typedef struct ImportSet {
  ImportOptions options;
  Tree *tree;
  TextTable categories, splits;
  bool ordered; // the format lists its categories: all are kept, in that order; else those with objects, by name
  ImportImage *images;
  int n;
  size_t cap;
  ImportCount *counts;
  int num_counts;
  size_t counts_cap;
  int files;     // annotation files that were read
  char *refused; // why nothing may be written; NULL: nothing is wrong. Owned
} ImportSet;

// The image of a picture of the tree, which several annotation files may describe. split: "train", …; NULL: as the
// picture's folders say, or train. Returns its index, or -1 where the picture cannot be read, which is said.
int import_image(ImportSet *s, int file, const char *split);
// The same for a picture whose bytes, which are taken over, are in the annotation file.
int import_embedded(ImportSet *s, const char *name, uint8_t *bytes, size_t size, const char *split);
// Takes back the image that was added last, if it has no objects: its annotations cannot be read, so that it would be
// taken for background.
void import_take_back(ImportSet *s, int image);
// The size that the annotations give: if it is the stored one, coordinates are not upright; if it is neither, that is
// counted. 0, 0: they give none.
void import_size(ImportSet *s, int image, int h, int w);
int import_category(ImportSet *s, const char *name);
// A new object, or the one of that group; valid until the next. group: NULL: it has none.
ImportObject *import_object(ImportSet *s, int image, const char *category, const char *group);
void object_polygon(ImportObject *o, const double *xy, int points);
// Whether an object before it that comes from another annotation file is the same.
bool object_is_repeated(const ImportImage *im, int object);
void object_box(ImportObject *o, double x1, double y1, double x2, double y2);
void object_mask(ImportObject *o, Rle mask); // of the image's size; taken over
// Polygons of an ellipse, a rectangle turned about its centre or its first corner: radians, clockwise as seen.
void object_ellipse(ImportObject *o, double x, double y, double rx, double ry, double angle);
void object_rectangle(ImportObject *o, double x1, double y1, double x2, double y2, double angle, bool about_centre);
// A polygon with holes: polygon 0 of `parts` without the others, as pixels.
void object_polygon_with_holes(ImportObject *o, const double *xy, const int *points, int parts, int h, int w);

// Counts something dropped, "THING: reason", or noted; `where`, the file, line or image of the first.
void import_drop(ImportSet *s, const char *where, const char *fmt, ...) PRINTF_LIKE(3, 4);
// Drops what is malformed; refuses all where the options are strict.
void import_invalid(ImportSet *s, const char *where, const char *fmt, ...) PRINTF_LIKE(3, 4);
void import_note(ImportSet *s, const char *where, const char *fmt, ...) PRINTF_LIKE(3, 4);
void import_print_counts(const ImportSet *s);
// Nothing is to be written, for this reason; the first stays.
void import_refuse(ImportSet *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
// A file that cannot be used: says so on stderr, or refuses all where the options are strict.
void import_broken(ImportSet *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
// The whole of a file of the tree; NULL: import_broken. Caller frees.
char *import_read(ImportSet *s, int file, size_t *size);

// Ends reading: boxes, areas, empty objects, the order of categories.
void import_settle(ImportSet *s);
void import_free(ImportSet *s);

// Writes DIR/annotations/instances_SPLIT.json and the pictures into DIR/SPLIT/, as hard links where possible. The
// folder must not exist or be empty.
bool import_write(ImportSet *s, const char *dir, Err *err);
bool import_may_write(const char *dir, Err *err);
// Gives each image the name of its picture in its split's folder: the last part of the path where that is unique in the
// split, else the whole path, with a number if need be. stems: they differ without their endings, too.
void import_name_pictures(ImportSet *s, bool stems);
bool import_write_picture(ImportSet *s, ImportImage *im, const char *to, Err *err);
