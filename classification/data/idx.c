#include "classification/data/idx.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include "base/alloc.h"
#include "base/file.h"
#include "data/images/image.h"

enum { UNSIGNED_BYTES = 8, MOST_HEADER = 4 + 4 * 255, GZIP = 16 + MAX_WBITS };
// Deflate's maximum compression factor (zlib's documentation); it bounds the memory that a header may claim.
enum { MOST_RATIO = 1032 };

// ---- bytes, plain or gzip -------------------------------------------------------------------------------------------

typedef struct IdxBytes {
  const uint8_t *at, *end; // for a plain file
  z_stream z;              // for gzip
  bool gzip, ended;
  bool cut, corrupt; // why it ended
} IdxBytes;

static bool is_gzip(const uint8_t *bytes, size_t size) { return size >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b; }

static bool source_open(IdxBytes *s, const uint8_t *bytes, size_t size, const char *name, Err *err) {
  *s = (IdxBytes){.at = bytes, .end = bytes + size, .gzip = is_gzip(bytes, size)};
  if (!s->gzip) return true;
  return inflateInit2(&s->z, GZIP) == Z_OK || err_memory(err, 1 << 16, name, NULL);
}

static void source_close(IdxBytes *s) {
  if (s->gzip) inflateEnd(&s->z);
}

// Gives zlib as much input as its counter can hold.
static void feed(IdxBytes *s) {
  if (s->z.avail_in > 0) return;
  const size_t n = MIN((size_t)(s->end - s->at), (size_t)1 << 30);
  s->z.next_in = (Bytef *)(uintptr_t)s->at;
  s->z.avail_in = (uInt)n;
  s->at += n;
}

// Another member may follow the end of a member (RFC 1952, 2.2).
static void next_member(IdxBytes *s) {
  feed(s);
  s->ended = !is_gzip(s->z.next_in, s->z.avail_in) || inflateReset(&s->z) != Z_OK;
}

// Reads up to `want` of the next bytes.
static size_t source_read(IdxBytes *s, uint8_t *to, size_t want) {
  if (!s->gzip) {
    const size_t n = MIN(want, (size_t)(s->end - s->at));
    memcpy(to, s->at, n);
    s->at += n;
    return n;
  }
  size_t have = 0;
  while (have < want && !s->ended) {
    feed(s);
    const uInt room = (uInt)MIN(want - have, (size_t)1 << 30);
    s->z.next_out = to + have;
    s->z.avail_out = room;
    const int status = inflate(&s->z, Z_NO_FLUSH);
    have += room - s->z.avail_out;
    if (status == Z_STREAM_END)
      next_member(s);
    else if (status == Z_BUF_ERROR)
      s->ended = s->cut = true;
    else if (status != Z_OK)
      s->ended = s->corrupt = true;
  }
  return have;
}

// ---- header ---------------------------------------------------------------------------------------------------------

static uint32_t big_endian(const uint8_t *p) { return (uint32_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3]; }

static const char *type_name(int type) {
  switch (type) {
  case 0x08: return "unsigned bytes";
  case 0x09: return "signed bytes";
  case 0x0b: return "16-bit integers";
  case 0x0c: return "32-bit integers";
  case 0x0d: return "floats";
  case 0x0e: return "doubles";
  default: return "unknown";
  }
}

static bool refuse_short(const IdxBytes *s, const char *name, Err *err) {
  if (s->corrupt) return err_set(err, "%s: the gzip data are corrupt; download it again", name);
  return err_set(err, "%s: the file ends within its header; download it again", name);
}

// Reads the sizes, and computes how many bytes of elements they imply.
static bool read_header(Idx *a, IdxBytes *s, const char *name, int dimensions, uint64_t *total, Err *err) {
  uint8_t head[4], size[4 * IDX_IMAGES];
  if (source_read(s, head, sizeof head) < sizeof head) return refuse_short(s, name, err);
  if (head[0] != 0 || head[1] != 0)
    return err_set(err, "%s: not an IDX file: it begins with %02x %02x instead of 00 00; download it again", name,
                   head[0], head[1]);
  if (head[2] != UNSIGNED_BYTES)
    return err_set(err, "%s: elements of type 0x%02x (%s), but only unsigned bytes (0x08) are supported; convert it",
                   name, head[2], type_name(head[2]));
  if (head[3] != dimensions)
    return err_set(err, "%s: %d dimensions, but files of %s have %d; swap the files, or convert it", name, head[3],
                   dimensions == IDX_IMAGES ? "images" : "labels", dimensions);
  if (source_read(s, size, 4 * (size_t)dimensions) < 4 * (size_t)dimensions) return refuse_short(s, name, err);
  const uint32_t n = big_endian(size), h = dimensions == IDX_IMAGES ? big_endian(size + 4) : 1,
                 w = dimensions == IDX_IMAGES ? big_endian(size + 8) : 1;
  if (n == 0 || h == 0 || w == 0)
    return err_set(err, "%s: it is empty: %u images of %u x %u; download it again", name, n, w, h);
  if (n > INT_MAX || h > IMAGE_MAX_PIXELS || w > IMAGE_MAX_PIXELS || (uint64_t)h * w > IMAGE_MAX_PIXELS)
    return err_set(
        err, "%s: the header says %u images of %u x %u pixels, but an image has at most %d pixels; download it again",
        name, n, w, h, IMAGE_MAX_PIXELS);
  *a = (Idx){.n = (int)n, .h = (int)h, .w = (int)w};
  *total = (uint64_t)n * h * w;
  return true;
}

