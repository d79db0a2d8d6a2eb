// Reads checkpoints, which are untrusted input: everything is validated before use. Each format has its own file,
// weights/safetensors.c and weights/torch.c.
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/mapped.h"
#include "weights/foreign.h"
#include "weights/formats.h"
#include "weights/verify.h"

// ---- the list of tensors --------------------------------------------------------------------------------------------

void ckpt_add(Checkpoint *c, const CkptTensor *t) {
  array_reserve((void **)&c->tensors, &c->cap_tensors, c->num_tensors + 1, sizeof *t);
  c->tensors[c->num_tensors++] = *t;
}

void *ckpt_own(Checkpoint *c, void *memory) {
  array_reserve((void **)&c->owned, &c->cap_owned, c->num_owned + 1, sizeof *c->owned);
  return c->owned[c->num_owned++] = memory;
}

static int compare_tensor_name(const void *a, const void *b) {
  return strcmp(((const CkptTensor *)a)->name, ((const CkptTensor *)b)->name);
}

static bool sort_by_name(Checkpoint *c, const char *path, Err *err) {
  if (c->num_tensors) qsort(c->tensors, c->num_tensors, sizeof *c->tensors, compare_tensor_name);
  for (size_t i = 1; i < c->num_tensors; i++)
    if (!strcmp(c->tensors[i - 1].name, c->tensors[i].name))
      return err_set(err, "%s: not a valid file of weights: it contains tensor \"%.100s\" twice", path,
                     c->tensors[i].name);
  return true;
}

bool ckpt_rename(Checkpoint *c, CkptRename rename, const char *path, Err *err) {
  size_t kept = 0;
  for (size_t i = 0; i < c->num_tensors; i++) {
    CkptTensor t = c->tensors[i];
    char name[CKPT_MAX_NAME] = "";
    bool ours = strlen(t.name) < CKPT_MAX_NAME / 2; // no model has a longer name: it stays as it is
    if (ours && !rename(t.name, name)) continue;
    if (ours && strcmp(name, t.name)) t.name = ckpt_own(c, xstrdup(name));
    c->tensors[kept++] = t;
  }
  c->num_tensors = kept;
  return sort_by_name(c, path, err);
}

// ---- the file -------------------------------------------------------------------------------------------------------

static bool map_file(Checkpoint *c, const char *path, Err *err) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // O_NONBLOCK: opening a pipe without a writer must not block
  struct stat st;
  if (fd < 0 || fstat(fd, &st) != 0) {
    err_set(err, "cannot read %s: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    return false;
  }
  bool usable = S_ISREG(st.st_mode) && st.st_size > 0;
  if (usable) {
    void *map = mapped_open(fd, (size_t)st.st_size, path);
    if (map) {
      c->bytes = map;
      c->size = (size_t)st.st_size;
      c->mapped = true;
    }
  }
  int reason = errno;
  close(fd);
  if (!usable) return err_set(err, "%s: not a valid file of weights: it is empty or not a regular file", path);
  if (!c->mapped && reason == ENOMEM) return err_memory(err, (size_t)st.st_size, path, NULL);
  return c->mapped || err_set(err, "cannot read %s: %s", path, strerror(reason));
}

static bool parse(Checkpoint *c, const void *bytes, size_t size, bool values, const char *path, Err *err) {
  c->bytes = bytes;
  c->size = size;
  bool ok = size >= 8 || err_set(err, "%s: not a valid file of weights: it has less than eight bytes", path);
  if (ok) ok = (ckpt_is_torch(c) ? ckpt_parse_torch : ckpt_parse_safetensors)(c, path, err);
  if (ok) ok = sort_by_name(c, path, err) && (!values || verify_tensors(c, path, err));
  const char *foreign = ok ? NULL : foreign_weights(bytes, size, ckpt_is_torch(c));
  if (foreign) err_set(err, "%s: not a weights file, but %s", path, foreign);
  if (!ok) ckpt_close(c);
  return ok;
}

bool ckpt_parse(Checkpoint *c, const void *bytes, size_t size, const char *path, Err *err) {
  return parse(c, bytes, size, true, path, err);
}

static bool open_file(Checkpoint *c, bool values, const char *path, Err *err) {
  *c = (Checkpoint){0};
  return map_file(c, path, err) && parse(c, c->bytes, c->size, values, path, err);
}

bool ckpt_open(Checkpoint *c, const char *path, Err *err) { return open_file(c, true, path, err); }
bool ckpt_open_header(Checkpoint *c, const char *path, Err *err) { return open_file(c, false, path, err); }

void ckpt_close(Checkpoint *c) {
  if (c->mapped) mapped_close((void *)c->bytes, c->size);
  for (size_t i = 0; i < c->num_owned; i++) free(c->owned[i]);
  free(c->owned);
  free(c->header);
  free(c->tensors);
  free(c->meta);
  *c = (Checkpoint){0};
}

const CkptTensor *ckpt_find(const Checkpoint *c, const char *name) {
  if (c->num_tensors == 0) return NULL;
  return bsearch(&(CkptTensor){.name = name}, c->tensors, c->num_tensors, sizeof *c->tensors, compare_tensor_name);
}

const char *ckpt_find_meta(const Checkpoint *c, const char *key) {
  for (size_t i = 0; i < c->num_meta; i++)
    if (!strcmp(c->meta[i].key, key)) return c->meta[i].value;
  return NULL;
}

// ---- values ---------------------------------------------------------------------------------------------------------

static float from_half(uint16_t bits) {
  int exponent = bits >> 10 & 31, fraction = bits & 1023;
  float v = exponent == 0    ? ldexpf((float)fraction, -24) // subnormal
            : exponent == 31 ? (fraction ? NAN : INFINITY)
                             : ldexpf((float)(fraction | 1024), exponent - 25);
  return bits >> 15 ? -v : v;
}

static float from_bfloat(uint16_t bits) {
  uint32_t word = (uint32_t)bits << 16;
  float v;
  memcpy(&v, &word, sizeof v);
  return v;
}

bool ckpt_read_floats(const CkptTensor *t, float *out) {
  const char *data = t->data; // copied byte-wise: other writers' files need not be aligned
  if (t->type == CKPT_F32) {
    if (t->bytes) memcpy(out, data, t->bytes);
    return true;
  }
  if (t->type == CKPT_F64) {
    for (size_t i = 0; i < t->elements; i++) {
      double v;
      memcpy(&v, data + i * sizeof v, sizeof v);
      out[i] = (float)v;
    }
    return true;
  }
  if (t->type != CKPT_F16 && t->type != CKPT_BF16) return false;
  for (size_t i = 0; i < t->elements; i++) {
    uint16_t bits;
    memcpy(&bits, data + i * sizeof bits, sizeof bits);
    out[i] = t->type == CKPT_F16 ? from_half(bits) : from_bfloat(bits);
  }
  return true;
}
