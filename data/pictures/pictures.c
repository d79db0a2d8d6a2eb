#include "data/pictures/pictures.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/durable.h"
#include "base/file.h"

bool pictures_open(Pictures *p, const char *folder, const char *type, int rank, Err *err) {
  *p = (Pictures){.type = type, .rank = rank};
  if (!dirs_make(folder, err)) return false;
  p->folder = xstrdup(folder);
  return true;
}

void pictures_close(Pictures *p) {
  free(p->folder);
  *p = (Pictures){0};
}

static bool no_memory(const Pictures *p, const char *name, Err *err) {
  return err_set(err, "%s/%s.png: not enough memory to draw it", p->folder, name);
}

uint8_t *pictures_memory(const Pictures *p, const char *name, size_t bytes, Err *err) {
  uint8_t *memory = malloc(bytes);
  if (!memory) no_memory(p, name, err);
  return memory;
}

// Checked before memory is taken, because the compressor exits if it runs out.
static bool packing_fits(const Pictures *p, const char *name, const PngPixels *pixels, Err *err) {
  return memory_suffices(png_write_bytes(pixels)) || no_memory(p, name, err);
}

bool picture_is_another(const char *path, const char *type) {
  struct stat st;
  return lstat(path, &st) == 0 && (!S_ISREG(st.st_mode) || !png_is_signed(path, type));
}

static bool replace(const Pictures *p, const char *path, const PngPixels *pixels, int level, Err *err) {
  // Not named after the picture, whose name may have the maximum length.
  char *tmp = xasprintf("%s/picture-%d.tmp", p->folder, p->rank);
  bool ok = png_write_pixels(tmp, pixels, level, p->type, err);
  if (ok && !durable_rename(tmp, path)) ok = err_set(err, "cannot write %s: %s", path, strerror(errno));
  const int reason = errno;
  if (!ok) unlink(tmp);
  free(tmp);
  errno = reason;
  return ok;
}

bool pictures_write(const Pictures *p, const char *name, const PngPixels *pixels, int level, Err *err) {
  if (!packing_fits(p, name, pixels, err)) return false;
  char *path = xasprintf("%s/%s.png", p->folder, name);
  const bool ok =
      !picture_is_another(path, p->type)
          ? replace(p, path, pixels, level, err)
          : err_set(err, "%s exists and was not written by this program (%s); choose another folder", path, p->type);
  free(path);
  return ok;
}
