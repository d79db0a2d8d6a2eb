#include "data/images/exif.h"
#include <stdbool.h>
#include <string.h>

static unsigned u16(const uint8_t *p, bool big) { return big ? p[0] << 8 | p[1] : p[1] << 8 | p[0]; }
static uint32_t u32(const uint8_t *p, bool big) {
  const uint32_t a = u16(p, big), b = u16(p + 2, big);
  return big ? a << 16 | b : b << 16 | a;
}

// Bytes of an integer of this type; 0: it is another type.
static size_t integer_size(unsigned type) {
  enum { SHORT = 3, LONG = 4, SIGNED_SHORT = 8, SIGNED_LONG = 9 };
  return type == SHORT || type == SIGNED_SHORT ? 2 : type == LONG || type == SIGNED_LONG ? 4 : 0;
}

// The first integer of an entry; false if it has none.
static bool entry_value(const uint8_t *tiff, size_t size, const uint8_t *entry, bool big, uint32_t *value) {
  enum { INLINE = 4 }; // more bytes are elsewhere
  const size_t each = integer_size(u16(entry + 2, big)), count = u32(entry + 4, big), bytes = each * count;
  const uint8_t *at = entry + 8;
  if (bytes == 0) return false;
  if (bytes > INLINE) {
    const size_t offset = u32(at, big);
    if (offset > size || bytes > size - offset) return false;
    at = tiff + offset;
  }
  *value = each == 2 ? u16(at, big) : u32(at, big);
  return true;
}

int exif_orientation(const uint8_t *exif, size_t size) {
  enum { PREFIX = 6, HEADER = 8, ORIENTATION = 0x0112, ENTRY = 12, MAGIC = 42 };
  while (size >= PREFIX && !memcmp(exif, "Exif\0", PREFIX)) { // some programs write it twice
    exif += PREFIX;
    size -= PREFIX;
  }
  if (size < HEADER || (memcmp(exif, "II", 2) && memcmp(exif, "MM", 2))) return 0;
  if (u16(exif + 2, false) != MAGIC && u16(exif + 2, true) != MAGIC) return 0;
  const bool big = exif[0] == 'M';
  const size_t directory = u32(exif + 4, big);
  if (directory > size - 2) return 0;
  const size_t entries = u16(exif + directory, big);
  const uint8_t *entry = exif + directory + 2, *end = exif + size;
  for (size_t i = 0; i < entries && end - entry >= ENTRY; i++, entry += ENTRY) {
    uint32_t value;
    if (u16(entry, big) == ORIENTATION && entry_value(exif, size, entry, big, &value))
      return value >= 1 && value <= 8 ? (int)value : 0;
  }
  return 0;
}
