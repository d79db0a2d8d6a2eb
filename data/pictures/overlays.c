#include "data/pictures/overlays.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/durable.h"
#include "data/images/png.h"
#include "data/pictures/draw_masks.h"
#include "data/pictures/pictures.h"

// ---- names --------------------------------------------------------------------------------------------------------

// A file's name without folder and ending.
typedef struct Stem {
  const char *text;
  int length;
  int position; // in the list
} Stem;

static Stem stem_of(const char *file, int position) {
  const char *name = strrchr(file, '/') ? strrchr(file, '/') + 1 : file, *dot = strrchr(name, '.');
  return (Stem){name, dot && dot > name ? (int)(dot - name) : (int)strlen(name), position};
}

static int compare_text(const void *a, const void *b) {
  const Stem *p = a, *q = b;
  int order = memcmp(p->text, q->text, (size_t)MIN(p->length, q->length));
  return order ? order : (p->length > q->length) - (p->length < q->length);
}

static int compare_stems(const void *a, const void *b) {
  int order = compare_text(a, b);
  return order ? order : ((const Stem *)a)->position - ((const Stem *)b)->position;
}

// The first name "stem-N" with N ≥ *number that is not the stem of another file. N is everything after the last dash,
// so that names made from different stems differ too.
static char *numbered(const Stem *stem, int *number, const Stem *all, int n) {
  for (;; ++*number) {
    char *name = xasprintf("%.*s-%d", stem->length, stem->text, *number);
    bool taken = bsearch(&(Stem){name, (int)strlen(name), 0}, all, (size_t)n, sizeof *all, compare_text);
    if (!taken) return name;
    free(name);
  }
}

void overlays_open(Overlays *o, const char *folder, const char *const *files, int n) {
  *o = (Overlays){.folder = xstrdup(folder), .path = xcalloc((size_t)n, sizeof *o->path), .n = n};
  Stem *all = xmalloc((size_t)n * sizeof *all);
  for (int i = 0; i < n; i++) all[i] = stem_of(files[i], i);
  qsort(all, (size_t)n, sizeof *all, compare_stems);
  for (int i = 0, number = 2; i < n; i++) {
    bool first = i == 0 || compare_text(&all[i], &all[i - 1]);
    if (first) number = 2;
    char *name = first ? xasprintf("%.*s", all[i].length, all[i].text) : numbered(&all[i], &number, all, n);
    number += !first;
    o->path[all[i].position] = xasprintf("%s/%s.png", folder, name);
    free(name);
  }
  free(all);
}

static const char signed_by[] = "maskrcnn.c overlay";

static bool spares(const char *path, FileSet *files, Err *err) {
  if (!file_set_spares(files, path, err)) return false;
  struct stat st;
  const bool folder = lstat(path, &st) == 0 && S_ISDIR(st.st_mode); // costs one overlay
  if (!folder && picture_is_another(path, signed_by))
    return err_set(
        err, "%s exists and is not an overlay of this program, so it is not overwritten; choose another folder", path);
  return true;
}

bool overlays_spare(const Overlays *o, FileSet *files, Err *err) {
  for (int i = 0; i < o->n; i++)
    if (!spares(o->path[i], files, err)) return false;
  return true;
}

char *overlays_name(const Overlays *o, int i) {
  const Stem stem = stem_of(o->path[i], 0);
  return xasprintf("%.*s", stem.length, stem.text);
}

char *overlays_numbered(const char *file, int64_t number) {
  const Stem stem = stem_of(file, 0);
  return xasprintf("%06lld-%.*s", (long long)number, stem.length, stem.text);
}

bool overlays_append(Overlays *o, const char *file, int64_t number, FileSet *files, Err *err) {
  char *name = overlays_numbered(file, number), *path = xasprintf("%s/%s.png", o->folder, name);
  free(name);
  if (!spares(path, files, err)) {
    free(path);
    return false;
  }
  o->path = xrealloc(o->path, (size_t)(o->n + 1) * sizeof *o->path);
  o->path[o->n++] = path;
  return true;
}

void overlays_close(Overlays *o) {
  for (int i = 0; i < o->n; i++) free(o->path[i]);
  free(o->path);
  free(o->folder);
  *o = (Overlays){0};
}

// ---- pictures -----------------------------------------------------------------------------------------------------

// Compressing a large photograph well takes six times as long for a tenth of its bytes.
static int png_level(const Image *picture) {
  enum { LARGE = 2000000 }; // pixels
  return (int64_t)picture->h * picture->w > LARGE ? PNG_FAST : PNG_SMALL;
}

bool overlays_write(const Overlays *o, int i, const Image *image, const DrawItem *items, int n, Err *err) {
  const PngPixels pixels = png_pixels(image);
  // Checked in advance, because running out of memory for an overlay should not end the program.
  if (!memory_suffices(draw_masks_bytes(image) + png_write_bytes(&pixels)))
    return err_set(err, "%s: not enough memory to draw the overlay", o->path[i]);
  Image picture = *image;
  draw_overlay(&picture, items, n);
  // Not named after the image, whose name may have the maximum length.
  char *tmp = o->rank ? xasprintf("%s/overlay-%d.tmp", o->folder, o->rank) : xasprintf("%s/overlay.tmp", o->folder);
  bool ok = png_write_pixels(tmp, &pixels, png_level(image), signed_by, err);
  if (ok && !durable_rename(tmp, o->path[i])) ok = err_set(err, "cannot write %s: %s", o->path[i], strerror(errno));
  const int reason = errno;
  if (!ok) unlink(tmp);
  free(tmp);
  errno = reason;
  return ok;
}
