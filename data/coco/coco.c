// A COCO data set from its annotation file: sections in any order, then indexed by id and grouped by image.
#include "data/coco/coco.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "base/alloc.h"
#include "data/coco/coco_read.h"

static void read_image(CocoReader *r) {
  Json *j = &r->json;
  CocoImage image = {0};
  bool has_id = false;
  if (json_begin_object(j))
    for (const char *key; (key = json_key(j));) {
      if (strcmp(key, "id") == 0) {
        image.id = coco_read_id(j);
        has_id = true;
      } else if (strcmp(key, "file_name") == 0) {
        free(image.file_name); // of an earlier, repeated key
        image.file_name = coco_read_string(j);
      } else if (strcmp(key, "height") == 0 && json_peek(j) != JSON_NULL) {
        image.h = coco_read_extent(j);
      } else if (strcmp(key, "width") == 0 && json_peek(j) != JSON_NULL) {
        image.w = coco_read_extent(j);
      } else {
        json_skip(j);
      }
    }
  if (!has_id) json_fail(j, "an image lacks its id");
  Coco *c = &r->coco;
  array_reserve((void **)&c->images, &r->images_cap, (size_t)c->num_images + 1, sizeof *c->images);
  c->images[c->num_images++] = image;
}

static void read_category(CocoReader *r) {
  Json *j = &r->json;
  CocoCategory category = {0};
  bool has_id = false;
  if (json_begin_object(j))
    for (const char *key; (key = json_key(j));) {
      if (strcmp(key, "id") == 0) {
        category.id = coco_read_id(j);
        has_id = true;
      } else if (strcmp(key, "name") == 0) {
        free(category.name); // of an earlier, repeated key
        category.name = coco_read_string(j);
      } else {
        json_skip(j);
      }
    }
  if (!has_id) json_fail(j, "a category lacks its id");
  if (!category.name) category.name = xasprintf("%lld", (long long)category.id);
  Coco *c = &r->coco;
  array_reserve((void **)&c->categories, &r->categories_cap, (size_t)c->num_categories + 1, sizeof *c->categories);
  c->categories[c->num_categories++] = category;
}

// Index

