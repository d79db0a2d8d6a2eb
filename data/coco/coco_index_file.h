// The file of an index: a header, then the arrays of struct Coco as in memory, one after another.
#pragma once
#include "data/coco/coco.h"

#define INDEX_MAGIC "maskrcnn.c index" // stored without its NUL
// INDEX_ALIGNMENT: of an array in the file, a multiple of every machine's page size.
enum { INDEX_VERSION = 8, INDEX_ALIGNMENT = 1 << 16 };

typedef enum IndexArrayId {
  INDEX_IMAGES,
  INDEX_CATEGORIES,
  INDEX_ANNS,
  INDEX_PART_POINTS,
  INDEX_PART_FIRST,
  INDEX_XY,
  INDEX_RUNS,
  INDEX_BROKEN,
  INDEX_NAMES,
  INDEX_ARRAYS
} IndexArrayId;

typedef struct IndexSource {                   // identifies the file that was parsed
  int64_t inode, size, written[2], changed[2]; // seconds, nanoseconds
} IndexSource;

typedef struct IndexHeader {
  char magic[sizeof INDEX_MAGIC - 1];
  uint32_t version, layout[3]; // sizes of structs, which change when a field is added
  IndexSource source;
  Coco coco; // numbers only; pointers are NULL
  struct {
    uint64_t at, bytes, digest;
  } array[INDEX_ARRAYS];
  uint64_t digest; // of all the members above
} IndexHeader;

// Maps the data set of an index, if it is intact, could have been parsed and belongs to this source. c->path is NULL.
bool index_map(Coco *c, int file, const char *index, const IndexSource *source);
bool index_write(int file, const Coco *c, const IndexSource *source);
