// The index of an annotation file: a header, then the arrays of struct Coco as in memory, one after another.
#include "data/coco/coco_index.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mapped.h"
#include "base/parallel.h"
#include "base/regular.h"
#include "base/rng.h"

// ALIGNMENT: of an array in the file, a multiple of every machine's page size.
enum { VERSION = 7, ALIGNMENT = 1 << 16, BLOCK = 1 << 20 };
static const char magic[] = "maskrcnn.c index"; // stored without its NUL

typedef enum ArrayId { IMAGES, CATEGORIES, ANNS, PART_POINTS, PART_FIRST, XY, RUNS, BROKEN, NAMES, ARRAYS } ArrayId;

typedef struct IndexSource {                   // identifies the file that was parsed
  int64_t inode, size, written[2], changed[2]; // seconds, nanoseconds
} IndexSource;

typedef struct IndexHeader {
  char magic[sizeof magic - 1];
  uint32_t version, layout[3]; // sizes of structs, which change when a field is added
  IndexSource source;
  Coco coco; // numbers only; pointers are NULL
  struct {
    uint64_t at, bytes, sum;
  } array[ARRAYS];
  uint64_t sum; // checksum of all the members above
} IndexHeader;

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
} IndexArray;

static void list_arrays(Coco *c, IndexNames *names, IndexArray list[ARRAYS]) {
  list[IMAGES] = (IndexArray){(void **)&c->images, (size_t)c->num_images * sizeof *c->images};
  list[CATEGORIES] = (IndexArray){(void **)&c->categories, (size_t)c->num_categories * sizeof *c->categories};
  list[ANNS] = (IndexArray){(void **)&c->anns, (size_t)c->num_anns * sizeof *c->anns};
  list[PART_POINTS] = (IndexArray){(void **)&c->part_points, (size_t)c->num_parts * sizeof *c->part_points};
  list[PART_FIRST] = (IndexArray){(void **)&c->part_first, (size_t)c->num_parts * sizeof *c->part_first};
  list[XY] = (IndexArray){(void **)&c->xy, c->num_xy * sizeof *c->xy};
  list[RUNS] = (IndexArray){(void **)&c->runs, c->num_runs * sizeof *c->runs};
  list[BROKEN] = (IndexArray){(void **)&c->broken, (size_t)c->num_broken * sizeof *c->broken};
  list[NAMES] = (IndexArray){(void **)&names->text, names->bytes};
}

// Sums

// Each step is a bijection of both the word and the state, so that any single changed word is detected.
static uint64_t sum_block(const char *p, size_t bytes) {
  enum { LANES = 8 };
  uint64_t lane[LANES] = {0}, word[LANES], sum = bytes;
  for (size_t at = 0; at < bytes; at += sizeof word) {
    size_t left = MIN(bytes - at, sizeof word);
    if (left < sizeof word) memset(word, 0, sizeof word);
    memcpy(word, p + at, left);
    for (int k = 0; k < LANES; k++) {
      lane[k] = (lane[k] ^ word[k]) * 0x9e3779b97f4a7c15u;
      lane[k] ^= lane[k] >> 32;
    }
  }
  for (int k = 0; k < LANES; k++) sum = rng_key(sum, lane[k]);
  return sum;
}

typedef struct BlockSums {
  const char *p; // NULL: a file is summed
  int fd;
  uint64_t at;
  size_t bytes;
  char *buffer;       // for a file: [threads][BLOCK]
  uint64_t *sum;      // [blocks]
  atomic_bool failed; // a block could not be read
} BlockSums;

static void sum_one_block(void *of, int i, int thread) {
  BlockSums *s = of;
  const size_t begin = (size_t)i * BLOCK, n = MIN(s->bytes - begin, BLOCK);
  char *buffer = s->p ? NULL : s->buffer + (size_t)thread * BLOCK;
  if (buffer && pread(s->fd, buffer, n, (off_t)(s->at + begin)) != (ssize_t)n)
    atomic_store(&s->failed, true);
  else
    s->sum[i] = sum_block(buffer ? buffer : s->p + begin, n);
}

