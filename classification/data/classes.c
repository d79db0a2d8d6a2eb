#include "classification/data/classes.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/alloc.h"
#include "base/digest.h"
#include "base/output.h"
#include "base/parallel.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "classification/data/class_folders.h"
#include "classification/data/class_objects.h"
#include "classification/data/idx.h"
#include "data/batches/dataset_holdout.h"
#include "data/images/shrink.h"

enum {
  FOLDER_SIZE = 224,
  KEEP_TIMES = 2
}; // default canvas side; a shrunk image keeps at least KEEP_TIMES the canvas's side

// Each image's label and key, parallel to the data set's own list of images.
typedef struct Listed {
  int *label;    // [coco.num_images]
  uint64_t *key; // [coco.num_images] of images in memory: equal for equal pixels; of files: 0
} Listed;

// ---- IDX ------------------------------------------------------------------------------------------------------------

static uint64_t hash_bytes(const void *p, size_t bytes) {
  uint64_t key = 0xcbf29ce484222325u;
  for (const uint8_t *at = p, *end = at + bytes; at < end; at++) key = (key ^ *at) * 0x100000001b3u; // FNV-1a
  return rng_mix(key);
}

static void add_category(Coco *c, char *name) {
  c->categories = xrealloc(c->categories, ((size_t)c->num_categories + 1) * sizeof *c->categories);
  c->categories[c->num_categories] = (CocoCategory){.id = c->num_categories, .name = name};
  c->num_categories++;
}

// Readers of results could not tell apart two classes with one name. A label is a byte, so names past 256 are never
// used.
static bool names_differ(const Coco *c, const char *path, Err *err) {
  for (int i = 0; i < MIN(c->num_categories, UINT8_MAX + 1); i++)
    for (int j = 0; j < i; j++)
      if (!strcmp(c->categories[i].name, c->categories[j].name))
        return err_set(err, "%s: classes %d and %d have the same name, %s; rename one", path, j, i,
                       c->categories[i].name);
  return true;
}

// The lines of DIR/classes.txt without a byte order mark or empty lines; without the file, no names.
static bool read_names(Coco *c, const char *dir, Err *err) {
  static const char mark[] = "\xef\xbb\xbf";
  char *path = xasprintf("%s/classes.txt", dir);
  size_t size;
  struct stat st;
  const bool there = lstat(path, &st) == 0; // also a pipe, or a link to nothing, which are refused
  char *text = there ? file_read(path, &size, err) : NULL;
  const bool marked = text && !strncmp(text, mark, strlen(mark)), utf8 = !text || utf8_is(text);
  bool ok = (text || !there) && (utf8 || err_set(err, "%s: not UTF-8; save it as UTF-8", path));
  for (char *line = text ? text + (marked ? strlen(mark) : 0) : NULL, *rest; ok && line && *line; line = rest) {
    const size_t length = strcspn(line, "\r\n");
    rest = line + length + strspn(line + length, "\r\n");
    line[length] = '\0';
    if (length > 0) add_category(c, xstrdup(line));
  }
  ok = ok && names_differ(c, path, err);
  free(text);
  free(path);
  return ok;
}

// Replaces the set's classes by those of `like`, and maps the images' labels: objects[own->n] images each.
static bool take_classes(Dataset *d, const CategoryList *like, const CategoryList *own, const int *objects, int *to,
                         Err *err) {
  if (!categories_match(like, own, objects, to, &d->notes, err)) return false;
  for (int i = 0; i < like->n; i++) add_category(&d->coco, xstrdup(like->item[i].name));
  return true;
}

// Classes 0 … highest, named by classes.txt if that exists.
static bool name_labels(Coco *c, const char *dir, int highest, const char *path, bool all, Err *err) {
  if (!read_names(c, dir, err)) return false;
  const int named = c->num_categories;
  if (all && named > 0 && highest >= named)
    return err_set(err, "%s: label %d, but %s/classes.txt names only classes 0 to %d; add a line for each class", path,
                   highest, dir, named - 1);
  for (int i = named; i <= highest; i++) {
    add_category(c, xasprintf("%d", i));
    c->categories[i].unnamed = !all; // in comparisons, its number does not count as a name
  }
  return true;
}

