// Checkpoints: reads and writes safetensors files, and reads PyTorch's .pth. A safetensors file is a u64 header length,
// a JSON header, then the tensors' values without gaps: https://github.com/huggingface/safetensors#format . Everything
// in a file is little-endian, as on the supported hosts. Files written here have digests (weights/verify.h), by which
// damage is found when they are read.
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

// The "format" in the metadata of our checkpoints. Files of format 1 have no digests.
static const char ckpt_format[] = "maskrcnn.c 2", ckpt_format_1[] = "maskrcnn.c 1";

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
  char *header;        // the header, with zeros in place of the digests
  size_t digests_at;   // where its digests of the tensors are
  uint64_t data_start; // where the header ends; 0 until it is written
  uint64_t position;   // in the file
  int failed;          // errno of the first write that failed, or 0
} CkptWriter;

// First declare metadata and tensors in any order, then write the tensors' values one by one, so that only one tensor
// needs to be in memory in the file's format. Errors on the way are reported by ckpt_commit.
bool ckpt_begin(CkptWriter *w, const char *path, Err *err);
void ckpt_meta(CkptWriter *w, const char *key, const char *value);
void ckpt_tensor(CkptWriter *w, const char *name, CkptType type, int ndim, const int64_t *dims); // names are unique
// Writes the values of the next tensor, in the order of declaration: dense, row-major.
void ckpt_data(CkptWriter *w, const void *data);
// Replaces the file at the path atomically; all tensors must have been written. Releases the writer in any case. On
// failure errno also holds the reason.
bool ckpt_commit(CkptWriter *w, Err *err);
void ckpt_abort(CkptWriter *w); // discards the new file; the old one stays

// ---- reading --------------------------------------------------------------------------------------------------------

typedef struct CkptTensor {
  const char *name;
  CkptType type;
  int ndim;
  int64_t dims[CKPT_MAX_DIMS];
  size_t elements, bytes;
  const void *data; // dense, row-major; aligned to the element size in files of ours, maybe not in others
  uint64_t digest;  // of the file; unused without Checkpoint.has_digests
} CkptTensor;

typedef struct CkptMeta {
  const char *key, *value;
} CkptMeta;

typedef struct Checkpoint {
  CkptTensor *tensors; // by name
  size_t num_tensors, cap_tensors;
  CkptMeta *meta; // as in the file
  size_t num_meta, cap_meta;
  const char *note;           // a note for the user on how the file was read, or NULL
  const unsigned char *bytes; // the file
  size_t size;
  char *header;      // of safetensors: names, keys and values point into it
  size_t data_start; // of safetensors: where the values begin in the file
  bool has_digests;  // whether they were compared with the contents
  void **owned;      // other allocations
  size_t num_owned, cap_owned;
  bool mapped; // whether `bytes` is mapped, and is unmapped at the end
} Checkpoint;

// Maps a file, safetensors or PyTorch's by its first bytes, and validates the types, sizes and offsets of its tensors.
// A safetensors file's tensors must cover the rest of the file without overlaps or gaps; nothing in a PyTorch file is
// executed. A file of ours is compared with its digests, on all cores. false, with one line, for a file that is
// missing, truncated, malformed or damaged.
bool ckpt_open(Checkpoint *c, const char *path, Err *err);
// The same without comparing the tensors' values with their digests: for the metadata alone.
bool ckpt_open_header(Checkpoint *c, const char *path, Err *err);
// The same for bytes in memory, which must outlive it; c is zero-initialised, `path` is for messages.
bool ckpt_parse(Checkpoint *c, const void *bytes, size_t size, const char *path, Err *err);
void ckpt_close(Checkpoint *c);
const CkptTensor *ckpt_find(const Checkpoint *c, const char *name); // NULL: not found
const char *ckpt_find_meta(const Checkpoint *c, const char *key);   // NULL: not found
// Renames every tensor to what `rename` writes into `to`; false drops the tensor. Fails if two get the same name.
typedef bool (*CkptRename)(const char *name, char to[CKPT_MAX_NAME]);
bool ckpt_rename(Checkpoint *c, CkptRename rename, const char *path, Err *err);
bool ckpt_read_floats(const CkptTensor *t, float *out); // [elements]; false for integers
