// Checkpoints as safetensors files: types and the writer. The reader, which trusts nothing, is weights/read.c.
#include "weights/checkpoint.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

static const struct {
  const char *name;
  size_t size;
} types[CKPT_TYPES] = {
    [CKPT_F64] = {"F64", 8},   [CKPT_I64] = {"I64", 8}, [CKPT_U64] = {"U64", 8}, [CKPT_F32] = {"F32", 4},
    [CKPT_I32] = {"I32", 4},   [CKPT_U32] = {"U32", 4}, [CKPT_F16] = {"F16", 2}, [CKPT_BF16] = {"BF16", 2},
    [CKPT_I16] = {"I16", 2},   [CKPT_U16] = {"U16", 2}, [CKPT_I8] = {"I8", 1},   [CKPT_U8] = {"U8", 1},
    [CKPT_BOOL] = {"BOOL", 1},
};

size_t ckpt_type_size(CkptType type) { return types[type].size; }
const char *ckpt_type_name(CkptType type) { return types[type].name; }

struct CkptEntry {
  char *name;
  CkptType type;
  int ndim;
  int64_t dims[CKPT_MAX_DIMS];
  uint64_t begin, bytes; // begin counts from the end of the header
};

bool ckpt_begin(CkptWriter *w, const char *path, Err *err) {
  *w = (CkptWriter){0};
  if (!file_begin(&w->file, path, err)) return false;
  record_begin(&w->meta);
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
  *e = (CkptEntry){.name = xstrdup(name), .type = type, .ndim = ndim, .bytes = types[type].size};
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
  record_str(scratch, "dtype", types[e->type].name);
  record_raw(scratch, "shape", list);
  sprintf(list, "[%" PRIu64 ",%" PRIu64 "]", e->begin, e->begin + e->bytes);
  record_raw(scratch, "data_offsets", list);
  record_raw(header, e->name, record_end(scratch));
}

static void write_failed(CkptWriter *w) {
  if (!w->failed) w->failed = errno;
}

// Assigns offsets to the tensors and writes everything before their values. Larger elements come first, which aligns
// every tensor without the gaps that the format forbids.
static void write_header(CkptWriter *w) {
  Record header = {0}, scratch = {0};
  record_begin(&header);
  if (w->meta.len > 1) record_raw(&header, "__metadata__", record_end(&w->meta));
  uint64_t end = 0;
  for (size_t size = 8; size > 0; size /= 2) {
    for (size_t i = 0; i < w->num_entries; i++) {
      CkptEntry *e = &w->entries[i];
      if (types[e->type].size != size) continue;
      e->begin = end;
      end += e->bytes;
      record_entry(&header, &scratch, e);
    }
  }
  record_end(&header);
  uint64_t length = (header.len + 7) / 8 * 8; // padded with spaces so that the values begin at a multiple of 8
  unsigned char prefix[8];
  for (int i = 0; i < 8; i++) prefix[i] = (unsigned char)(length >> (8 * i));
  if (fwrite(prefix, 1, sizeof prefix, w->file.f) != sizeof prefix) write_failed(w);
  if (fprintf(w->file.f, "%-*s", (int)length, header.text) < 0) write_failed(w);
  w->data_start = w->position = sizeof prefix + length;
  record_free(&scratch);
  record_free(&header);
}

void ckpt_data(CkptWriter *w, const void *data) {
  if (w->data_start == 0) write_header(w);
  CHECK(w->next < w->num_entries);
  const CkptEntry *e = &w->entries[w->next++];
  uint64_t at = w->data_start + e->begin;
  if (at != w->position && fseeko(w->file.f, (off_t)at, SEEK_SET) != 0) write_failed(w);
  if (e->bytes && fwrite(data, 1, e->bytes, w->file.f) != e->bytes) write_failed(w); // data may be NULL if bytes is 0
  w->position = at + e->bytes;
}

static void release(CkptWriter *w) {
  for (size_t i = 0; i < w->num_entries; i++) free(w->entries[i].name);
  free(w->entries);
  record_free(&w->meta);
  *w = (CkptWriter){0};
}

bool ckpt_commit(CkptWriter *w, Err *err) {
  if (w->data_start == 0) write_header(w);
  CHECK(w->next == w->num_entries);
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
