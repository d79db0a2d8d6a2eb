#include "data/coco/coco_index_file.h"
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/digest.h"
#include "base/mapped.h"
#include "base/parallel.h"
#include "data/coco/coco_index_check.h"

// The names of images and categories: NUL-terminated, one after another. In the file, a name's pointer is its offset
// among them plus 1; NULL stays NULL.
typedef struct IndexNames {
  char *text;
  size_t bytes, cap;
} IndexNames;

// The start and the size in bytes of a data set's array.
typedef struct IndexArray {
  void **start;
  size_t bytes;
  bool fits; // the count of its items is none that its bytes could not hold
} IndexArray;

static IndexArray array_of(void *start, size_t n, size_t size) {
  return (IndexArray){(void **)start, n * size, n <= PTRDIFF_MAX / size};
}

static void list_arrays(Coco *c, IndexNames *names, IndexArray list[INDEX_ARRAYS]) {
  list[INDEX_IMAGES] = array_of(&c->images, (size_t)c->num_images, sizeof *c->images);
  list[INDEX_CATEGORIES] = array_of(&c->categories, (size_t)c->num_categories, sizeof *c->categories);
  list[INDEX_ANNS] = array_of(&c->anns, (size_t)c->num_anns, sizeof *c->anns);
  list[INDEX_PART_POINTS] = array_of(&c->part_points, (size_t)c->num_parts, sizeof *c->part_points);
  list[INDEX_PART_FIRST] = array_of(&c->part_first, (size_t)c->num_parts, sizeof *c->part_first);
  list[INDEX_XY] = array_of(&c->xy, c->num_xy, sizeof *c->xy);
  list[INDEX_RUNS] = array_of(&c->runs, c->num_runs, sizeof *c->runs);
  list[INDEX_BROKEN] = array_of(&c->broken, (size_t)c->num_broken, sizeof *c->broken);
  list[INDEX_NAMES] = array_of(&names->text, names->bytes, 1);
}

// Digests

typedef struct FileBlocks {
  int fd;
  uint64_t at;
  size_t bytes;
  char *buffer; // [threads][DIGEST_BLOCK]
  uint64_t *digest;
  atomic_bool failed; // a block could not be read
} FileBlocks;

static void digest_one_block(void *of, int i, int thread) {
  FileBlocks *f = of;
  const size_t begin = (size_t)i * DIGEST_BLOCK, n = MIN(f->bytes - begin, DIGEST_BLOCK);
  char *buffer = f->buffer + (size_t)thread * DIGEST_BLOCK;
  if (pread(f->fd, buffer, n, (off_t)(f->at + begin)) == (ssize_t)n)
    f->digest[i] = digest_block(buffer, n, 0);
  else
    atomic_store(&f->failed, true);
}

// Whether bytes of a file have this digest. They are read, not mapped, because page faults on half a gigabyte take
// longer than copying it.
static bool digest_matches(int fd, uint64_t at, size_t bytes, uint64_t digest) {
  const int blocks = (int)digest_blocks(bytes), threads = parallel_threads(blocks);
  FileBlocks f = {.fd = fd, .at = at, .bytes = bytes, .buffer = xmalloc((size_t)threads * DIGEST_BLOCK)};
  f.digest = xmalloc((size_t)blocks * sizeof *f.digest);
  parallel_for(blocks, threads, digest_one_block, &f);
  const bool same = !f.failed && digest_join(f.digest, (size_t)blocks) == digest;
  free(f.digest);
  free(f.buffer);
  return same;
}

static bool same_source(const IndexSource *a, const IndexSource *b) { return memcmp(a, b, sizeof *a) == 0; }

// Reading

static bool header_fits(const IndexHeader *h, const IndexSource *source, int64_t file_bytes) {
  if (memcmp(h->magic, INDEX_MAGIC, sizeof h->magic) != 0 || h->version != INDEX_VERSION) return false;
  if (h->layout[0] != sizeof(Coco) || h->layout[1] != sizeof(CocoImage) || h->layout[2] != sizeof(CocoAnn))
    return false;
  if (h->digest != digest_all(h, offsetof(IndexHeader, digest)) || !same_source(&h->source, source)) return false;
  uint64_t end = sizeof *h; // of the array before
  for (int i = 0; i < INDEX_ARRAYS; i++) {
    const uint64_t at = h->array[i].at, bytes = h->array[i].bytes;
    if (at % INDEX_ALIGNMENT || at < end || at > (uint64_t)file_bytes || bytes > (uint64_t)file_bytes - at)
      return false;
    end = at + bytes;
  }
  return true;
}

static char *name_at(const IndexNames *names, const char *stored) {
  return stored ? names->text + ((uintptr_t)stored - 1) : NULL;
}

