#include "data/import/samples_file.h"
#include <stdlib.h>
#include "base/alloc.h"
#include "base/file.h"
#include "data/images/image.h"
#include "data/images/png_read.h"
#include "data/import/tiff.h"

bool samples_decode(Samples *s, const uint8_t *bytes, size_t size, const char *name, Err *err) {
  int h, w;
  ImageFault fault;
  Scratch scratch = {0};
  *s = (Samples){0};
  if (!png_is(bytes, size)) return err_set(err, "%s: expected a PNG", name);
  if (!image_measure(bytes, size, name, &h, &w, err)) return false;
  bool ok = png_samples(s, bytes, size, &scratch, &fault);
  if (!ok) err_set(err, "%s: cannot read the image: %s", name, fault.text);
  if (!ok) samples_free(s);
  scratch_free(&scratch);
  return ok;
}

bool samples_load(Samples *s, const char *path, Err *err) {
  size_t size;
  char *bytes = file_read(path, &size, err);
  const bool ok = bytes && (tiff_is((const uint8_t *)bytes, size) ? tiff_decode : samples_decode)(
                               s, (const uint8_t *)bytes, size, path, err);
  free(bytes);
  return ok;
}

void samples_free(Samples *s) {
  free(s->v);
  *s = (Samples){0};
}
