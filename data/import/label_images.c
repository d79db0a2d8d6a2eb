// Label images beside pictures or in a folder of their own: a value an object, as Cellpose and others write them, or a
// value or colour a class, whose pieces are the objects.
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/alloc.h"
#include "base/file.h"
#include "data/images/image.h"
#include "data/images/jpeg.h"
#include "data/import/class_names.h"
#include "data/import/formats.h"
#include "data/import/masks.h"
#include "data/import/samples_file.h"

const char *const import_values[] = {"auto", "instances", "classes", NULL};

// ---- which picture a label image is of ------------------------------------------------------------------------------

static const char *const mask_endings[] = {"_cp_masks",  "_masks",       "_mask", "_labels", "_label",
                                           "_instances", "_gt",          "_seg",  "-masks",  "-mask",
                                           "_labelIds",  "_instanceIds", "_L"};
static const char *const picture_endings[] = {"", "_img", "_image", "_raw", "_rgb", "_leftImg8bit"};
// Words in folders' names.
static const char *const mask_words[] = {"mask",        "masks",         "label",      "labels",
                                         "annotation",  "instances",     "gt",         "annotations",
                                         "groundtruth", "segmentation",  "trainannot", "valannot",
                                         "testannot",   "segmentations", "labelstr",   "segmentationclass"};
static const char *const picture_words[] = {"image", "images",   "img",        "imgs",
                                            "raw",   "pictures", "jpegimages", "imagestr"};

static bool has_word(const char *part, size_t length, const char *const *words, int n) {
  for (size_t at = 0; at < length;) {
    size_t m = 0;
    while (at + m < length && isalpha((unsigned char)part[at + m])) m++;
    for (int i = 0; m > 0 && i < n; i++)
      if (strlen(words[i]) == m && !strncasecmp(part + at, words[i], m)) return true;
    at += MAX(m, 1);
  }
  return false;
}

// Of the folders around a file, the last whose name tells decides.
static bool has_mask_folder(const char *path) {
  bool is = false;
  for (const char *p = path, *slash; (slash = strchr(p, '/')); p = slash + 1) {
    const size_t n = (size_t)(slash - p);
    if (has_word(p, n, mask_words, COUNT(mask_words)))
      is = true;
    else if (has_word(p, n, picture_words, COUNT(picture_words)))
      is = false;
  }
  return is;
}

// The stem without a mask's ending, malloc'ed; NULL: it has none.
static char *without_mask_ending(const char *stem) {
  for (int i = 0; i < COUNT(mask_endings); i++) {
    const size_t n = strlen(stem), m = strlen(mask_endings[i]);
    if (n > m && !strcmp(stem + n - m, mask_endings[i])) return xasprintf("%.*s", (int)(n - m), stem);
  }
  return NULL;
}

static bool is_mask_name(const char *path) {
  char *stem = path_stem(path), *base = without_mask_ending(stem);
  const bool is = base || has_mask_folder(path);
  free(stem);
  free(base);
  return is;
}

// How many folders of a path are among those of another.
static int common_folders(const char *path, const char *other) {
  int n = 0;
  for (const char *p = path, *slash; (slash = strchr(p, '/')); p = slash + 1)
    for (const char *q = other, *end; (end = strchr(q, '/')); q = end + 1)
      if (end - q == slash - p && !memcmp(p, q, (size_t)(end - q))) {
        n++;
        break;
      }
  return n;
}

// The picture with this stem whose folders are most like the mask's; -1: there is none, or several.
static int picture_with(const Tree *t, const char *stem, const TreeFile *mask) {
  int first, found = -1, most = -1;
  bool several = false;
  const int n = tree_with_stem(t, stem, &first);
  for (int i = first; i < first + n; i++) {
    const TreeFile *f = &t->file[t->by_key[i]];
    if (!f->picture || is_mask_name(f->path)) continue;
    const int common = common_folders(f->path, mask->path);
    several = common == most || (several && common < most);
    if (common > most) found = t->by_key[i];
    most = MAX(most, common);
  }
  return several ? -1 : found;
}

// The picture of a label image; -1: this is none.
static int picture_of(const Tree *t, int mask) {
  const TreeFile *f = &t->file[mask];
  if (!f->picture || !is_mask_name(f->path)) return -1;
  char *stem = path_stem(f->path), *base = without_mask_ending(stem);
  int found = -1;
  for (int pass = 0; found < 0 && pass < 2; pass++)
    for (int i = 0; found < 0 && i < COUNT(picture_endings); i++) {
      if (pass == 0 ? !base : !has_mask_folder(f->path)) continue;
      char *name = xasprintf("%s%s", pass == 0 ? base : stem, picture_endings[i]);
      found = picture_with(t, name, f);
      free(name);
    }
  free(stem);
  free(base);
  return found == mask ? -1 : found;
}

