// Python's pickles read as data: a call is kept as a value (what would be called, with which arguments) and nothing is
// ever run or looked up. Of protocol 2, the opcodes that torch.save writes (CPython's Lib/pickletools.py says what each
// does); everything else is refused.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

typedef enum PickleType {
  PICKLE_NONE,
  PICKLE_BOOL,
  PICKLE_INT,
  PICKLE_FLOAT,
  PICKLE_STR,
  PICKLE_TUPLE,
  PICKLE_LIST,
  PICKLE_DICT,      // also of collections.OrderedDict
  PICKLE_GLOBAL,    // a function or class by name
  PICKLE_CALL,      // item[0] = the global, item[1] = the tuple of arguments, item[2] = the state set behind it, if any
  PICKLE_PERSISTENT // item[0] = the id of an object that is stored beside the pickle
} PickleType;

typedef struct PickleValue {
  PickleType type;
  int64_t integer;  // bool, int
  const char *text; // str; global: "module.name"
  struct PickleValue *
      *item; // [n]; of a dict, keys and values in turn. Hostile files make cycles: walk to a fixed depth
  size_t n, cap;
} PickleValue;

typedef struct PickleChunk PickleChunk;
typedef struct Pickle {
  PickleValue *root;
  PickleValue **persistent; // every value of that kind
  size_t num_persistent, cap_persistent;
  PickleChunk *chunks; // memory of the values
} Pickle;

// Reads the pickle that begins at *at and moves *at behind it. `globals`, which NULL ends, are the names that may occur
// beside collections.OrderedDict; `path` is for messages. Memory is bounded by a constant and the bytes read.
bool pickle_read(Pickle *p, const unsigned char **at, const unsigned char *end, const char *const *globals,
                 const char *path, Err *err);
void pickle_free(Pickle *p);