// The checksum of memory or, if p is NULL, of a file's bytes from `at` on. The file is read, not mapped, because page
// faults on half a gigabyte take longer than copying it. 0 if reading fails.
static uint64_t checksum(const void *p, int fd, uint64_t at, size_t bytes) {
  const int blocks = (int)((bytes + BLOCK - 1) / BLOCK), threads = parallel_threads(blocks);
  BlockSums s = {.p = p, .fd = fd, .at = at, .bytes = bytes};
  if (!p) s.buffer = xmalloc((size_t)threads * BLOCK);
  s.sum = xmalloc((size_t)blocks * sizeof *s.sum);
  parallel_for(blocks, threads, sum_one_block, &s);
  uint64_t sum = bytes;
  for (int i = 0; !s.failed && i < blocks; i++) sum = rng_key(sum, s.sum[i]);
  free(s.sum);
  free(s.buffer);
  return s.failed ? 0 : sum;
}

// The source

static bool source_of(const char *path, IndexSource *s) {
  struct stat st;
  if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return false;
  *s = (IndexSource){.inode = (int64_t)st.st_ino,
                     .size = st.st_size,
                     .written = {st.st_mtim.tv_sec, st.st_mtim.tv_nsec},
                     .changed = {st.st_ctim.tv_sec, st.st_ctim.tv_nsec}};
  return true;
}

static bool same_source(const IndexSource *a, const IndexSource *b) { return memcmp(a, b, sizeof *a) == 0; }

// Whether a later change of the file is sure to have another time: timestamps have a resolution of up to ten
// milliseconds.
static bool source_settled(const IndexSource *s) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (double)(now.tv_sec - s->changed[0]) + 1e-9 * (double)(now.tv_nsec - s->changed[1]) > 0.1;
}

