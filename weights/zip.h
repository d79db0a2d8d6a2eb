// Zip archives in memory with stored (uncompressed) members, as torch.save writes them; also Zip64. Compressed and
// encrypted members are refused. Format: PKWARE's APPNOTE.TXT, 4.3.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "base/error.h"

typedef struct ZipMember {
  const char *name;
  const unsigned char *data; // in the archive
  size_t size;
} ZipMember;

typedef struct Zip {
  ZipMember *members; // by name
  size_t n, cap;
  char *names;
} Zip;

// Every member lies within `bytes`, which must outlive the Zip; `path` is for messages.
bool zip_open(Zip *z, const unsigned char *bytes, size_t size, const char *path, Err *err);
void zip_close(Zip *z);
const ZipMember *zip_find(const Zip *z, const char *name); // NULL: not found
