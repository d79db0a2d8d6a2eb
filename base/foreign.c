#include "base/foreign.h"
#include <stdbool.h>
#include <string.h>
#include <strings.h>
#include "base/basics.h"

// Files with fixed bytes at a place.
static const struct {
  size_t at;
  const char *bytes;
  size_t size;
  const char *what;
} signatures[] = {{0, "version https://git-lfs", 23, "a Git LFS pointer; run `git lfs pull`"},
                  {0, "\x1f\x8b\x08", 3, "a gzip file; unpack it with gunzip"},
                  {0, "BZh", 3, "a bzip2 file; unpack it with bunzip2"},
                  {0, "\xfd\x37zXZ", 6, "an xz file; unpack it with unxz"},
                  {0, "\x28\xb5\x2f\xfd", 4, "a zstd file; unpack it with unzstd"},
                  {0, "PK\3\4", 4, "a zip archive; unpack it"},
                  {0, "7z\xbc\xaf\x27\x1c", 6, "a 7z archive; unpack it"},
                  {0, "Rar!\x1a\x07", 6, "a RAR archive; unpack it"},
                  {257, "ustar", 5, "a tar archive; unpack it"}};

static const char xml[] = "an XML file, perhaps a server's error message; download the file again";
static const char html[] = "an HTML page; download the file itself";
static const char utf16[] = "UTF-16 text, not UTF-8; convert it or download it again";

// Texts that begin so, in letters of either case, behind a byte order mark and white space.
static const struct {
  const char *start, *what;
} markup[] = {{"<!doctype html", html}, {"<html", html}, {"<head", html},
              {"<body", html},          {"<!--", html},  {"<?xml", xml}};

static const char *find_markup(const char *text, const char *end) {
  if (end - text >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3)) text += 3;
  while (text < end && (*text == ' ' || *text == '\t' || *text == '\r' || *text == '\n')) text++;
  for (int i = 0; i < COUNT(markup); i++) {
    const size_t size = strlen(markup[i].start);
    if ((size_t)(end - text) >= size && !strncasecmp(text, markup[i].start, size)) return markup[i].what;
  }
  return NULL;
}

// A byte order mark, or ASCII with a NUL before or after each of the first characters. UTF-32 has more NULs.
static bool is_utf16(const unsigned char *b, size_t size) {
  if (size < 4) return false;
  if ((b[0] == 0xff && b[1] == 0xfe) || (b[0] == 0xfe && b[1] == 0xff)) return b[2] || b[3];
  const size_t zero = b[0] == 0 ? 0 : 1; // where the NUL of a pair stands
  for (size_t i = 0; i + 1 < size && i < 8; i += 2)
    if (b[i + zero] != 0 || b[i + 1 - zero] == 0 || b[i + 1 - zero] >= 0x80) return false;
  return true;
}

const char *foreign_file(const void *bytes, size_t size) {
  for (int i = 0; i < COUNT(signatures); i++)
    if (size >= signatures[i].at + signatures[i].size &&
        !memcmp((const char *)bytes + signatures[i].at, signatures[i].bytes, signatures[i].size))
      return signatures[i].what;
  if (is_utf16(bytes, size)) return utf16;
  return size ? find_markup(bytes, (const char *)bytes + size) : NULL;
}
