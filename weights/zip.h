// Zip archives in memory with stored (uncompressed) members, as torch.save writes them; also Zip64. Compressed and
// encrypted members are refused. Format: PKWARE's APPNOTE.TXT, 4.3.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

typedef struct ZipMember {
  const char *name;
  const unsigned char *data; // in the archive
  size_t size;
  uint32_t crc; // of the data; 0 where it was not recorded, as with torch.serialization.set_crc32_options(False)
} ZipMember;

typedef struct Zip {
  ZipMember *members; // by name
  size_t n, cap;
  char *names;
  size_t bytes; // of all members, which do not overlap: at most the archive's
} Zip;

// Every member lies within `bytes`, which must outlive the Zip; `path` is for messages.
bool zip_open(Zip *z, const unsigned char *bytes, size_t size, const char *path, Err *err);
// Compares every member's data with its CRC-32, on several threads where there is much of it.
bool zip_verify(const Zip *z, const char *path, Err *err);
void zip_close(Zip *z);
const ZipMember *zip_find(const Zip *z, const char *name); // NULL: not found