// Points the arrays into the map; false if any of them differs from what was written, or could not have been parsed.
static bool take_arrays(Coco *c, const IndexHeader *h, int fd) {
  IndexNames names = {.bytes = h->array[INDEX_NAMES].bytes};
  IndexArray list[INDEX_ARRAYS];
  list_arrays(c, &names, list);
  for (int i = 0; i < INDEX_ARRAYS; i++) {
    *list[i].start = (char *)c->map + h->array[i].at;
    if (!list[i].fits || list[i].bytes != h->array[i].bytes ||
        !digest_matches(fd, h->array[i].at, list[i].bytes, h->array[i].digest))
      return false;
  }
  if (!coco_index_is_sound(c, names.text, names.bytes)) return false;
  // Each process has its own copy only of names, of sizes read from image files, and of the treatment of crowds.
  if (mprotect(c->images, h->array[INDEX_PART_POINTS].at - h->array[INDEX_IMAGES].at, PROT_READ | PROT_WRITE) != 0)
    return false;
  for (int i = 0; i < c->num_images; i++) {
    c->images[i].file_name = name_at(&names, c->images[i].file_name);
    c->images[i].text_id = name_at(&names, c->images[i].text_id);
  }
  for (int i = 0; i < c->num_categories; i++) {
    c->categories[i].name = name_at(&names, c->categories[i].name);
    c->categories[i].text_id = name_at(&names, c->categories[i].text_id);
  }
  return true;
}

bool index_map(Coco *c, int file, const char *index, const IndexSource *source) {
  IndexHeader h;
  struct stat st;
  if (fstat(file, &st) != 0 || pread(file, &h, sizeof h, 0) != sizeof h || !header_fits(&h, source, st.st_size))
    return false;
  *c = h.coco;
  c->path = c->origin = NULL;
  c->own_categories = false;
  c->map_bytes = (size_t)st.st_size;
  c->map = mapped_open(file, c->map_bytes, index);
  if (c->map && take_arrays(c, &h, file)) return true;
  if (c->map) mapped_close(c->map, c->map_bytes);
  return false;
}

// Writing

static bool write_at(int fd, const void *p, size_t bytes, uint64_t at) {
  for (size_t done = 0; done < bytes;) {
    ssize_t n = pwrite(fd, (const char *)p + done, bytes - done, (off_t)(at + done));
    if (n < 0 && errno != EINTR) return false;
    if (n > 0) done += (size_t)n;
  }
  return true;
}

static char *add_name(IndexNames *names, const char *name) {
  if (!name) return NULL;
  size_t at = names->bytes, bytes = strlen(name) + 1;
  array_reserve((void **)&names->text, &names->cap, at + bytes, 1);
  memcpy(names->text + at, name, bytes);
  names->bytes += bytes;
  return (char *)(uintptr_t)(at + 1);
}

static void *copy_of(const void *items, size_t bytes) {
  return bytes > 0 ? memcpy(xmalloc(bytes), items, bytes) : NULL;
}

// Copies arrays that contain pointers, with offsets in their place.
static void flatten(Coco *flat, IndexNames *names, const Coco *c) {
  *flat = *c;
  flat->images = copy_of(c->images, (size_t)c->num_images * sizeof *c->images);
  flat->categories = copy_of(c->categories, (size_t)c->num_categories * sizeof *c->categories);
  for (int i = 0; i < c->num_images; i++) {
    flat->images[i].file_name = add_name(names, c->images[i].file_name);
    flat->images[i].text_id = add_name(names, c->images[i].text_id);
  }
  for (int i = 0; i < c->num_categories; i++) {
    flat->categories[i].name = add_name(names, c->categories[i].name);
    flat->categories[i].text_id = add_name(names, c->categories[i].text_id);
  }
}

static bool write_arrays(int fd, IndexHeader *h, const IndexArray list[INDEX_ARRAYS]) {
  uint64_t at = sizeof *h;
  for (int i = 0; i < INDEX_ARRAYS; i++) {
    at = (at + INDEX_ALIGNMENT - 1) / INDEX_ALIGNMENT * INDEX_ALIGNMENT;
    h->array[i].at = at;
    h->array[i].bytes = list[i].bytes;
    h->array[i].digest = digest_all(*list[i].start, list[i].bytes);
    if (!write_at(fd, *list[i].start, list[i].bytes, at)) return false;
    at += list[i].bytes;
  }
  struct stat st; // the file has this size even if the last arrays are empty
  return fstat(fd, &st) == 0 && ((uint64_t)st.st_size >= at || write_at(fd, "", 1, at - 1));
}

bool index_write(int fd, const Coco *c, const IndexSource *source) {
  IndexHeader h;
  memset(&h, 0, sizeof h); // including padding
  memcpy(h.magic, INDEX_MAGIC, sizeof h.magic);
  h.version = INDEX_VERSION;
  h.layout[0] = sizeof(Coco);
  h.layout[1] = sizeof(CocoImage);
  h.layout[2] = sizeof(CocoAnn);
  h.source = *source;
  Coco flat;
  IndexNames names = {0};
  IndexArray list[INDEX_ARRAYS];
  flatten(&flat, &names, c);
  list_arrays(&flat, &names, list);
  bool ok = write_arrays(fd, &h, list);
  free(flat.images);
  free(flat.categories);
  free(names.text);
  for (int i = 0; i < INDEX_ARRAYS; i++) *list[i].start = NULL;
  flat.path = NULL;
  h.coco = flat;
  h.digest = digest_all(&h, offsetof(IndexHeader, digest));
  return ok && write_at(fd, &h, sizeof h, 0);
}
