// Queries on a COCO data set in memory, and finding its files.
#include "data/coco/coco.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/mapped.h"

static int compare_id(const void *a, const void *b) { // of structs whose first member is their id
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

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

void coco_free(Coco *c) {
  free(c->path);
  free(c->origin);
  if (!c->map || c->own_categories) {
    for (int i = 0; i < c->num_categories; i++) {
      free(c->categories[i].name);
      free(c->categories[i].text_id);
    }
    free(c->categories);
  }
  if (c->map) {
    mapped_close(c->map, c->map_bytes);
  } else {
    for (int i = 0; i < c->num_images; i++) {
      free(c->images[i].file_name);
      free(c->images[i].text_id);
    }
    free(c->images);
    free(c->anns);
    free(c->part_points);
    free(c->part_first);
    free(c->xy);
    free(c->runs);
    free(c->broken);
  }
  *c = (Coco){0};
}

Rle coco_ann_runs(const Coco *c, const CocoAnn *a) {
  return (Rle){.h = a->rle_h, .w = a->rle_w, .n = a->num_runs, .runs = c->runs + a->first_run};
}

bool coco_ann_has_mask(const CocoAnn *a, int h, int w) {
  if (a->type == SEG_NONE || h <= 0 || w <= 0 || (uint64_t)h * (uint64_t)w > UINT32_MAX) return false;
  return a->type != SEG_RLE || (a->rle_h == h && a->rle_w == w);
}

bool coco_ann_rle_in(Scratch *scratch, const Coco *c, const CocoAnn *a, int h, int w, Rle *out) {
  *out = (Rle){0};
  if (!coco_ann_has_mask(a, h, w)) return false;
  if (a->type == SEG_RLE) {
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

// Looks in `folder` for PREFIX*SUFFIX, a folder or a file: an exact PREFIX SUFFIX is preferred, otherwise there must be
// only one. *found is NULL if there is none; false, with a message, if there are several or the folder cannot be read.
static bool find_one(const char *folder, const char *prefix, const char *suffix, char **found, Err *err) {
  *found = NULL;
  bool want_dir = suffix[0] == '\0', unique = true;
  DIR *dir = opendir(folder);
  if (!dir && errno == ENOMEM) die(EXIT_RUN, "out of memory: cannot list %s", folder); // the file may exist
  if (!dir && errno != ENOENT && errno != ENOTDIR)
    return err_set(err, "cannot list folder %s: %s", folder, strerror(errno));
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
      unique = err_set(err, "both %s and %s match; give the split's full name", *found, path);
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

// The folder named like the annotation file without "instances_" and ".json", otherwise the one whose name starts with
// the split's.
static bool find_image_folder(const char *dir, const char *split, const char *annotations, char **found, Err *err) {
  const char *name = strrchr(annotations, '/') + 1;
  if (strncmp(name, "instances_", 10) == 0) name += 10;
  *found = xasprintf("%s/%.*s", dir, (int)(strlen(name) - strlen(".json")), name);
  if (path_is_dir(*found)) return true;
  free(*found);
  if (!find_one(dir, split, "", found, err)) return false;
  return *found || err_set(err, "no folder %s/%s*/ with the images of %s", dir, split, annotations);
}

// The first .json file by name in DIR/BELOW that has a key "annotations"; NULL: none. Caller frees.
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

// Whether DIR/masks or DIR/train/masks is a folder, presumably with masks as images.
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
    err_set(err, "no %s/annotations/%s*.json; if you mean %s, move it there as %s.json and its images into %s/%s/", dir,
            prefix, other, prefix, dir, split);
  else
    err_set(err, "no %s/annotations/%s*.json; a data set needs its annotations there%s", dir, prefix,
            has_pictures_of_masks(dir) ? ", with masks as polygons or run-length codes: mask images are not supported"
                                       : "");
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
