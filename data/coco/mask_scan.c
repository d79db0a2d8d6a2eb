#include "data/coco/mask_scan.h"
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include "base/basics.h"
#include "base/mapped.h"
#include "base/regular.h"

static const char *skip_space(const char *at, const char *end) {
  while (at < end && strchr(" \t\r\n", *at) && *at) at++;
  return at;
}

// Whether a key's value, from behind the key on, is null or an empty list. Where no colon follows it was no key.
static bool is_nothing(const char *at, const char *end) {
  at = skip_space(at, end);
  if (at == end || *at != ':') return true;
  at = skip_space(at + 1, end);
  if (at == end || *at == 'n') return true;
  if (*at != '[') return false;
  at = skip_space(at + 1, end);
  return at == end || *at == ']';
}

static bool finds(const char *text, size_t size) {
  static const char key[] = "\"segmentation\"";
  const char *const end = text + size;
  for (const char *at = text; at < end && (at = memchr(at, '"', (size_t)(end - at))); at++) {
    if ((size_t)(end - at) < strlen(key) || memcmp(at, key, strlen(key)) != 0) continue;
    if (!is_nothing(at + strlen(key), end)) return true;
  }
  return false;
}

bool mask_scan_finds(const char *path) {
  Err err;
  struct stat st;
  const int file = regular_open(path, O_RDONLY, &err);
  bool found = true;
  if (file < 0) return found;
  if (!fstat(file, &st) && st.st_size > 0) {
    char *text = mapped_open(file, (size_t)st.st_size, path);
    if (text) {
      found = finds(text, (size_t)st.st_size);
      mapped_close(text, (size_t)st.st_size);
    }
  }
  close(file);
  return found;
}
