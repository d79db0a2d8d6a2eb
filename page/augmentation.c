#include "page/augmentation.h"
#include <stdlib.h>
#include "base/record.h"
#include "data/pictures/augmented.h"
#include "page/data_uri.h"

enum { SIDE = 640 }; // longer side of a picture before masks are drawn, in pixels

// Adds the picture's address; frees the picture.
static bool record_picture(Record *r, const char *key, Jpeg picture, PictureFolder *folder, Err *err) {
  char *address = NULL;
  bool ok = true;
  if (picture.bytes && folder)
    ok = picture_folder_add(folder, &picture, &address, err);
  else if (picture.bytes)
    address = data_uri(picture.bytes, picture.size);
  record_str(r, key, address);
  free(address);
  free(picture.bytes);
  return ok;
}

static bool record_pair(Record *r, const Dataset *d, const Batch *b, PictureFolder *folder, Err *err) {
  const int i = b->index[0];
  Thumbnail t;
  Jpeg before = {0};
  if (!thumbnail_open(&t, d, i, SIDE, err)) return false;
  before = d->type->mapped ? thumbnail_plain(&t) : thumbnail_truth(&t, d, i);
  thumbnail_close(&t);
  record_begin(r);
  record_str(r, "file", d->coco.images[d->image[i]].file_name);
  const bool ok = record_picture(r, "before", before, folder, err) &&
                  record_picture(r, "after", augmented_picture(d, b, 0), folder, err);
  record_end(r);
  return ok;
}

bool augmentation_write(Document *to, const Diagnosis *f, const Augment *a, int max, PictureFolder *folder, Err *err) {
  const Dataset *d = f->split[0].data;
  const LoaderOptions options = {
      .batch = 1, .world = 1, .seed = 1, .train = true, .masks = true, .augment = *a, .threads = 2, .prefetch = 2};
  document_jsons(to, "[");
  Loader *l = d ? loader_open(d, &options, err) : NULL;
  bool ok = l || !d;
  Record r = {0};
  for (int64_t step = 0; l && ok && step < MIN(max, loader_steps_per_epoch(l)); step++) {
    const Batch *b = loader_next(l, err);
    ok = b && record_pair(&r, d, b, folder, err);
    if (!ok) break;
    document_jsons(to, step ? ",\n" : "\n");
    document_jsons(to, r.text);
  }
  record_free(&r);
  loader_close(l);
  document_jsons(to, "]");
  return ok;
}