static const char *name_of(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

// The path of the index; NULL if the source does not exist.
static char *index_path(const char *folder, const char *source) {
  char *real = realpath(source, NULL);
  if (!real) return NULL;
  uint64_t hash = sum_block(real, strlen(real));
  free(real);
  return xasprintf("%s/index-%016llx.coco", folder, (unsigned long long)hash);
}

// Reading

static bool header_fits(const IndexHeader *h, const IndexSource *source, int64_t file_bytes) {
  if (memcmp(h->magic, magic, sizeof h->magic) != 0 || h->version != VERSION) return false;
  if (h->layout[0] != sizeof(Coco) || h->layout[1] != sizeof(CocoImage) || h->layout[2] != sizeof(CocoAnn))
    return false;
  if (h->sum != checksum(h, -1, 0, offsetof(IndexHeader, sum)) || !same_source(&h->source, source)) return false;
  for (int i = 0; i < ARRAYS; i++)
    if (h->array[i].at + h->array[i].bytes > (uint64_t)file_bytes) return false;
  return true;
}

static char *name_at(const IndexNames *names, const char *stored) {
  return stored ? names->text + ((uintptr_t)stored - 1) : NULL;
}

// Points the arrays into the map; false if any of them differs from what was written.
static bool take_arrays(Coco *c, const IndexHeader *h, int fd) {
  IndexNames names = {.bytes = h->array[NAMES].bytes};
  IndexArray list[ARRAYS];
  list_arrays(c, &names, list);
  for (int i = 0; i < ARRAYS; i++) {
    *list[i].start = (char *)c->map + h->array[i].at;
    if (list[i].bytes != h->array[i].bytes || checksum(NULL, fd, h->array[i].at, list[i].bytes) != h->array[i].sum)
      return false;
  }
  // Each process has its own copy only of names, of sizes read from image files, and of the treatment of crowds.
  if (mprotect(c->images, h->array[PART_POINTS].at - h->array[IMAGES].at, PROT_READ | PROT_WRITE) != 0) return false;
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

// Maps the data set of an index, if the index is intact and belongs to this source.
static bool map_index(Coco *c, const char *index, const char *path, const IndexSource *source) {
  IndexHeader h;
  struct stat st;
  int fd = regular_open(index, O_RDONLY | O_NOFOLLOW, NULL);
  if (fd < 0) return false;
  bool ok = fstat(fd, &st) == 0 && pread(fd, &h, sizeof h, 0) == sizeof h && header_fits(&h, source, st.st_size);
  if (ok) {
    *c = h.coco;
    c->map_bytes = (size_t)st.st_size;
    c->map = mapped_open(fd, c->map_bytes, index);
    ok = c->map;
    if (ok && !take_arrays(c, &h, fd)) {
      mapped_close(c->map, c->map_bytes);
      ok = false;
    }
  }
  close(fd);
  if (ok) c->path = xstrdup(path);
  return ok;
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

static bool write_arrays(int fd, IndexHeader *h, const IndexArray list[ARRAYS]) {
  uint64_t at = sizeof *h;
  for (int i = 0; i < ARRAYS; i++) {
    at = (at + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    h->array[i].at = at;
    h->array[i].bytes = list[i].bytes;
    h->array[i].sum = checksum(*list[i].start, -1, 0, list[i].bytes);
    if (!write_at(fd, *list[i].start, list[i].bytes, at)) return false;
    at += list[i].bytes;
  }
  struct stat st; // the file has this size even if the last arrays are empty
  return fstat(fd, &st) == 0 && ((uint64_t)st.st_size >= at || write_at(fd, "", 1, at - 1));
}

static bool write_index(int fd, const Coco *c, const IndexSource *source) {
  IndexHeader h;
  memset(&h, 0, sizeof h); // including padding
  memcpy(h.magic, magic, sizeof h.magic);
  h.version = VERSION;
  h.layout[0] = sizeof(Coco);
  h.layout[1] = sizeof(CocoImage);
  h.layout[2] = sizeof(CocoAnn);
  h.source = *source;
  Coco flat;
  IndexNames names = {0};
  IndexArray list[ARRAYS];
  flatten(&flat, &names, c);
  list_arrays(&flat, &names, list);
  bool ok = write_arrays(fd, &h, list);
  free(flat.images);
  free(flat.categories);
  free(names.text);
  for (int i = 0; i < ARRAYS; i++) *list[i].start = NULL;
  flat.path = NULL;
  h.coco = flat;
  h.sum = checksum(&h, -1, 0, offsetof(IndexHeader, sum));
  return ok && write_at(fd, &h, sizeof h, 0);
}

// Writes the index of a data set that was just parsed, and replaces the data set's arrays by the index's. `before`: the
// file's state when parsing began; false, with c->origin, if it must be parsed again next time. If `out`
// could not be begun, `why` says why.
static bool keep(Coco *c, const char *index, AtomicFile *out, Err *why, const IndexSource *before) {
  IndexSource now;
  if (!source_of(c->path, &now) || !same_source(before, &now) || !source_settled(&now)) {
    c->origin = xasprintf("parsed; not cached, because the file was just written");
    return false;
  }
  unlink(index); // it is outdated; replacing an existing file would also make file systems flush the new one at once
  bool ok = out->f;
  if (ok) {
    out->unsynced = true; // its checksums tell whether it is whole
    ok = write_index(fileno(out->f), c, before) || err_set(why, "cannot write %s: %s", index, strerror(errno));
  }
  if (ok) ok = file_commit(out, why);
  if (!ok) {
    c->origin = xasprintf("parsed; %s", why->msg);
    return false;
  }
  Coco mapped;
  if (map_index(&mapped, index, c->path, before)) {
    coco_free(c);
    *c = mapped;
  }
  return true;
}

// Parses the file unless another process does so meanwhile.
static bool parse(Coco *c, const char *path, const char *index, Err *err) {
  AtomicFile out;
  Err why;
  const bool begun = file_begin_waiting(&out, index, &why);
  IndexSource source = {0};
  bool ok = true;
  double start = now_seconds();
  if (source_of(path, &source) && begun && map_index(c, index, path, &source)) {
    c->origin = xasprintf("from %s, which another process wrote", name_of(index));
  } else {
    ok = coco_load(c, path, err);
    double seconds = now_seconds() - start;
    if (ok && keep(c, index, &out, &why, &source))
      c->origin = xasprintf("parsed in %.2f s, cached in %.2f s as %s", seconds, now_seconds() - start - seconds,
                            name_of(index));
  }
  if (out.f) file_abort(&out); // it was not needed, or is incomplete
  return ok;
}

bool coco_open(Coco *c, const char *path, const char *folder, Err *err) {
  char *index = folder ? index_path(folder, path) : NULL;
  if (!index) return coco_load(c, path, err);
  double start = now_seconds();
  IndexSource source;
  bool ok = true;
  if (source_of(path, &source) && map_index(c, index, path, &source))
    c->origin = xasprintf("from %s in %.2f s", name_of(index), now_seconds() - start);
  else
    ok = parse(c, path, index, err);
  free(index);
  return ok;
}
