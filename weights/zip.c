#include "weights/zip.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "base/alloc.h"
#include "base/parallel.h"

// Sizes of the fixed parts of records, and the maximum length of the archive comment.
enum { LOCAL = 30, CENTRAL = 46, END = 22, END64 = 56, LOCATOR64 = 20, MAX_COMMENT = 65535 };

typedef struct ZipReader {
  Zip *z;
  const unsigned char *bytes;
  size_t size;
  const char *path;
  Err *err;
} ZipReader;

static bool unusable(const ZipReader *r, const char *what) {
  return err_set(r->err, "%s: not a valid zip archive: %s", r->path, what);
}

static bool bad_member(const ZipReader *r, const char *name, const char *what) {
  return err_set(r->err, "%s: not a valid zip archive: its member \"%.100s\" %s", r->path, name, what);
}

static uint64_t get(const unsigned char *p, int bytes) {
  uint64_t v = 0;
  while (bytes-- > 0) v = v << 8 | p[bytes];
  return v;
}

static bool is_record(const ZipReader *r, uint64_t at, size_t fixed, const char *signature) {
  return at <= r->size && r->size - at >= fixed && !memcmp(r->bytes + at, signature, 4);
}

// ---- the directory ----------------------------------------------------------------------------------------------

typedef struct Directory {
  uint64_t entries, size, offset;
} Directory;

// Finds the record at the end, searching backwards past a comment.
static bool find_end(const ZipReader *r, size_t *end) {
  for (size_t back = END; back <= r->size && back <= END + MAX_COMMENT; back++) {
    *end = r->size - back;
    if (is_record(r, *end, END, "PK\5\6") && get(r->bytes + *end + 20, 2) == back - END) return true;
  }
  return unusable(r, "it has no directory at its end; is it truncated?");
}

static bool find_directory(const ZipReader *r, Directory *d) {
  size_t end = 0;
  if (!find_end(r, &end)) return false;
  const unsigned char *p = r->bytes + end;
  *d = (Directory){get(p + 10, 2), get(p + 12, 4), get(p + 16, 4)};
  if (d->entries == 0xffff || d->size == 0xffffffff || d->offset == 0xffffffff) {
    if (end < LOCATOR64 || !is_record(r, end - LOCATOR64, LOCATOR64, "PK\6\7"))
      return unusable(r, "it lacks the locator of its directory");
    uint64_t at = get(p - LOCATOR64 + 8, 8);
    if (!is_record(r, at, END64, "PK\6\6")) return unusable(r, "the locator of its directory points elsewhere");
    p = r->bytes + at;
    *d = (Directory){get(p + 32, 8), get(p + 40, 8), get(p + 48, 8)};
  }
  if (d->offset > end || d->size > end - d->offset) return unusable(r, "its directory lies outside the file");
  return d->entries <= d->size / CENTRAL || unusable(r, "its directory is smaller than it says");
}

// ---- members ----------------------------------------------------------------------------------------------------

// Replaces sizes and offset that are all ones by the 64-bit values of the entry's extra field.
static bool read_zip64(const unsigned char *extra, size_t length, uint64_t *values[3]) {
  bool any = false;
  for (int i = 0; i < 3; i++) any |= *values[i] == 0xffffffff;
  if (!any) return true;
  while (length >= 4) {
    size_t n = get(extra + 2, 2);
    if (n > length - 4) return false;
    const unsigned char *p = extra + 4, *end = p + n;
    if (get(extra, 2) == 1) {
      for (int i = 0; i < 3; i++) {
        if (*values[i] != 0xffffffff) continue;
        if (end - p < 8) return false;
        *values[i] = get(p, 8);
        p += 8;
      }
      return true;
    }
    extra += 4 + n;
    length -= 4 + n;
  }
  return false;
}

