// Pascal VOC with instance masks: SegmentationObject/NAME.png has a value, or a colour, an object, SegmentationClass/
// the class under it. http://host.robots.ox.ac.uk/pascal/VOC/voc2012/htmldoc/ ; labelme2voc and CVAT write it.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "data/import/class_names.h"
#include "data/import/formats.h"
#include "data/import/masks.h"
#include "data/import/samples_file.h"

static const char *const voc_names[] = {
    "aeroplane",   "bicycle", "bird",  "boat",      "bottle", "bus",         "car",   "cat",  "chair", "cow",
    "diningtable", "dog",     "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"};
enum { BORDER = 255 }; // nobody's

// The path with one folder in place of SegmentationObject, malloc'ed; NULL: it has no such folder.
static char *beside(const char *path, const char *folder, bool ending) {
  static const char own[] = "SegmentationObject/";
  const char *p = strstr(path, own), *point = strrchr(path, '.');
  if (!p || (p > path && p[-1] != '/') || !point || point < p) return NULL;
  const char *name = p + strlen(own);
  return xasprintf("%.*s%s/%.*s", (int)(p - path), path, folder, (int)((ending ? path + strlen(path) : point) - name),
                   name);
}

static bool is_object_mask(const Tree *t, int i) {
  char *path = t->file[i].picture ? beside(t->file[i].path, "", true) : NULL;
  free(path);
  return path != NULL;
}

// ---- splits ---------------------------------------------------------------------------------------------------------

typedef struct Lists {
  TextTable stems;
  const char **split; // [stems.n]
  size_t cap;
} Lists;

static void read_list(ImportSet *s, Lists *l, int file) {
  const TreeFile *f = &s->tree->file[file];
  char *stem = path_stem(f->path);
  const char *split = split_of(path_name(f->path), true);
  if (!split && !strcmp(stem, "default")) split = "train";
  size_t size;
  char *text = split ? import_read(s, file, &size) : NULL;
  for (char *p = text; p && *p;) {
    const size_t n = strcspn(p, "\r\n"), name = strcspn(p, " \t\r\n"); // what follows it is a number
    const bool more = p[n];
    p[MIN(n, name)] = '\0';
    if (*p) {
      const int at = text_table_add(&l->stems, path_name(p));
      array_reserve((void **)&l->split, &l->cap, (size_t)l->stems.n, sizeof *l->split);
      l->split[at] = split;
    }
    p += n + more;
  }
  free(text);
  free(stem);
}

// ---- masks ----------------------------------------------------------------------------------------------------------

typedef struct LabelImage {
  Samples samples;
  uint32_t *v; // indices or colours
  bool colours;
} LabelImage;

static bool load(LabelImage *l, const char *path, Err *err) {
  if (!samples_load(&l->samples, path, err)) return false;
  l->v = values_of_samples(&l->samples, &l->colours);
  return true;
}

static void unload(LabelImage *l) {
  samples_free(&l->samples);
  free(l->v);
}

static bool is_nothing(const LabelImage *l, uint32_t value) {
  return value == 0 || value == (l->colours ? (uint32_t)voc_colour(BORDER) : BORDER);
}

// The class of most of an object's pixels; NULL: none.
static const char *class_under(const LabelImage *classes, const Rle *mask, const ClassNames *names) {
  uint32_t value[256], count[256] = {0};
  int n = 0, best = -1;
  size_t at = 0;
  for (int r = 0; r < mask->n; at += mask->runs[r++])
    for (size_t i = at; r % 2 && i < at + mask->runs[r]; i++) {
      const uint32_t v = classes->v[i % (size_t)mask->h * (size_t)mask->w + i / (size_t)mask->h];
      int k = 0;
      while (k < n && value[k] != v) k++;
      if (k == 256) continue;
      if (k == n) value[n++] = v;
      count[k]++;
    }
  for (int k = 0; k < n; k++)
    if (!is_nothing(classes, value[k]) && (best < 0 || count[k] > count[best])) best = k;
  if (best < 0) return NULL;
  int index = (int)value[best];
  int64_t colour = index;
  const uint8_t *rgb = classes->samples.palette[index & 255];
  if (classes->colours) {
    for (index = 1; index < BORDER && voc_colour(index) != colour;) index++;
  } else {
    colour = classes->samples.indexed ? (int64_t)rgb[0] << 16 | rgb[1] << 8 | rgb[2] : voc_colour(index);
  }
  const ClassName *name = class_of_colour(names, colour);
  if (!name) name = class_of_value(names, index);
  if (name) return name->background ? NULL : name->name;
  return names->n == 0 && index <= COUNT(voc_names) ? voc_names[index - 1] : NULL;
}