// Classes that a model or the training set knows are matched by id or, if the names differ, by name; numbers stand in
// for unknown names.
static bool label_idx(Dataset *d, const char *dir, const Idx *labels, const char *path, const CategoryList *like,
                      int *label, Err *err) {
  int highest = 0, count[UINT8_MAX + 1] = {0}, to[UINT8_MAX + 1];
  for (int i = 0; i < labels->n; i++) {
    highest = MAX(highest, labels->bytes[i]);
    count[labels->bytes[i]]++;
    label[i] = labels->bytes[i];
  }
  if (!like) return name_labels(&d->coco, dir, highest, path, true, err);
  Coco named = {0};
  bool ok = name_labels(&named, dir, highest, path, false, err);
  char *names = xasprintf("%s/classes.txt", dir);
  const CategoryList own = {.of = path_is_file(names) ? names : path,
                            .item = named.categories,
                            .n = MIN(named.num_categories, UINT8_MAX + 1)};
  ok = ok && take_classes(d, like, &own, count, to, err);
  for (int i = 0; ok && i < labels->n; i++) label[i] = to[label[i]];
  free(names);
  coco_free(&named);
  return ok;
}

static bool list_idx(Dataset *d, Listed *l, const char *dir, const char *split, const ClassOptions *o, Err *err) {
  Coco *c = &d->coco;
  char *images, *labels;
  Idx pictures = {0}, of = {0};
  if (!idx_find(dir, class_split_names(split), &images, &labels, err)) return false;
  bool ok = idx_load_pair(&pictures, &of, images, labels, err);
  const size_t n = ok ? (size_t)pictures.n : 0, pixels = (size_t)pictures.h * pictures.w;
  c->images = xcalloc(n, sizeof *c->images);
  c->num_images = (int)n;
  l->label = xmalloc(n * sizeof *l->label);
  l->key = xmalloc(n * sizeof *l->key);
  ok = ok && label_idx(d, dir, &of, labels, o->like, l->label, err);
  const char *file = strrchr(images, '/') + 1;
  for (size_t i = 0; i < n; i++) {
    c->images[i] =
        (CocoImage){.id = (int64_t)i, .file_name = xasprintf("%s#%zu", file, i), .h = pictures.h, .w = pictures.w};
    l->key[i] = c->images[i].drawn = hash_bytes(pictures.bytes + i * pixels, pixels);
  }
  idx_free(&of);
  d->gray = pictures.bytes;
  free(c->path);
  c->path = images;
  free(labels);
  return ok;
}

// ---- folders --------------------------------------------------------------------------------------------------------

static bool name_folders(Dataset *d, const ClassFolders *f, int *label_of, const CategoryList *like, Err *err) {
  Coco named = {0};
  for (int i = 0; i < f->classes; i++) {
    label_of[i] = i;
    add_category(like ? &named : &d->coco, xstrdup(f->name[i]));
  }
  if (!like) return true;
  int *count = xcalloc((size_t)f->classes, sizeof *count);
  for (int i = 0; i < f->files; i++) count[f->file[i].label]++;
  const CategoryList own = {.of = d->folder, .item = named.categories, .n = f->classes, .by_name = true};
  const bool ok = take_classes(d, like, &own, count, label_of, err);
  free(count);
  coco_free(&named);
  return ok;
}

typedef struct FolderImage { // an image before sorting by id
  int64_t id;
  int label;
  char *path;
} FolderImage;

static int compare_images(const void *a, const void *b) {
  const FolderImage *p = a, *q = b;
  return p->id != q->id ? (p->id > q->id) - (p->id < q->id) : strcmp(p->path, q->path);
}

static void take_images(Coco *c, Listed *l, ClassFolders *f, const int *label_of) {
  const size_t n = (size_t)f->files;
  FolderImage *item = xmalloc(n * sizeof *item);
  for (size_t i = 0; i < n; i++) {
    const uint64_t key = hash_bytes(f->file[i].path, strlen(f->file[i].path));
    item[i] = (FolderImage){(int64_t)(key >> 1), label_of[f->file[i].label], f->file[i].path};
    f->file[i].path = NULL;
  }
  if (n > 0) qsort(item, n, sizeof *item, compare_images);
  c->images = xcalloc(n, sizeof *c->images);
  c->num_images = (int)n;
  l->label = xmalloc(n * sizeof *l->label);
  l->key = xcalloc(n, sizeof *l->key);
  for (size_t i = 0; i < n; i++) {
    c->images[i] = (CocoImage){.id = item[i].id, .file_name = item[i].path};
    l->label[i] = item[i].label;
  }
  free(item);
}

static void measure_image(void *of, int i, int thread) {
  (void)thread;
  Dataset *d = of;
  CocoImage *im = &d->coco.images[i];
  char *path = xasprintf("%s/%s", d->folder, im->file_name);
  d->file_bytes[i] = MAX(file_length(path), 0);
  if (!image_info(path, d->upright, &im->h, &im->w, NULL)) im->h = im->w = 0;
  free(path);
}

