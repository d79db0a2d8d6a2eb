#include "data/images/image.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/foreign.h"
#include "base/regular.h"
#include "data/images/jpeg.h"
#include "data/images/jpeg_decode.h"
#include "data/images/png_exif.h"
#include "data/images/png_read.h"

Image image_alloc(int h, int w) { return (Image){h, w, xcalloc((size_t)h * w, 3)}; }

void image_free(Image *im) {
  free(im->rgb);
  *im = (Image){0};
}

// Refuses a file that is neither JPEG nor PNG, naming its format if known.
static bool refuse_other(const uint8_t *bytes, size_t size, ImageFault *fault) {
  const char *what = foreign_file(bytes, size);
  if (!what) what = size == 0 ? "the file is empty; copy or download it again" : "not a JPEG or PNG file; convert it";
  return fault_set(fault, FAULT_UNSUPPORTED, "%s", what);
}

// The size in the header; false if it cannot be read. *least: bytes of a file that holds as many pixels, or fewer.
static bool read_header(const uint8_t *bytes, size_t size, int *h, int *w, int64_t *least, ImageFault *fault) {
  JpegFrame frame;
  PngHeader png;
  if (jpeg_is(bytes, size)) {
    if (!jpeg_frame(bytes, size, &frame, fault)) return false;
    *h = frame.h;
    *w = frame.w;
    *least = frame.least;
    return true;
  }
  if (!png_is(bytes, size)) return refuse_other(bytes, size, fault);
  if (!png_header(bytes, size, &png, fault)) return false;
  *h = png.h;
  *w = png.w;
  *least = png.least;
  return true;
}

// Refuses a file with a message: the likely cause and what to do.
static bool refuse(const char *name, const ImageFault *fault, Err *err) {
  switch (fault->type) {
  case FAULT_CUT:
    return err_set(err, "%s: cannot read the image: the file is truncated (%s); copy or download it again", name,
                   fault->text);
  case FAULT_UNSUPPORTED: return err_set(err, "%s: cannot read the image: %s", name, fault->text);
  default:
    return err_set(err, "%s: cannot read the image: corrupt (%s); copy or download it again, or remove it", name,
                   fault->text);
  }
}

static bool refuse_without_memory(const char *name, size_t bytes, Err *err) {
  char what[512];
  snprintf(what, sizeof what, "the pixels of %s", name);
  return err_memory(err, bytes, what, NULL);
}

static bool size_ok(int h, int w, const char *name, Err *err) {
  if (h > 0 && w > 0 && (int64_t)h * w <= IMAGE_MAX_PIXELS) return true;
  if (h <= 0 || w <= 0)
    return err_set(err,
                   "%s: cannot read the image: its header says %d×%d pixels; copy or download it again, or remove it",
                   name, w, h);
  return err_set(err,
                 "%s: cannot read the image: its header says %d×%d pixels, more than the maximum of %d; downscale it",
                 name, w, h, IMAGE_MAX_PIXELS);
}

// From the first `size` bytes of a file of `total`.
static bool measure(const uint8_t *bytes, size_t size, int64_t total, const char *name, int *h, int *w, Err *err) {
  ImageFault fault;
  int64_t least = 0;
  if (!read_header(bytes, size, h, w, &least, &fault)) return refuse(name, &fault, err);
  if (!size_ok(*h, *w, name, err)) return false;
  if (total >= least) return true;
  fault_set(&fault, FAULT_CUT, "%lld bytes are too few for %d×%d pixels", (long long)total, *w, *h);
  return refuse(name, &fault, err);
}

bool image_measure(const uint8_t *bytes, size_t size, const char *name, int *h, int *w, Err *err) {
  return measure(bytes, size, (int64_t)size, name, h, w, err);
}

// As jpeg_orientation.
static int find_orientation(const uint8_t *bytes, size_t size) {
  return jpeg_is(bytes, size) ? jpeg_orientation(bytes, size) : png_is(bytes, size) ? png_orientation(bytes, size) : 0;
}

int image_orientation(const uint8_t *bytes, size_t size) { return MAX(find_orientation(bytes, size), 1); }

bool image_header(const char *path, bool exact, int *h, int *w, int *orientation, Err *err) {
  const int64_t total = file_length(path);
  if (total < 0) return err_set(err, "cannot open %s: no such file, or not a regular file", path);
  uint8_t start[4096]; // enough for most; long metadata, or an orientation behind the pixels, needs the whole file
  const int file = input_open(path, NULL);
  const ssize_t got = file >= 0 ? read(file, start, sizeof start) : 0;
  size_t size = got > 0 ? (size_t)got : 0;
  if (file >= 0) close(file);
  char *whole = NULL;
  const uint8_t *bytes = start;
  ImageFault fault;
  int64_t least = 0;
  if (!read_header(start, size, h, w, &least, &fault) || (exact && find_orientation(start, size) < 0)) {
    if (!(whole = file_read(path, &size, err))) return false;
    bytes = (const uint8_t *)whole;
  }
  const bool ok = measure(bytes, size, whole ? (int64_t)size : total, path, h, w, err);
  if (ok) *orientation = image_orientation(bytes, size);
  free(whole);
  return ok;
}