// ---- values ---------------------------------------------------------------------------------------------------------

enum { MOST_COLOURS = 256 }; // of a label image: more are no classes

static int compare(const void *a, const void *b) {
  const uint32_t p = *(const uint32_t *)a, q = *(const uint32_t *)b;
  return (p > q) - (p < q);
}

// How many values there are; sorts them.
static size_t count_values(uint32_t *v, size_t n) {
  size_t different = n > 0;
  qsort(v, n, sizeof *v, compare);
  for (size_t i = 1; i < n; i++) different += v[i] != v[i - 1];
  return different;
}

// Counts the colours of a mask that was stored with loss, for the message.
static void refuse_jpeg(ImportSet *s, const TreeFile *f) {
  Image im;
  Err err;
  if (!image_load(&im, f->full, &err)) {
    import_broken(s, "%s", err.msg);
    return;
  }
  const size_t pixels = (size_t)im.h * (size_t)im.w;
  uint32_t *v = xmalloc(pixels * sizeof *v);
  for (size_t i = 0; i < pixels; i++) v[i] = (uint32_t)im.rgb[3 * i] << 16 | im.rgb[3 * i + 1] << 8 | im.rgb[3 * i + 2];
  import_broken(s, "%s: a mask stored as JPEG, which changes colours: it has %zu; save masks as PNG", f->path,
                count_values(v, pixels));
  image_free(&im);
  free(v);
}

typedef struct LabelSet {
  ClassNames names;
  bool classes; // a value is a class, not an object
} LabelSet;

static bool is_jpeg(const TreeFile *f) {
  uint8_t start[4] = {0};
  FILE *file = fopen(f->full, "rb");
  const size_t n = file ? fread(start, 1, sizeof start, file) : 0;
  if (file) fclose(file);
  return jpeg_is(start, n);
}

// The values of a label image; NULL: it cannot be used, which is said.
static uint32_t *load_values(ImportSet *s, const TreeFile *f, Samples *samples, bool *colours, bool says) {
  Err err;
  if (!samples_load(samples, f->full, &err)) {
    if (says) import_broken(s, "%s", err.msg);
    return NULL;
  }
  return values_of_samples(samples, colours);
}

// Pascal VOC's classes, of a set without SegmentationObject/: 255 is nobody's border there.
static bool is_voc_class(const TreeFile *f) { return strstr(f->path, "SegmentationClass/") != NULL; }

// A value is a class where there are colours, names of values, or in all files no more than one value, of few bits.
static bool are_classes(ImportSet *s, const ClassNames *names) {
  if (s->options.values) return s->options.values == IMPORT_CLASSES;
  if (names->n > 0) return true;
  uint32_t only = 0;
  bool one = true;
  for (int i = 0; i < s->tree->n; i++) {
    const TreeFile *f = &s->tree->file[i];
    bool colours = false;
    Samples samples;
    if (picture_of(s->tree, i) < 0 || is_jpeg(f)) continue;
    if (is_voc_class(f)) return true;
    uint32_t *v = load_values(s, f, &samples, &colours, false);
    if (!v) continue;
    one &= samples.bits <= 8 && has_mask_folder(f->path);
    for (size_t k = 0; one && k < (size_t)samples.h * (size_t)samples.w; k++) {
      if (v[k] == 0) continue;
      one = only == 0 || v[k] == only;
      only = v[k];
    }
    samples_free(&samples);
    free(v);
    if (colours) return true;
    if (!one) return false;
  }
  return one && only > 0;
}

// The name of a class: its own, or its number or colour.
static char *name_class(ImportSet *s, const LabelSet *l, const Samples *samples, uint32_t value, bool colours) {
  const uint8_t *rgb = samples->palette[value & 255];
  const int64_t colour = colours ? value : samples->indexed ? (int64_t)rgb[0] << 16 | rgb[1] << 8 | rgb[2] : -1;
  const ClassName *name = colour >= 0 ? class_of_colour(&l->names, colour) : NULL;
  if (!name && !colours) name = class_of_value(&l->names, (int)value);
  if (name) return name->background ? NULL : xstrdup(name->name);
  if (s->options.class_name) return xstrdup(s->options.class_name);
  if (colours) return xasprintf("#%06X", (unsigned)value);
  return xasprintf("class %u", (unsigned)value);
}

