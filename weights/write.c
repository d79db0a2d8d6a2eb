// Writes safetensors files, with the digests of all that they hold.
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/digest.h"
#include "weights/formats.h"
#include "weights/verify.h"

struct CkptEntry {
  char *name;
  CkptType type;
  int ndim;
  int64_t dims[CKPT_MAX_DIMS];
  uint64_t begin, bytes; // begin counts from the end of the header
  uint64_t digest;
};

bool ckpt_begin(CkptWriter *w, const char *path, Err *err) {
  *w = (CkptWriter){0};
  if (!file_begin(&w->file, path, err)) return false;
  record_begin(&w->meta);
  record_str(&w->meta, digest_key, "0000000000000000");
  return true;
}

void ckpt_meta(CkptWriter *w, const char *key, const char *value) {
  CHECK(w->data_start == 0);
  record_str(&w->meta, key, value);
}

void ckpt_tensor(CkptWriter *w, const char *name, CkptType type, int ndim, const int64_t *dims) {
  CHECK(w->data_start == 0 && ndim >= 0 && ndim <= CKPT_MAX_DIMS);
  array_reserve((void **)&w->entries, &w->cap_entries, w->num_entries + 1, sizeof *w->entries);
  CkptEntry *e = &w->entries[w->num_entries++];
  *e = (CkptEntry){.name = xstrdup(name), .type = type, .ndim = ndim, .bytes = ckpt_type_size(type)};
  for (int i = 0; i < ndim; i++) {
    CHECK(dims[i] >= 0);
    e->dims[i] = dims[i];
    e->bytes *= (uint64_t)dims[i];
  }
}

// Adds "name":{"dtype":"F32","shape":[64,3],"data_offsets":[0,768]} to the header.
static void record_entry(Record *header, Record *scratch, const CkptEntry *e) {
  char list[CKPT_MAX_DIMS * 24], *at = list;
  for (int i = 0; i < e->ndim; i++) at += sprintf(at, "%s%" PRId64, i ? "," : "[", e->dims[i]);
  strcpy(at, e->ndim ? "]" : "[]");
  record_begin(scratch);
  record_str(scratch, "dtype", ckpt_type_name(e->type));
  record_raw(scratch, "shape", list);
  sprintf(list, "[%" PRIu64 ",%" PRIu64 "]", e->begin, e->begin + e->bytes);
  record_raw(scratch, "data_offsets", list);
  record_raw(header, e->name, record_end(scratch));
}

static void write_failed(CkptWriter *w) {
  if (!w->failed) w->failed = errno;
}

// Where the header's digest stands in the file, as the metadata come first in the header, and it in them.
static const char before_digest[] = "{\"__metadata__\":{\"digest\":\"";
enum { DIGEST_AT = CKPT_PREFIX + sizeof before_digest - 1 };

// Assigns offsets to the tensors and lists them. Larger elements come first, which aligns every tensor without the gaps
// that the format forbids.
static void record_entries(CkptWriter *w, Record *header) {
  Record scratch = {0};
  uint64_t end = 0;
  for (size_t size = 8; size > 0; size /= 2) {
    for (size_t i = 0; i < w->num_entries; i++) {
      CkptEntry *e = &w->entries[i];
      if (ckpt_type_size(e->type) != size) continue;
      e->begin = end;
      end += e->bytes;
      record_entry(header, &scratch, e);
    }
  }
  record_free(&scratch);
}

static void write_bytes(CkptWriter *w, uint64_t at, const void *bytes, size_t n) {
  if (at != w->position && fseeko(w->file.f, (off_t)at, SEEK_SET) != 0) write_failed(w);
  if (n && fwrite(bytes, 1, n, w->file.f) != n) write_failed(w); // bytes may be NULL if n is 0
  w->position = at + n;
}

// Writes everything before the tensors' values, with zeros in place of the digests.
static void write_header(CkptWriter *w) {
  Record header = {0};
  char *digests = xmalloc(w->num_entries * DIGEST_DIGITS + 1);
  memset(digests, '0', w->num_entries * DIGEST_DIGITS);
  digests[w->num_entries * DIGEST_DIGITS] = '\0';
  record_str(&w->meta, digests_key, digests);
  free(digests);
  record_begin(&header);
  record_raw(&header, "__metadata__", record_end(&w->meta));
  w->digests_at = CKPT_PREFIX + header.len - 2 - w->num_entries * DIGEST_DIGITS; // they end in "}
  record_entries(w, &header);
  record_end(&header);
  const uint64_t length = (header.len + 7) / 8 * 8; // padded with spaces so that the values begin at a multiple of 8
  w->data_start = CKPT_PREFIX + length;
  w->header = xasprintf("%*s%-*s", CKPT_PREFIX, "", (int)length, header.text);
  for (int i = 0; i < CKPT_PREFIX; i++) w->header[i] = (char)(length >> (8 * i));
  CHECK(!memcmp(w->header + CKPT_PREFIX, before_digest, sizeof before_digest - 1));
  write_bytes(w, 0, w->header, w->data_start);
  record_free(&header);
}

void ckpt_data(CkptWriter *w, const void *data) {
  if (w->data_start == 0) write_header(w);
  CHECK(w->next < w->num_entries);
  CkptEntry *e = &w->entries[w->next++];
  e->digest = digest_all(data, e->bytes);
  write_bytes(w, w->data_start + e->begin, data, e->bytes);
}

// Writes the header again, with the digests, which are in its order of the tensors.
static void write_digests(CkptWriter *w) {
  char *at = w->header + w->digests_at;
  for (size_t size = 8; size > 0; size /= 2)
    for (size_t i = 0; i < w->num_entries; i++)
      if (ckpt_type_size(w->entries[i].type) == size) {
        digest_write(w->entries[i].digest, at);
        at += DIGEST_DIGITS;
      }
  digest_write(verify_digest((const unsigned char *)w->header, DIGEST_AT, w->data_start), w->header + DIGEST_AT);
  write_bytes(w, 0, w->header, w->data_start);
}

static void release(CkptWriter *w) {
  for (size_t i = 0; i < w->num_entries; i++) free(w->entries[i].name);
  free(w->entries);
  free(w->header);
  record_free(&w->meta);
  *w = (CkptWriter){0};
}

bool ckpt_commit(CkptWriter *w, Err *err) {
  if (w->data_start == 0) write_header(w);
  CHECK(w->next == w->num_entries);
  write_digests(w);
  bool ok = !w->failed && file_commit(&w->file, err);
  int reason = w->failed ? w->failed : errno;
  if (w->failed) {
    err_set(err, "%s: could not be written completely: %s", w->file.path, strerror(reason));
    file_abort(&w->file);
  }
  release(w);
  errno = reason;
  return ok;
}

void ckpt_abort(CkptWriter *w) {
  file_abort(&w->file);
  release(w);
}