static void take_objects(ImportSet *s, const TreeFile *f, int image, const LabelImage *objects,
                         const LabelImage *classes, const ClassNames *names) {
  ValueMask *masks;
  const int n = masks_by_value(objects->v, objects->samples.h, objects->samples.w, &masks);
  for (int i = 0; i < n; i++) {
    if (is_nothing(objects, masks[i].value)) {
      rle_free(&masks[i].mask);
      continue;
    }
    const char *class = class_under(classes, &masks[i].mask, names);
    if (!class) class = s->options.class_name;
    if (class) {
      object_mask(import_object(s, image, class, NULL), masks[i].mask);
    } else {
      import_invalid(s, f->path, "object: it has no class; --class NAME gives it one");
      rle_free(&masks[i].mask);
    }
  }
  free(masks);
}

static void read_picture(ImportSet *s, int i, const Lists *lists, const ClassNames *names) {
  const TreeFile *f = &s->tree->file[i];
  char *stem = path_stem(f->path), *class_path = beside(f->path, "SegmentationClass", true),
       *picture = beside(f->path, "JPEGImages", false);
  const int listed = text_table_find(&lists->stems, stem), class_file = tree_find(s->tree, class_path);
  int file, image = -1;
  LabelImage objects = {0}, classes = {0};
  Err err;
  const TreeMatch match = tree_stem(s->tree, picture, "", &file);
  if (lists->stems.n > 0 && listed < 0) {
    import_drop(s, f->path, "image: in no list of ImageSets/Segmentation");
  } else if ((match != TREE_EXACT && match != TREE_NAME) || strstr(s->tree->file[file].path, "Segmentation")) {
    import_broken(s, "%s: its image %s is not found; name its folder with --images", f->path, picture);
  } else if (class_file < 0) {
    import_broken(s, "%s: %s is missing, which has the classes of its objects", f->path, class_path);
  } else if (!load(&objects, f->full, &err) || !load(&classes, s->tree->file[class_file].full, &err)) {
    import_broken(s, "%s", err.msg);
  } else if (objects.samples.h != classes.samples.h || objects.samples.w != classes.samples.w) {
    import_broken(s, "%s: its size is another than that of %s", f->path, class_path);
  } else {
    image = import_image(s, file, listed >= 0 ? lists->split[listed] : NULL);
  }
  const ImportImage *im = image >= 0 ? &s->images[image] : NULL;
  if (im) import_size(s, image, im->stored_h, im->stored_w);
  if (im && objects.samples.h == im->h && objects.samples.w == im->w) {
    take_objects(s, f, image, &objects, &classes, names);
  } else if (im) {
    import_broken(s, "%s: a mask of %dx%d pixels for an image of %dx%d", f->path, objects.samples.w, objects.samples.h,
                  im->w, im->h);
    import_take_back(s, image);
  }
  unload(&objects);
  unload(&classes);
  free(stem);
  free(class_path);
  free(picture);
}

static void read_voc(ImportSet *s) {
  ClassNames names = class_names_read(s);
  Lists lists = {0};
  for (int i = 0; i < s->tree->n; i++) {
    const TreeFile *f = &s->tree->file[i];
    if (strstr(f->path, "ImageSets/Segmentation/") && path_ends(f->path, ".txt")) read_list(s, &lists, i);
  }
  class_names_declare(s, &names);
  if (names.n == 0)
    import_note(s, NULL, "no labels.txt, class_names.txt or labelmap.txt: classes are Pascal VOC's own");
  for (int i = 0; i < s->tree->n; i++)
    if (is_object_mask(s->tree, i)) read_picture(s, i, &lists, &names);
  text_table_free(&lists.stems);
  free(lists.split);
  class_names_free(&names);
}

static int detect_voc(Tree *t) {
  int n = 0;
  for (int i = 0; !t->only && i < t->n; i++) n += is_object_mask(t, i);
  return n;
}

const ImportFormat import_voc = {"voc", "Pascal VOC instance mask", detect_voc, read_voc};