// False: it cannot be used, which is said.
static bool take_mask(ImportSet *s, const TreeFile *f, int image, const LabelSet *l) {
  const ImportImage *im = &s->images[image];
  Samples samples;
  bool colours;
  uint32_t *v = load_values(s, f, &samples, &colours, true), *class_of = NULL;
  ValueMask *masks = NULL;
  if (!v) return false;
  const size_t pixels = (size_t)samples.h * (size_t)samples.w;
  bool ok = samples.h == im->h && samples.w == im->w;
  if (!ok)
    import_broken(s, "%s: a mask of %dx%d pixels for an image of %dx%d", f->path, samples.w, samples.h, im->w, im->h);
  if (ok && colours) {
    uint32_t *copy = xmalloc(pixels * sizeof *copy);
    memcpy(copy, v, pixels * sizeof *copy);
    const size_t all = count_values(copy, pixels);
    free(copy);
    ok = all <= MOST_COLOURS;
    if (!ok)
      import_broken(s, "%s: a mask of %zu colours, which are no classes: it was stored with loss, or smoothed", f->path,
                    all);
  }
  const uint32_t border = colours ? (uint32_t)voc_colour(255) : 255;
  for (size_t i = 0; ok && is_voc_class(f) && i < pixels; i++)
    if (v[i] == border) v[i] = 0;
  if (ok && l->classes) values_split(v, samples.h, samples.w, &class_of);
  const int n = ok ? masks_by_value(v, samples.h, samples.w, &masks) : 0;
  for (int i = 0; i < n; i++) {
    char *class = class_of ? name_class(s, l, &samples, class_of[masks[i].value], colours)
                           : xstrdup(s->options.class_name ? s->options.class_name : "object");
    if (class)
      object_mask(import_object(s, image, class, NULL), masks[i].mask);
    else
      rle_free(&masks[i].mask);
    free(class);
  }
  free(class_of);
  free(masks);
  free(v);
  samples_free(&samples);
  return ok;
}

static void read_label_images(ImportSet *s) {
  LabelSet l = {.names = class_names_read(s)};
  l.classes = are_classes(s, &l.names);
  if (l.classes) class_names_declare(s, &l.names);
  import_note(s, NULL, "%s",
              l.classes
                  ? "each pixel value is a class, and each piece of touching pixels an instance; for instance masks "
                    "give --values instances"
                  : "each pixel value is one instance; for semantic masks (pixel value = class) give --values classes");
  for (int i = 0; i < s->tree->n; i++) {
    const TreeFile *f = &s->tree->file[i];
    const int picture = picture_of(s->tree, i);
    if (picture < 0) continue;
    if (s->tree->file[picture].image >= 0) {
      import_drop(s, f->path, "mask: a second one of its image, as Cellpose writes PNG and TIFF");
      continue;
    }
    s->files++;
    if (is_jpeg(f)) {
      refuse_jpeg(s, f);
      continue;
    }
    const int image = import_image(s, picture, NULL);
    if (image < 0) continue;
    import_size(s, image, s->images[image].stored_h, s->images[image].stored_w);
    if (!take_mask(s, f, image, &l)) import_take_back(s, image);
  }
  const bool only = s->categories.n == 1 && l.names.n == 0;
  if (only && (!strcmp(*s->categories.text, "class 1") || !strcmp(*s->categories.text, "class 255"))) {
    text_table_free(&s->categories); // the usual values of what has no other
    import_category(s, "object");
  }
  for (int i = 0; i < s->tree->n; i++) {
    const TreeFile *f = &s->tree->file[i];
    if (f->picture && f->image < 0 && !is_mask_name(f->path)) import_drop(s, f->path, "image: it has no mask");
  }
  class_names_free(&l.names);
}

static int detect_label_images(Tree *t) {
  int n = 0;
  for (int i = 0; !t->only && i < t->n; i++) n += picture_of(t, i) >= 0;
  return n;
}

bool label_images_are_plain(Tree *t) {
  for (int i = 0; i < t->n; i++) {
    Samples samples;
    bool colours;
    if (picture_of(t, i) < 0) continue;
    if (path_ends(t->file[i].path, ".tif") || path_ends(t->file[i].path, ".tiff")) return true; // no photograph is one
    uint32_t *v = is_jpeg(&t->file[i]) ? NULL : load_values(NULL, &t->file[i], &samples, &colours, false);
    const bool plain = v && (!colours || count_values(v, (size_t)samples.h * (size_t)samples.w) <= MOST_COLOURS);
    if (v) samples_free(&samples);
    free(v);
    return plain;
  }
  return false;
}

const ImportFormat import_label_images = {"label-images", "label image", detect_label_images, read_label_images};
