#include "data/batches/file_key.h"
#include <stdlib.h>
#include "base/digest.h"
#include "base/file.h"

uint64_t file_key(const char *bytes, size_t size) { return size ? digest_all(bytes, size) | 1 : 0; }

uint64_t file_key_of(const char *path) {
  size_t size;
  char *bytes = path_is_file(path) ? file_read(path, &size, NULL) : NULL; // reading a pipe would block
  const uint64_t key = bytes ? file_key(bytes, size) : 0;
  free(bytes);
  return key;
}