static int compare_id(const void *a, const void *b) { // of anything whose first member is its id
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

typedef struct IdPlace {
  int64_t id;
  int at;
} IdPlace;

static int compare_place(const void *a, const void *b) {
  const IdPlace *p = a, *q = b;
  int by_id = compare_id(p, q);
  return by_id ? by_id : compare_int(&p->at, &q->at);
}

// Sorts items, each beginning with its id, and keeps the last of those with the same id, as pycocotools' index does.
// Returns how many are left; *repeated is the lowest id of those dropped.
static int sort_by_id(void *items, int n, size_t size, void (*drop)(void *item), int64_t *repeated) {
  if (n == 0) return 0;
  IdPlace *places = xcalloc((size_t)n, sizeof *places);
  char *from = items, *sorted = xcalloc((size_t)n, size);
  for (int i = 0; i < n; i++) {
    places[i].at = i;
    memcpy(&places[i].id, from + (size_t)i * size, sizeof places[i].id);
  }
  qsort(places, (size_t)n, sizeof *places, compare_place);
  int kept = 0;
  for (int i = 0; i < n; i++) {
    char *item = from + (size_t)places[i].at * size;
    if (i + 1 < n && places[i + 1].id == places[i].id) {
      if (kept == i) *repeated = places[i].id;
      drop(item);
    } else {
      memcpy(sorted + (size_t)kept++ * size, item, size);
    }
  }
  memcpy(items, sorted, (size_t)kept * size);
  free(sorted);
  free(places);
  return kept;
}

static void drop_image(void *image) { free(((CocoImage *)image)->file_name); }

static void drop_category(void *category) { free(((CocoCategory *)category)->name); }

int coco_find_image(const Coco *c, int64_t id) {
  const CocoImage *found =
      c->num_images ? bsearch(&id, c->images, (size_t)c->num_images, sizeof *c->images, compare_id) : NULL;
  return found ? (int)(found - c->images) : -1;
}

int coco_find_category(const Coco *c, int64_t id) {
  const CocoCategory *found =
      c->num_categories ? bsearch(&id, c->categories, (size_t)c->num_categories, sizeof *c->categories, compare_id)
                        : NULL;
  return found ? (int)(found - c->categories) : -1;
}

// A counting sort by image, stable, so that file order holds within an image.
static void group_annotations(Coco *c) {
  int *image_of = xcalloc((size_t)c->num_anns, sizeof *image_of);
  for (int i = 0; i < c->num_anns; i++) {
    image_of[i] = coco_find_image(c, c->anns[i].image_id);
    if (image_of[i] >= 0) c->images[image_of[i]].anns++;
  }
  int first = 0;
  for (int i = 0; i < c->num_images; i++) {
    c->images[i].first_ann = first;
    first += c->images[i].anns;
    c->images[i].anns = 0;
  }
  CocoAnn *grouped = xcalloc((size_t)first, sizeof *grouped);
  for (int i = 0; i < c->num_anns; i++) {
    CocoAnn *a = &c->anns[i];
    if (image_of[i] < 0) {
      if (c->unknown_image++ == 0) c->unknown_image_ann = a->id;
      continue;
    }
    a->category = coco_find_category(c, a->category_id);
    c->unknown_category += a->category < 0;
    CocoImage *image = &c->images[image_of[i]];
    grouped[image->first_ann + image->anns++] = *a;
  }
  free(image_of);
  free(c->anns);
  c->anns = grouped;
  c->num_anns = first;
}

// A list of the file that training needs, and how one of its elements is read.
typedef struct Section {
  const char *name;
  void (*read)(CocoReader *r);
} Section;
enum { IMAGES, SECTIONS = 3 };
static const Section sections[SECTIONS] = {
    [IMAGES] = {"images", read_image}, {"categories", read_category}, {"annotations", coco_read_object}};

bool coco_load(Coco *c, const char *path, Err *err) {
  *c = (Coco){0};
  CocoReader r;
  if (!coco_read_open(&r, path, err)) return false;
  Json *j = &r.json;
  bool seen[SECTIONS] = {false};
  if (json_begin_object(j))
    for (const char *key; (key = json_key(j));) {
      int s = 0;
      while (s < SECTIONS && strcmp(key, sections[s].name) != 0) s++;
      if (s == SECTIONS) {
        json_skip(j);
      } else if (seen[s]) { // Python would silently forget the first
        json_fail(j, "a second list of \"%s\"; merge the two", sections[s].name);
      } else if (json_begin_array(j)) {
        seen[s] = true;
        while (json_next(j)) sections[s].read(&r);
      }
    }
  bool ok = json_done(j) || err_set(err, "%s", j->err.msg);
  if (ok && !seen[IMAGES]) ok = err_set(err, "%s: no list of \"images\"; is this a COCO annotation file?", path);
  *c = r.coco;
  coco_read_close(&r);
  if (!ok) {
    coco_free(c);
    return false;
  }
  int images = c->num_images, categories = c->num_categories;
  c->num_images = sort_by_id(c->images, images, sizeof *c->images, drop_image, &c->duplicate_image);
  c->num_categories =
      sort_by_id(c->categories, categories, sizeof *c->categories, drop_category, &c->duplicate_category);
  c->duplicate_images = images - c->num_images;
  c->duplicate_categories = categories - c->num_categories;
  group_annotations(c);
  return true;
}

void coco_free(Coco *c) {
  free(c->path);
  free(c->origin);
  if (c->map) {
    munmap(c->map, c->map_bytes);
  } else {
    for (int i = 0; i < c->num_images; i++) drop_image(&c->images[i]);
    for (int i = 0; i < c->num_categories; i++) drop_category(&c->categories[i]);
    free(c->images);
    free(c->categories);
    free(c->anns);
    free(c->part_points);
    free(c->part_first);
    free(c->xy);
    free(c->runs);
  }
  *c = (Coco){0};
}

Rle coco_ann_runs(const Coco *c, const CocoAnn *a) {
  return (Rle){.h = a->rle_h, .w = a->rle_w, .n = a->num_runs, .runs = c->runs + a->first_run};
}

bool coco_ann_has_mask(const CocoAnn *a, int h, int w) {
  if (a->kind == SEG_NONE || h <= 0 || w <= 0 || (uint64_t)h * (uint64_t)w > UINT32_MAX) return false;
  return a->kind != SEG_RLE || (a->rle_h == h && a->rle_w == w);
}

bool coco_ann_rle_in(Scratch *scratch, const Coco *c, const CocoAnn *a, int h, int w, Rle *out) {
  *out = (Rle){0};
  if (!coco_ann_has_mask(a, h, w)) return false;
  if (a->kind == SEG_RLE) {
    *out = coco_ann_runs(c, a);
    return true;
  }
  Rle *parts = scratch_take(scratch, (size_t)a->parts * sizeof *parts);
  if (!parts) die_of_memory((size_t)a->parts * sizeof *parts, HERE);
  for (int i = 0; i < a->parts; i++) {
    int part = a->first_part + i;
    parts[i] = rle_from_polygon_in(scratch, c->xy + c->part_first[part], c->part_points[part], h, w);
  }
  *out = rle_merge_in(scratch, parts, a->parts, false);
  return true;
}

bool coco_ann_rle(const Coco *c, const CocoAnn *a, int h, int w, Rle *out) {
  Scratch scratch = {0};
  bool usable = coco_ann_rle_in(&scratch, c, a, h, w, out);
  if (usable) *out = rle_copy(out);
  scratch_free(&scratch);
  return usable;
}

// Splits on disk

// Looks in `folder` for PREFIX*SUFFIX, a folder or a file: an exact PREFIX SUFFIX wins, otherwise there must be one.
// *found is NULL when there is none; false, with a message, when there are several or nobody can tell.
static bool find_one(const char *folder, const char *prefix, const char *suffix, char **found, Err *err) {
  *found = NULL;
  bool want_dir = suffix[0] == '\0', unique = true;
  DIR *dir = opendir(folder);
  if (!dir && errno == ENOMEM) die(EXIT_RUN, "out of memory: no room to look into %s", folder); // it may be there
  if (!dir && errno != ENOENT && errno != ENOTDIR)
    return err_set(err, "cannot look into %s: %s", folder, strerror(errno));
  for (struct dirent *entry; dir && (entry = readdir(dir));) {
    size_t length = strlen(entry->d_name), before = strlen(prefix), after = strlen(suffix);
    if (length < before + after || strncmp(entry->d_name, prefix, before) != 0) continue;
    if (strcmp(entry->d_name + length - after, suffix) != 0) continue;
    char *path = xasprintf("%s/%s", folder, entry->d_name);
    if (!(want_dir ? path_is_dir(path) : path_is_file(path))) {
      free(path);
    } else if (length == before + after) {
      free(*found);
      *found = path;
      unique = true;
      break;
    } else if (*found) {
      unique = err_set(err, "both %s and %s fit; name the split in full", *found, path);
      free(path);
    } else {
      *found = path;
    }
  }
  if (dir) closedir(dir);
  if (unique) return true;
  free(*found);
  *found = NULL;
  return false;
}

// The folder named as the annotation file without "instances_" and ".json", else the one that begins with the split.
static bool find_image_folder(const char *dir, const char *split, const char *annotations, char **found, Err *err) {
  const char *name = strrchr(annotations, '/') + 1;
  if (strncmp(name, "instances_", 10) == 0) name += 10;
  *found = xasprintf("%s/%.*s", dir, (int)(strlen(name) - strlen(".json")), name);
  if (path_is_dir(*found)) return true;
  free(*found);
  if (!find_one(dir, split, "", found, err)) return false;
  return *found || err_set(err, "no folder %s/%s*/ with the images of %s", dir, split, annotations);
}

// The first file by name in DIR/BELOW that is called .json and speaks of annotations; NULL: none is. Caller frees.
static char *json_in(const char *dir, const char *below) {
  char *folder = xasprintf("%s/%s", dir, below), *first = NULL;
  DIR *d = opendir(folder);
  for (struct dirent *entry; d && (entry = readdir(d));) {
    const size_t length = strlen(entry->d_name);
    if (length < 5 || strcmp(entry->d_name + length - 5, ".json")) continue;
    char *path = xasprintf("%s%s%s", folder, *below ? "/" : "", entry->d_name);
    size_t size;
    char *text = path_is_file(path) && !(first && strcmp(path, first) > 0) ? file_read(path, &size, NULL) : NULL;
    if (text && strstr(text, "\"annotations\"")) {
      free(first);
      first = path;
    } else {
      free(path);
    }
    free(text);
  }
  if (d) closedir(d);
  free(folder);
  return first;
}

char *coco_elsewhere(const char *dir) {
  static const char *const below[] = {"annotations", "", "train"};
  char *found = NULL;
  for (int i = 0; !found && i < COUNT(below); i++) found = json_in(dir, below[i]);
  return found;
}

// Whether DIR/masks or DIR/train/masks is a folder, of pictures of masks.
static bool has_pictures_of_masks(const char *dir) {
  char *here = xasprintf("%s/masks", dir), *below = xasprintf("%s/train/masks", dir);
  const bool has = path_is_dir(here) || path_is_dir(below);
  free(here);
  free(below);
  return has;
}

static bool no_annotations(const char *dir, const char *prefix, const char *split, Err *err) {
  char *other = strcmp(split, "train") ? NULL : coco_elsewhere(dir);
  if (other)
    err_set(err, "no %s/annotations/%s*.json; if %s is meant, put it there as %s.json, its images into %s/%s/", dir,
            prefix, other, prefix, dir, split);
  else
    err_set(err, "no %s/annotations/%s*.json; a data set needs its annotations there%s", dir, prefix,
            has_pictures_of_masks(dir) ? ", masks as polygons or runs: pictures of masks are not read" : "");
  free(other);
  return false;
}

bool coco_find_split(const char *dir, const char *split, char **annotations, char **images, Err *err) {
  *annotations = *images = NULL;
  char *folder = xasprintf("%s/annotations", dir), *prefix = xasprintf("instances_%s", split);
  bool ok = find_one(folder, prefix, ".json", annotations, err);
  if (ok && !*annotations) ok = find_one(folder, split, ".json", annotations, err);
  if (ok && !*annotations) ok = no_annotations(dir, prefix, split, err);
  ok = ok && find_image_folder(dir, split, *annotations, images, err);
  if (!ok) {
    free(*annotations);
    *annotations = NULL;
  }
  free(folder);
  free(prefix);
  return ok;
}
