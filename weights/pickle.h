// Reads Python pickles as data: a call is kept as a value (the callable's name and its arguments), and nothing is ever
// executed or imported. Supports the opcodes of protocol 2 that torch.save writes (see CPython's Lib/pickletools.py);
// everything else is refused.
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
  PICKLE_DICT,      // also for collections.OrderedDict
  PICKLE_GLOBAL,    // a function or class by name
  PICKLE_CALL,      // item[0] = the global, item[1] = the tuple of arguments, item[2] = the state set by BUILD, if any
  PICKLE_PERSISTENT // item[0] = the id of an object that is stored outside the pickle
} PickleType;

typedef struct PickleValue {
  PickleType type;
  int64_t integer;  // bool, int
  const char *text; // str; global: "module.name"
  struct PickleValue *
      *item; // [n]; for a dict, keys and values in turn. Malicious files may contain cycles: walk to a fixed depth
  size_t n, cap;
} PickleValue;

typedef struct PickleChunk PickleChunk;
typedef struct Pickle {
  PickleValue *root;
  PickleValue **persistent; // all values of type PICKLE_PERSISTENT
  size_t num_persistent, cap_persistent;
  PickleChunk *chunks; // memory of the values
} Pickle;

// Reads the pickle that begins at *at and advances *at past it. `globals`, ended by NULL, are the names allowed in
// addition to collections.OrderedDict; `path` is for messages. Memory is bounded by a constant times the bytes read.
bool pickle_read(Pickle *p, const unsigned char **at, const unsigned char *end, const char *const *globals,
                 const char *path, Err *err);
void pickle_free(Pickle *p);
