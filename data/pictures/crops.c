#include "data/pictures/crops.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "data/coco/spans.h"

// Also true if there is no such folder, or it is not a folder; then creating it reports any error.
static bool is_empty(const char *folder) {
  DIR *dir = opendir(folder);
  if (!dir) return errno == ENOENT || errno == ENOTDIR;
  bool empty = true;
  for (struct dirent *e; (e = readdir(dir));) empty &= !strcmp(e->d_name, ".") || !strcmp(e->d_name, "..");
  closedir(dir);
  return empty;
}

bool crops_open(Crops *c, const char *folder, bool alpha, const ResultClasses *classes, int rank, Err *err) {
  *c = (Crops){.classes = *classes, .alpha = alpha};
  if (rank == 0 && !is_empty(folder))
    return err_set(err, "%s is not empty, and its files would mix with the new crops; choose an empty or new folder",
                   folder);
  return pictures_open(&c->pictures, folder, "maskrcnn.c crop", rank, err);
}

void crops_close(Crops *c) { pictures_close(&c->pictures); }

enum { CLASS_TEXT = 40 }; // bytes, so that the image's name fits into the file's name

// Makes a text safe as a part of a file name: characters that are special to a shell, a path or the name itself become
// '_'.
static void class_text(const char *name, char text[CLASS_TEXT + 1]) {
  int n = 0;
  for (; name[n] && n < CLASS_TEXT; n++) {
    const unsigned char c = (unsigned char)name[n];
    text[n] = isalnum(c) || c >= 0x80 || c == '.' ? name[n] : '_';
  }
  text[n] = 0;
}

// Converts to an integer from 0 to `most`, whatever the value.
static int whole(double x, int most) { return (int)fmax(0, fmin(x, most)); }

static PixelRect rect_of(const CocoResult *r, int h, int w) {
  const double *b = r->bbox;
  return (PixelRect){whole(floor(b[0]), w), whole(floor(b[1]), h), whole(ceil(b[0] + b[2]), w),
                     whole(ceil(b[1] + b[3]), h)};
}

// Copies the pixels of the rectangle: [h, w, 4], opaque inside the mask, or [h, w, 3].
static void cut(const Image *image, PixelRect r, const uint8_t *mask, uint8_t *out) {
  for (int y = r.y1; y < r.y2; y++)
    for (int x = r.x1; x < r.x2; x++) {
      memcpy(out, image->rgb + 3 * ((size_t)y * (size_t)image->w + (size_t)x), 3);
      out += 3;
      if (mask) *out++ = *mask++ ? UINT8_MAX : 0;
    }
}

static bool write_crop(const Crops *c, const char *name, const Image *image, const CocoResult *found, PixelRect r,
                       Err *err) {
  const size_t pixels = (size_t)(r.x2 - r.x1) * (size_t)(r.y2 - r.y1);
  const bool alpha = c->alpha && found->has_segm;
  const int channels = alpha ? 4 : 3;
  uint8_t *bytes = pictures_memory(&c->pictures, name, pixels * (size_t)(channels + 1), err);
  if (!bytes) return false;
  uint8_t *mask = alpha ? bytes + pixels * (size_t)channels : NULL;
  if (alpha) {
    Spans spans = spans_of(&found->rle, 0, 0);
    spans_bytes(&spans, r, mask);
    spans_free(&spans);
  }
  cut(image, r, mask, bytes);
  const PngPixels crop = {.h = r.y2 - r.y1, .w = r.x2 - r.x1, .channels = channels, .sample_bytes = 1, .bytes = bytes};
  const bool ok = pictures_write(&c->pictures, name, &crop, PNG_FAST, err);
  free(bytes);
  return ok;
}

bool crops_write(const Crops *c, const char *name, const Image *image, const CocoResult *found, int n, double least,
                 Err *err) {
  bool ok = true;
  for (int i = 0; i < n && ok; i++) {
    const PixelRect r = rect_of(&found[i], image->h, image->w);
    char text[CLASS_TEXT + 1];
    if (!(found[i].score >= least) || rect_empty(r)) continue;
    class_text(result_class_name(&c->classes, found[i].category_id), text);
    char *crop = xasprintf("%s-%04d-%s", name, i + 1, text);
    ok = write_crop(c, crop, image, &found[i], r, err);
    free(crop);
  }
  return ok;
}
