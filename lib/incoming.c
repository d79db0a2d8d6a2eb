#include "lib/incoming.h"
#include <stdint.h>
#include <string.h>
#include "data/images/image.h"
#include "lib/results.h"

static const struct {
  const char *name;
  int bytes;
} formats[] = {[MASKRCNN_RGB] = {"RGB", 3},   [MASKRCNN_BGR] = {"BGR", 3},       [MASKRCNN_RGBA] = {"RGBA", 4},
               [MASKRCNN_GREY] = {"GREY", 1}, [MASKRCNN_GREY16] = {"GREY16", 2}, [MASKRCNN_ENCODED] = {"ENCODED", 0}};

int format_bytes(maskrcnn_format format) { return formats[format].bytes; }

bool incoming_readable(const maskrcnn_image *images, int n, Err *err) {
  if (n < 0) return err_set(err, "n is %d: it must not be negative", n);
  if (n > 0 && !images) return err_set(err, "images is NULL, but n is %d", n);
  if (!n) return true;
  const size_t size = images->size, least = offsetof(maskrcnn_image, range_high) + sizeof images->range_high;
  if (size < least || size > 4096 || size % _Alignof(maskrcnn_image))
    return err_set(err, "images[0].size is %zu: it must be sizeof(maskrcnn_image) in every image", size);
  if (size > sizeof *images)
    return err_set(err, "images have %zu bytes, this library, %s, knows %zu of them: it is older than maskrcnn.h", size,
                   maskrcnn_version(), sizeof *images);
  for (int i = 1; i < n; i++) {
    size_t other;
    memcpy(&other, (const char *)images + (size_t)i * size, sizeof other);
    if (other != size)
      return err_set(err, "images[%d].size is %zu, images[0].size is %zu: they must be equal", i, other, size);
  }
  return true;
}

// ---- pixels ---------------------------------------------------------------------------------------------------------

static bool has_pixels(Incoming *in, Err *err) {
  maskrcnn_image *image = &in->image;
  const int64_t row = format_bytes(image->format) * (int64_t)image->width;
  if (image->height < 1 || image->width < 1)
    return err_set(err, "it has %d x %d pixels (width x height)", image->width, image->height);
  if (image->pitch && image->pitch < row)
    return err_set(err, "pitch is %lld, but rows of %d %s pixels have %lld bytes; 0 means dense rows",
                   (long long)image->pitch, image->width, formats[image->format].name, (long long)row);
  if (image->pitch > MAX_SPAN_BYTES / image->height)
    return err_set(err, "pitch is %lld: %d rows of it exceed the %lld GiB that an image may span",
                   (long long)image->pitch, image->height, (long long)(MAX_SPAN_BYTES >> 30));
  if (image->format == MASKRCNN_GREY16 && image->place == MASKRCNN_HOST &&
      ((uintptr_t)image->data % sizeof(uint16_t) || image->pitch % (int64_t)sizeof(uint16_t)))
    return err_set(err, "data or pitch is odd: samples of 16 bits must be aligned to 2 bytes");
  if (!image->pitch) image->pitch = row;
  in->h = image->height;
  in->w = image->width;
  return true;
}

static bool has_range(Incoming *in, const Opened *o, Err *err) {
  const int low = in->image.range_low, high = in->image.range_high;
  if (low < 0 || high >= SAMPLE_VALUES || (low >= high && (low || high)))
    return err_set(err, "its range is %d to %d: it must rise and lie within 0 to %d", low, high, SAMPLE_VALUES - 1);
  in->range = low || high ? (SampleRange){low, high} : (SampleRange){o->about.range_low, o->about.range_high};
  return true;
}

static bool has_file(Incoming *in, const Opened *o, Err *err) {
  const maskrcnn_image *image = &in->image;
  if (image->place != MASKRCNN_HOST) return err_set(err, "an encoded image must be in the host's memory");
  if (!image_measure(image->data, image->bytes, "the file in memory", &in->h, &in->w, err)) return false;
  in->orientation = o->upright ? image_orientation(image->data, image->bytes) : 1;
  if (in->orientation < IMAGE_TURNED) return true;
  const int stored = in->h;
  in->h = in->w;
  in->w = stored;
  return true;
}

bool incoming_measure(Incoming *in, const Opened *o, const maskrcnn_image *images, int i, Err *err) {
  *in = (Incoming){.orientation = 1};
  memcpy(&in->image, (const char *)images + (size_t)i * images->size, images->size);
  const maskrcnn_image *image = &in->image;
  if (image->format < MASKRCNN_RGB || image->format > MASKRCNN_ENCODED)
    return err_set(err, "format is %d: it must be one of maskrcnn_format", (int)image->format);
  if (image->place != MASKRCNN_HOST && image->place != MASKRCNN_GPU)
    return err_set(err, "place is %d: it must be one of maskrcnn_place", (int)image->place);
  if (image->format == MASKRCNN_ENCODED && !image->bytes)
    return err_set(err, "the file is empty: bytes is 0, and must be the length of a JPEG or PNG file");
  if (!image->data) return err_set(err, "data is NULL");
  if (image->place == MASKRCNN_GPU && !o->gpu)
    return err_set(err, "place is MASKRCNN_GPU, but the handle computes on the CPU");
  if (!has_range(in, o, err)) return false;
  return image->format == MASKRCNN_ENCODED ? has_file(in, o, err) : has_pixels(in, err);
}

bool incoming_read(Incoming *in, const Opened *o, const maskrcnn_image *images, int i, Err *err) {
  if (!incoming_measure(in, o, images, i, err)) return false;
  if ((int64_t)in->h * in->w > o->max_pixels)
    return err_set(err,
                   "it has %d x %d pixels, more than max_pixels (%lld): scale it down or open with a larger max_pixels",
                   in->w, in->h, (long long)o->max_pixels);
  in->by = opened_shrink(o, in->h, in->w);
  in->canvas = opened_canvas(o, in->h / in->by, in->w / in->by, &in->size, err);
  return in->canvas >= 0;
}