bool image_info(const char *path, bool upright, int *h, int *w, Err *err) {
  int orientation;
  if (!image_header(path, upright, h, w, &orientation, err)) return false;
  if (!upright || orientation < IMAGE_TURNED) return true;
  const int stored = *h;
  *h = *w;
  *w = stored;
  return true;
}

// Rows of an image of h × w that is rotated upright.
static RowTarget upright(uint8_t *rgb, int h, int w, int orientation) {
  const bool from_bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool turned = orientation >= IMAGE_TURNED; // rows become columns
  const ptrdiff_t down = turned ? 3 : 3 * (ptrdiff_t)w, right = turned ? 3 * (ptrdiff_t)h : 3;
  return (RowTarget){.memory = rgb,
                     .first = rgb + (from_bottom ? (h - 1) * down : 0) + (from_right ? (w - 1) * right : 0),
                     .down = from_bottom ? -down : down,
                     .right = from_right ? -right : right};
}

bool image_decode_into(uint8_t *rgb, int orientation, SampleRange range, const uint8_t *bytes, size_t size,
                       Scratch *scratch, const char *name, Err *err) {
  int h = 0, w = 0;
  if (!image_measure(bytes, size, name, &h, &w, err)) return false;
  ImageFault fault;
  const RowTarget to = upright(rgb, h, w, orientation);
  const bool ok = jpeg_is(bytes, size) ? jpeg_decode(&to, bytes, size, scratch, &fault)
                                       : png_read(&to, range, bytes, size, scratch, &fault);
  if (!ok && scratch->lacking) return refuse_without_memory(name, scratch->lacking, err);
  return ok || refuse(name, &fault, err);
}

static bool decode_owned(Image *im, bool upright, SampleRange range, const uint8_t *bytes, size_t size,
                         const char *name, Err *err) {
  *im = (Image){0};
  int h = 0, w = 0;
  if (!image_measure(bytes, size, name, &h, &w, err)) return false;
  const int orientation = upright ? image_orientation(bytes, size) : 1;
  const bool turned = orientation >= IMAGE_TURNED;
  *im = (Image){.h = turned ? w : h, .w = turned ? h : w, .rgb = malloc((size_t)h * w * 3)};
  if (!im->rgb) return refuse_without_memory(name, (size_t)h * w * 3, err);
  Scratch scratch = {0};
  bool ok = image_decode_into(im->rgb, orientation, range, bytes, size, &scratch, name, err);
  scratch_free(&scratch);
  if (!ok) image_free(im);
  return ok;
}

bool image_decode(Image *im, const uint8_t *bytes, size_t size, const char *name, Err *err) {
  return decode_owned(im, false, (SampleRange){0}, bytes, size, name, err);
}

bool image_load_as(Image *im, const char *path, bool upright, SampleRange range, Err *err) {
  *im = (Image){0};
  size_t size;
  Scratch file = {0};
  const uint8_t *bytes = scratch_read_file(&file, path, &size, err);
  bool ok = bytes && decode_owned(im, upright, range, bytes, size, path, err);
  scratch_free(&file);
  return ok;
}

bool image_load(Image *im, const char *path, Err *err) { return image_load_as(im, path, false, (SampleRange){0}, err); }

bool image_has_16_bits(const uint8_t *bytes, size_t size) {
  PngHeader png;
  ImageFault fault;
  return png_is(bytes, size) && png_header(bytes, size, &png, &fault) && png.bits == 16;
}

bool image_file_has_16_bits(const char *path) {
  enum { HEADER = 33 }; // signature and IHDR
  uint8_t start[HEADER];
  const int file = path_is_file(path) ? input_open(path, NULL) : -1;
  const ssize_t size = file >= 0 ? read(file, start, sizeof start) : -1;
  if (file >= 0) close(file);
  return size == HEADER && image_has_16_bits(start, HEADER);
}

bool image_count_samples(uint32_t *count, const char *path, Scratch *scratch, Err *err) {
  size_t size;
  int h, w;
  ImageFault fault;
  const uint8_t *bytes = scratch_read_file(scratch, path, &size, err);
  if (!bytes || !image_measure(bytes, size, path, &h, &w, err)) return false;
  if (!png_is(bytes, size) || png_count(count, bytes, size, scratch, &fault)) return true;
  if (scratch->lacking) return refuse_without_memory(path, scratch->lacking, err);
  return refuse(path, &fault, err);
}