// One entry of the directory, whose name is already at `name`.
static bool add_member(ZipReader *r, const unsigned char *entry, const char *name, size_t extra) {
  unsigned flags = (unsigned)get(entry + 8, 2), method = (unsigned)get(entry + 10, 2);
  uint64_t packed = get(entry + 20, 4), size = get(entry + 24, 4), at = get(entry + 42, 4);
  if (!read_zip64(entry + CENTRAL + strlen(name), extra, (uint64_t *[]){&size, &packed, &at}))
    return bad_member(r, name, "lacks its 64-bit size");
  if (flags & 1) return bad_member(r, name, "is encrypted");
  if (method != 0 || packed != size) return bad_member(r, name, "is compressed, unlike what torch.save writes");
  if (!is_record(r, at, LOCAL, "PK\3\4")) return bad_member(r, name, "is not where the directory points");
  size_t begin = at + LOCAL + get(r->bytes + at + 26, 2) + get(r->bytes + at + 28, 2);
  if (begin > r->size || size > r->size - begin) return bad_member(r, name, "ends past the end of the file");
  Zip *z = r->z;
  if (size > r->size - z->bytes) return bad_member(r, name, "overlaps another");
  z->bytes += size;
  array_reserve((void **)&z->members, &z->cap, z->n + 1, sizeof *z->members);
  z->members[z->n++] = (ZipMember){name, r->bytes + begin, size, (uint32_t)get(entry + 16, 4)};
  return true;
}

static int compare_member(const void *a, const void *b) {
  return strcmp(((const ZipMember *)a)->name, ((const ZipMember *)b)->name);
}

static bool read_directory(ZipReader *r, const Directory *d) {
  Zip *z = r->z;
  const unsigned char *p = r->bytes + d->offset, *end = p + d->size;
  char *names = z->names = xmalloc(d->size + 1); // an entry is longer than its name and a NUL
  for (uint64_t i = 0; i < d->entries; i++) {
    if (!is_record(r, (uint64_t)(p - r->bytes), CENTRAL, "PK\1\2")) return unusable(r, "its directory is damaged");
    size_t length = get(p + 28, 2), extra = get(p + 30, 2), whole = CENTRAL + length + extra + get(p + 32, 2);
    if (whole > (size_t)(end - p)) return unusable(r, "its directory is damaged");
    for (size_t k = 0; k < length; k++) // names are printed in messages, which are one line
      if (p[CENTRAL + k] < 0x20) return unusable(r, "a member's name has control characters");
    memcpy(names, p + CENTRAL, length);
    names[length] = '\0';
    if (!add_member(r, p, names, extra)) return false;
    names += length + 1;
    p += whole;
  }
  if (z->n) qsort(z->members, z->n, sizeof *z->members, compare_member);
  for (size_t i = 1; i < z->n; i++)
    if (!compare_member(&z->members[i - 1], &z->members[i])) return bad_member(r, z->members[i].name, "occurs twice");
  return true;
}

bool zip_open(Zip *z, const unsigned char *bytes, size_t size, const char *path, Err *err) {
  *z = (Zip){0};
  ZipReader r = {z, bytes, size, path, err};
  Directory d = {0};
  bool ok = find_directory(&r, &d) && read_directory(&r, &d);
  if (!ok) zip_close(z);
  return ok;
}

// ---- checksums --------------------------------------------------------------------------------------------------

typedef struct Verification {
  const Zip *z;
  bool *wrong; // [members]
} Verification;

static void verify_member(void *context, int i, int thread) {
  (void)thread;
  Verification *v = context;
  const ZipMember *m = &v->z->members[i];
  v->wrong[i] = m->crc != 0 && crc32_z(0, m->data, m->size) != m->crc;
}

bool zip_verify(const Zip *z, const char *path, Err *err) {
  enum { BYTES_A_THREAD = 4 << 20 }; // below, starting a thread takes longer than it saves
  Verification v = {z, xcalloc(z->n + 1, sizeof(bool))};
  const size_t turns = MIN(z->n, 1 + z->bytes / BYTES_A_THREAD);
  parallel_for((int)z->n, turns > 1 ? parallel_threads((int)turns) : 1, verify_member, &v);
  bool ok = true;
  for (size_t i = 0; ok && i < z->n; i++)
    if (v.wrong[i])
      ok = err_set(err, "%s: corrupt: the checksum of \"%.100s\" in it is wrong; copy or download the file again", path,
                   z->members[i].name);
  free(v.wrong);
  return ok;
}

void zip_close(Zip *z) {
  free(z->members);
  free(z->names);
  *z = (Zip){0};
}

const ZipMember *zip_find(const Zip *z, const char *name) {
  if (z->n == 0) return NULL;
  return bsearch(&(ZipMember){.name = name}, z->members, z->n, sizeof *z->members, compare_member);
}
