#include "nn/batch.h"
#include <string.h>

#define IS_FLOAT(element) _Generic((element){0}, float : 1, default : 0)
#define BATCH_ROW(constant, member, element, extent, each)                                                             \
  [constant] = {#member, extent, each, sizeof(element), IS_FLOAT(element), offsetof(Batch, member)},
const BatchLayout batch_layout[BATCH_ARRAYS] = {EACH_BATCH_ARRAY(BATCH_ROW)};

BatchSize batch_size(const Batch *b) { return (BatchSize){b->images, b->capacity, b->num_bytes, b->num_words}; }

size_t batch_elements(const BatchSize *size, BatchArray array) {
  const size_t images = (size_t)size->images;
  const size_t extent[] = {[PER_IMAGE] = images,
                           [PER_OBJECT] = images * (size_t)size->capacity,
                           [PER_BYTE] = (size_t)size->bytes,
                           [PER_WORD] = (size_t)size->words};
  return extent[batch_layout[array].extent] * batch_layout[array].each;
}

static void **member(const Batch *b, BatchArray array) {
  return (void **)(void *)((char *)(uintptr_t)b + batch_layout[array].member);
}

void *batch_array(const Batch *b, BatchArray array) { return *member(b, array); }

void batch_set_array(Batch *b, BatchArray array, void *p) { *member(b, array) = p; }

void batch_clear(Batch *b, int position) {
  const BatchSize one = {.images = 1, .capacity = b->capacity};
  for (BatchArray a = 0; a < BATCH_ARRAYS; a++) {
    size_t bytes = batch_elements(&one, a) * batch_layout[a].element; // none of those that are not by image or object
    if (bytes) memset((char *)batch_array(b, a) + (size_t)position * bytes, 0, bytes);
  }
  b->index[position] = -1;
}