// Reads the sizes of all images; those without one are left out, keeping the order.
static bool measure_images(Dataset *d, const ClassOptions *o, Err *err) {
  Coco *c = &d->coco;
  bool ok = true;
  parallel_for(c->num_images, parallel_threads(c->num_images), measure_image, d);
  for (int i = 0; ok && i < c->num_images; i++) {
    if (c->images[i].h > 0) continue;
    Err bad;
    char *path = xasprintf("%s/%s", d->folder, c->images[i].file_name);
    if (!image_info(path, d->upright, &c->images[i].h, &c->images[i].w, &bad))
      ok = dataset_leave_out(d, i, o->strict, &bad, err);
    free(path);
  }
  return ok;
}

int classes_shrink(Size image, Size canvas) {
  return shrink_factor(image.h, image.w, KEEP_TIMES * MAX(canvas.h, canvas.w));
}

static void choose_shrinking(Dataset *d) {
  d->shrink = xmalloc((size_t)d->coco.num_images);
  const Size canvas = {d->canvas[0].h, d->canvas[0].w};
  for (int i = 0; i < d->coco.num_images; i++)
    d->shrink[i] = (uint8_t)classes_shrink((Size){d->coco.images[i].h, d->coco.images[i].w}, canvas);
}

static bool list_folders(Dataset *d, Listed *l, const char *dir, const char *split, const ClassOptions *o, Err *err) {
  ClassFolders f = {0};
  d->folder = class_split_folder(dir, class_split_names(split));
  if (d->folder && !class_split_is_one(dir, d->folder, err)) return false;
  char *train = class_split_folder(dir, class_split_names("train"));
  if (!d->folder && !train && !strcmp(split, "train")) d->folder = xstrdup(dir);
  free(train);
  if (!d->folder)
    return err_set(err, "%s: no folder %s with a folder per class; put images there by class%s", dir, split,
                   strcmp(split, "val") ? "" : ", or use --val-fraction 0.2");
  free(d->coco.path);
  d->coco.path = xstrdup(d->folder);
  if (!class_folders_list(&f, d->folder, err)) return false;
  int *label_of = xmalloc((size_t)f.classes * sizeof *label_of);
  d->others = f.others;
  bool ok = name_folders(d, &f, label_of, o->like, err);
  if (ok) take_images(&d->coco, l, &f, label_of);
  free(label_of);
  class_folders_free(&f);
  return ok;
}

// ---- what is used ---------------------------------------------------------------------------------------------------

// Training needs two classes and, in folders, an image of each: an empty class folder means that a copy was
// interrupted. IDX labels may have gaps, as in EMNIST.
static bool check_classes(const Dataset *d, const Listed *l, const ClassOptions *o, Err *err) {
  const Coco *c = &d->coco;
  if (o->like) return true;
  int *count = xcalloc((size_t)c->num_categories, sizeof *count), empty = 0, seen = 0, last = 0;
  for (int i = 0; i < c->num_images; i++) count[l->label[i]] += !d->left_out[i];
  for (int k = 0; k < c->num_categories; k++) {
    seen += count[k] > 0;
    if (count[k] > 0) last = k;
  }
  while (empty < c->num_categories && count[empty] > 0) empty++;
  free(count);
  if (c->num_categories < 2 || (d->gray && seen == 1))
    return err_set(err, "%s: only one class, %s; %s", c->path, c->categories[last].name,
                   d->gray ? "a classifier needs at least two" : "does --data point one folder too high or too low?");
  return d->gray || empty == c->num_categories ||
         err_set(err, "%s/%s: no readable JPEG or PNG file; put images there, or remove the folder", c->path,
                 c->categories[empty].name);
}

// Which images are opened: keep[coco.num_images].
static bool hold_out(Dataset *d, const Listed *l, const ClassOptions *o, const char *split, bool *keep, Err *err) {
  const Coco *c = &d->coco;
  const size_t n = (size_t)c->num_images;
  for (size_t i = 0; i < n; i++) keep[i] = true;
  if (!holdout_used(&o->holdout)) return true;
  ImageList list = {.of = c->path, .n = c->num_images, .bytes = d->file_bytes, .key = l->key};
  list.name = xmalloc(n * sizeof *list.name);
  uint32_t *labels = xmalloc(n * sizeof *labels);
  if (!d->gray) list.path = xmalloc(n * sizeof *list.path);
  int *first = xmalloc((n + 1) * sizeof *first);
  for (size_t i = 0; i <= n; i++) first[i] = (int)i; // a class each
  for (size_t i = 0; i < n; i++) {
    const char *name = c->images[i].file_name;
    list.name[i] = d->gray ? strrchr(name, '#') : name; // the file may be compressed, or not
    if (!d->gray) list.path[i] = xasprintf("%s/%s", d->folder, name);
    labels[i] = (uint32_t)digest_text(9, c->categories[l->label[i]].name) | 1;
  }
  list.annotations = labels;
  const ImageCategories classes = {c->num_categories, first, l->label};
  const bool ok = dataset_choose_side(d, &list, &classes, &o->holdout, split, keep, err);
  for (size_t i = 0; list.path && i < n; i++) free(list.path[i]);
  free(list.path);
  free(list.name);
  free(labels);
  free(first);
  return ok;
}