static bool refuse_cut(const Idx *a, const IdxBytes *s, const char *name, uint64_t total, uint64_t have, Err *err) {
  if (s->corrupt) return refuse_short(s, name, err);
  return err_set(err,
                 "%s: truncated: the header says %d images of %d x %d, which is %llu bytes, but there are %llu%s; "
                 "download it again",
                 name, a->n, a->w, a->h, (unsigned long long)total, (unsigned long long)have,
                 have == total ? " and no checksum" : "");
}

static bool read_elements(Idx *a, IdxBytes *s, const char *name, size_t size, uint64_t total, Err *err) {
  if (s->gzip ? total > (uint64_t)size * MOST_RATIO : total > (uint64_t)(s->end - s->at))
    return s->gzip ? err_set(err,
                             "%s: truncated: the header says %d images of %d x %d, more than %zu bytes of gzip can "
                             "hold; download it again",
                             name, a->n, a->w, a->h, size)
                   : refuse_cut(a, s, name, total, (uint64_t)(s->end - s->at), err);
  a->bytes = malloc(total);
  if (!a->bytes) return err_memory(err, total, name, NULL);
  const size_t have = source_read(s, a->bytes, total);
  if (have < total) return refuse_cut(a, s, name, total, have, err);
  uint8_t more;
  if (source_read(s, &more, 1) > 0)
    return err_set(err, "%s: the file has more data than the %d images of %d x %d in its header; download it again",
                   name, a->n, a->w, a->h);
  return !(s->cut || s->corrupt) || refuse_cut(a, s, name, total, have, err); // the checksum comes last
}

bool idx_parse(Idx *a, const uint8_t *bytes, size_t size, const char *name, int dimensions, Err *err) {
  CHECK(dimensions == IDX_IMAGES || dimensions == IDX_LABELS);
  *a = (Idx){0};
  if (size == 0) return err_set(err, "%s: the file is empty; download it again", name);
  IdxBytes s;
  if (!source_open(&s, bytes, size, name, err)) return false;
  uint64_t total = 0;
  bool ok = read_header(a, &s, name, dimensions, &total, err) && read_elements(a, &s, name, size, total, err);
  source_close(&s);
  if (!ok) idx_free(a);
  return ok;
}

bool idx_load(Idx *a, const char *path, int dimensions, Err *err) {
  *a = (Idx){0};
  size_t size;
  if (access(path, F_OK) == 0 && !path_is_file(path)) // reading a device may never end
    return err_set(err, "%s: not a regular file; put the IDX file there", path);
  char *bytes = file_read(path, &size, err);
  bool ok = bytes && idx_parse(a, (const uint8_t *)bytes, size, path, dimensions, err);
  free(bytes);
  return ok;
}

void idx_free(Idx *a) {
  free(a->bytes);
  *a = (Idx){0};
}

bool idx_load_pair(Idx *images, Idx *labels, const char *image_path, const char *label_path, Err *err) {
  *images = *labels = (Idx){0};
  bool ok = idx_load(images, image_path, IDX_IMAGES, err) && idx_load(labels, label_path, IDX_LABELS, err);
  if (ok && images->n != labels->n)
    ok = err_set(err, "%s: %d labels, but %d images in %s; download both again", label_path, labels->n, images->n,
                 image_path);
  if (!ok) {
    idx_free(images);
    idx_free(labels);
  }
  return ok;
}

// ---- writing --------------------------------------------------------------------------------------------------------

static void put_big_endian(uint8_t *p, int value) {
  for (int i = 0; i < 4; i++) p[i] = (uint8_t)((uint32_t)value >> (24 - 8 * i));
}

// Without a name or time: zlib writes none by default. Caller frees.
static uint8_t *compress_all(const uint8_t *bytes, size_t *size) {
  z_stream z = {0};
  CHECK(*size <= UINT_MAX && deflateInit2(&z, 6, Z_DEFLATED, GZIP, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  const size_t room = deflateBound(&z, *size);
  uint8_t *out = xmalloc(room);
  z.next_in = (Bytef *)(uintptr_t)bytes;
  z.avail_in = (uInt)*size;
  z.next_out = out;
  z.avail_out = (uInt)room;
  CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
  *size = room - z.avail_out;
  deflateEnd(&z);
  return out;
}

bool idx_save(const Idx *a, const char *path, int dimensions, Err *err) {
  const int size[] = {a->n, a->h, a->w};
  const size_t header = 4 + 4 * (size_t)dimensions, elements = (size_t)a->n * a->h * a->w;
  size_t total = header + elements;
  uint8_t *bytes = xmalloc(total);
  memcpy(bytes, (uint8_t[]){0, 0, UNSIGNED_BYTES, (uint8_t)dimensions}, 4);
  for (int i = 0; i < dimensions; i++) put_big_endian(bytes + 4 + 4 * i, size[i]);
  memcpy(bytes + header, a->bytes, elements);
  const size_t length = strlen(path);
  if (length > 3 && !strcmp(path + length - 3, ".gz")) {
    uint8_t *packed = compress_all(bytes, &total);
    free(bytes);
    bytes = packed;
  }
  AtomicFile out;
  bool ok = file_begin(&out, path, err);
  if (ok) {
    fwrite(bytes, 1, total, out.f); // file_commit reports failures
    ok = file_commit(&out, err);
  }
  free(bytes);
  return ok;
}
