// Checkpoints: safetensors files in and out, PyTorch's .pth in. A safetensors file is a u64 header length, a JSON
// header, then the tensors' values without gaps: https://github.com/huggingface/safetensors#format . Everything in a
// file is little-endian, as the hosts are.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/file.h"
#include "base/record.h"

typedef enum CkptType {
  CKPT_F64,
  CKPT_I64,
  CKPT_U64,
  CKPT_F32,
  CKPT_I32,
  CKPT_U32,
  CKPT_F16,
  CKPT_BF16,
  CKPT_I16,
  CKPT_U16,
  CKPT_I8,
  CKPT_U8,
  CKPT_BOOL,
  CKPT_TYPES
} CkptType;

enum { CKPT_MAX_DIMS = 8, CKPT_MAX_NAME = 512 };

size_t ckpt_type_size(CkptType type);      // bytes of one element
const char *ckpt_type_name(CkptType type); // as the file spells it: "F32"

// ---- writing --------------------------------------------------------------------------------------------------------

typedef struct CkptEntry CkptEntry;
typedef struct CkptWriter {
  AtomicFile file;
  Record meta;
  CkptEntry *entries;
  size_t num_entries, cap_entries;
  size_t next;         // the entry that the next ckpt_data fills
  uint64_t data_start; // where the header ends; 0 until it is written
  uint64_t position;   // in the file
  int failed;          // errno of the first write that was not done, or 0
} CkptWriter;

// A file is declared first, metadata and tensors in any order, then filled tensor by tensor, so that no more than one
// tensor need be in memory as the file holds it. Errors on the way are kept for ckpt_commit.
bool ckpt_begin(CkptWriter *w, const char *path, Err *err);
void ckpt_meta(CkptWriter *w, const char *key, const char *value);
void ckpt_tensor(CkptWriter *w, const char *name, CkptType type, int ndim, const int64_t *dims); // names are unique
// The values of the next tensor, in the order of declaration: dense, row-major.
void ckpt_data(CkptWriter *w, const void *data);
// Replaces what stood at the path, atomically; all tensors must have their values. Releases the writer in any case.
// False with the reason in errno, too.
bool ckpt_commit(CkptWriter *w, Err *err);
void ckpt_abort(CkptWriter *w); // leaves what stood at the path

// ---- reading --------------------------------------------------------------------------------------------------------

typedef struct CkptTensor {
  const char *name;
  CkptType type;
  int ndim;
  int64_t dims[CKPT_MAX_DIMS];
  size_t elements, bytes;
  const void *data; // dense, row-major; aligned to its element in files of ours, perhaps not in others'
} CkptTensor;

typedef struct CkptMeta {
  const char *key, *value;
} CkptMeta;

typedef struct Checkpoint {
  CkptTensor *tensors; // by name
  size_t num_tensors, cap_tensors;
  CkptMeta *meta; // as in the file
  size_t num_meta, cap_meta;
  const char *note;           // what a user should know of how it was read; NULL = nothing
  const unsigned char *bytes; // the file
  size_t size;
  char *header; // of safetensors: names, keys and values point into it
  void **owned; // what else was allocated
  size_t num_owned, cap_owned;
  bool mapped; // the file's bytes, which are unmapped at the end
} Checkpoint;

// Maps a file, safetensors or PyTorch's by its first bytes, and checks all that it says of its tensors: types, sizes,
// places. A safetensors file's tensors cover the rest of it without overlaps or gaps; of a PyTorch file nothing is run.
// false with one line for a file that is missing, cut short or made up.
bool ckpt_open(Checkpoint *c, const char *path, Err *err);
// The same of bytes in memory, which must outlive it; c is zero-initialised, `path` is for messages.
bool ckpt_parse(Checkpoint *c, const void *bytes, size_t size, const char *path, Err *err);
void ckpt_close(Checkpoint *c);
const CkptTensor *ckpt_find(const Checkpoint *c, const char *name); // NULL: there is none
const char *ckpt_find_meta(const Checkpoint *c, const char *key);   // NULL: there is none
// Gives every tensor the name that `rename` puts into `to`; false drops the tensor. Fails where two get the same name.
typedef bool (*CkptRename)(const char *name, char to[CKPT_MAX_NAME]);
bool ckpt_rename(Checkpoint *c, CkptRename rename, const char *path, Err *err);
bool ckpt_read_floats(const CkptTensor *t, float *out); // [elements]; false for integers