// Lists the usable images among those to keep.
static void choose_images(Dataset *d, const Listed *l, const ClassOptions *o, const bool *keep) {
  const Coco *c = &d->coco;
  d->image = xmalloc((size_t)c->num_images * sizeof *d->image);
  d->object = xmalloc((size_t)c->num_images * sizeof *d->object);
  d->first_object = xmalloc(((size_t)c->num_images + 1) * sizeof *d->first_object);
  d->first_object[0] = 0;
  for (int i = 0; i < c->num_images && !(o->limit > 0 && d->num_images == o->limit); i++) {
    const CocoImage *im = &c->images[i];
    if (d->left_out[i] || !keep[i]) continue;
    const int n = d->num_images++;
    const Size size = {im->h, im->w};
    d->image[n] = i;
    d->object[n] = (Object){.ann = -1, .label = l->label[i], .box = {0, 0, (float)size.w, (float)size.h}};
    d->first_object[n + 1] = n + 1;
    const Size laid_out = dataset_size(d, n);
    d->max_bytes = MAX(d->max_bytes, (int64_t)laid_out.h * laid_out.w * 3);
    d->max_whole = MAX(d->max_whole, (int64_t)size.h * size.w * 3);
  }
}

static bool open_split(Dataset *d, Listed *l, const char *dir, const char *split, const ClassOptions *o, Err *err) {
  const ClassLayout layout = classes_layout(dir);
  if (!class_split_names(split))
    return err_set(err, "split %s: the splits of a classification data set are train, val and test", split);
  if (layout == CLASSES_NONE)
    return err_set(err,
                   "%s: neither IDX files (train-images-idx3-ubyte and train-labels-idx1-ubyte, or .gz) nor a folder "
                   "of images per class (train/CLASS/…)",
                   dir);
  const bool idx = layout == CLASSES_IDX;
  if (!(idx ? list_idx : list_folders)(d, l, dir, split, o, err)) return false;
  Coco *c = &d->coco;
  const CategoryList classes = dataset_categories(d);
  if (!o->like) categories_examine(&classes, &d->notes);
  d->classes = c->num_categories;
  d->left_out = xcalloc((size_t)c->num_images, sizeof *d->left_out);
  d->absent = xcalloc((size_t)c->num_images, sizeof *d->absent);
  const Size none = idx ? (Size){c->images[0].h, c->images[0].w} : (Size){FOLDER_SIZE, FOLDER_SIZE};
  const Size size = o->size.h > 0 ? o->size : none;
  d->canvas[0] = (Canvas){size.h, size.w, 0};
  if (!idx) d->file_bytes = xcalloc((size_t)c->num_images, sizeof *d->file_bytes);
  if (!idx && !measure_images(d, o, err)) return false;
  if (!idx) choose_shrinking(d);
  if (!check_classes(d, l, o, err)) return false;
  bool *keep = xmalloc((size_t)c->num_images * sizeof *keep);
  const bool ok = hold_out(d, l, o, split, keep, err);
  if (ok) choose_images(d, l, o, keep);
  free(keep);
  if (!ok || d->num_images > 0) return ok;
  return err_set(err, "%s: none of its %d images is left for %s; %d cannot be used%s", c->path, c->num_images, split,
                 d->bad_images, holdout_used(&o->holdout) ? "; choose another fraction or add images" : "");
}

bool classes_open(Dataset *d, const char *dir, const char *split, const ClassOptions *o, Err *err) {
  *d = (Dataset){.upright = o->upright,
                 .bad = bad_images_open(),
                 .patience = o->patience,
                 .type = &objects_of_classes,
                 .view = o->view > 0 ? o->view : 1,
                 .max_objects = 1,
                 .num_canvases = 1};
  Listed l = {0};
  const bool ok = open_split(d, &l, dir, split, o, err);
  free(l.label);
  free(l.key);
  if (!ok) {
    dataset_close(d);
    return false;
  }
  d->canvas[0].images = d->num_images;
  d->resize = (Resize){.size = MIN(d->canvas[0].h, d->canvas[0].w), .max_size = MAX(d->canvas[0].h, d->canvas[0].w)};
  d->image_canvas = xcalloc((size_t)d->num_images, sizeof *d->image_canvas);
  d->reported = xcalloc((size_t)d->num_images, sizeof *d->reported);
  return true;
}

void classes_count(const Dataset *d, int *count) {
  memset(count, 0, (size_t)d->classes * sizeof *count);
  for (int i = 0; i < d->num_images; i++) count[d->object[i].label]++;
}
