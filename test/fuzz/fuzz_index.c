// Catches an index of annotations that is forged and leads out of its arrays.
//
// Fuzzes the reader of indexes behind its sums, which are set to what the contents have. Seeds: test/corpus/index: the
// numbers of a data set, the length of each array as 16 bits, the arrays, and what is added to each array's place and
// length in the file.
#include <string.h>
#include "base/alloc.h"
#include "base/digest.h"
#include "data/coco/coco_index_file.h"
#include "test/fuzz/memory_file.h"

typedef struct Input {
  const uint8_t *at, *end;
} Input;

static void take(Input *in, void *to, size_t size) {
  const size_t n = MIN(size, (size_t)(in->end - in->at));
  memset(to, 0, size);
  memcpy(to, in->at, n);
  in->at += n;
}

static size_t lay_out(char *file, Input *in) {
  IndexHeader *h = (IndexHeader *)file;
  uint16_t length[INDEX_ARRAYS];
  memcpy(h->magic, INDEX_MAGIC, sizeof h->magic);
  h->version = INDEX_VERSION;
  h->layout[0] = sizeof(Coco);
  h->layout[1] = sizeof(CocoImage);
  h->layout[2] = sizeof(CocoAnn);
  take(in, &h->coco, sizeof h->coco);
  take(in, length, sizeof length);
  size_t size = sizeof *h;
  for (int i = 0; i < INDEX_ARRAYS; i++) {
    h->array[i].at = (size + INDEX_ALIGNMENT - 1) / INDEX_ALIGNMENT * INDEX_ALIGNMENT;
    h->array[i].bytes = length[i];
    take(in, file + h->array[i].at, length[i]);
    h->array[i].digest = digest_all(file + h->array[i].at, length[i]);
    size = h->array[i].at + length[i];
  }
  for (int i = 0; i < INDEX_ARRAYS; i++) {
    uint64_t more[2];
    take(in, more, sizeof more);
    h->array[i].at += more[0];
    h->array[i].bytes += more[1];
  }
  h->digest = digest_all(h, offsetof(IndexHeader, digest));
  return size;
}

static void use(const Coco *c) {
  for (int i = 0; i < c->num_images; i++) {
    const CocoImage *im = &c->images[i];
    CHECK(coco_find_image(c, im->id) == i && (!im->file_name || strlen(im->file_name) < 1 << 16));
    for (int a = im->first_ann; a < im->first_ann + im->anns; a++) {
      Rle mask;
      if (coco_ann_rle(c, &c->anns[a], 7, 3, &mask)) CHECK(rle_area(&mask) <= 21);
      rle_free(&mask);
    }
  }
  for (int k = 0; k < c->num_categories; k++) CHECK(strlen(c->categories[k].name) < 1 << 16);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  static char *file; // the header and arrays of 64 KiB each, aligned
  if (!file) file = xcalloc(2 * INDEX_ARRAYS + 1, INDEX_ALIGNMENT);
  memset(file, 0, sizeof(IndexHeader));
  Coco c;
  const size_t length = lay_out(file, &(Input){bytes, bytes + size});
  const int fd = open(memory_file(file, length), O_RDONLY | O_CLOEXEC);
  CHECK(fd >= 0);
  if (index_map(&c, fd, "index", &(IndexSource){0})) {
    use(&c);
    coco_free(&c);
  }
  close(fd);
  return 0;
}
