#include "data/images/jpeg_tables.h"
#include <string.h>
#include "base/error.h"

enum { LENGTHS = 16, DC_SYMBOLS = 12, AC_SYMBOLS = 162 };

// Tables K.3 to K.6, luminance first.
static const uint8_t dc_lengths[2][LENGTHS] = {{0, 1, 5, 1, 1, 1, 1, 1, 1}, {0, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1}};
static const uint8_t ac_lengths[2][LENGTHS] = {{0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 125},
                                               {0, 2, 1, 2, 4, 4, 3, 4, 7, 5, 4, 4, 0, 1, 2, 119}};
// The first AC symbols, run << 4 | size; all others follow in ascending order.
static const uint8_t luminance[] = {0x01, 0x02, 0x03, 0x00, 0x04, 0x11, 0x05, 0x12, 0x21, 0x31, 0x41, 0x06, 0x13,
                                    0x51, 0x61, 0x07, 0x22, 0x71, 0x14, 0x32, 0x81, 0x91, 0xa1, 0x08, 0x23, 0x42,
                                    0xb1, 0xc1, 0x15, 0x52, 0xd1, 0xf0, 0x24, 0x33, 0x62, 0x72, 0x82};
static const uint8_t chrominance[] = {0x00, 0x01, 0x02, 0x03, 0x11, 0x04, 0x05, 0x21, 0x31, 0x06, 0x12,
                                      0x41, 0x51, 0x07, 0x61, 0x71, 0x13, 0x22, 0x32, 0x81, 0x08, 0x14,
                                      0x42, 0x91, 0xa1, 0xb1, 0xc1, 0x09, 0x23, 0x33, 0x52, 0xf0, 0x15,
                                      0x62, 0x72, 0xd1, 0x0a, 0x16, 0x24, 0x34, 0xe1, 0x25, 0xf1};

size_t jpeg_standard_table(bool ac, int number, uint8_t table[JPEG_TABLE_ROOM]) {
  const uint8_t *first = number ? chrominance : luminance;
  const size_t firsts = number ? sizeof chrominance : sizeof luminance;
  uint8_t *symbol = table + 1 + LENGTHS;
  table[0] = (uint8_t)(ac << 4 | number);
  memcpy(table + 1, ac ? ac_lengths[number] : dc_lengths[number], LENGTHS);
  if (!ac) {
    for (int i = 0; i < DC_SYMBOLS; i++) *symbol++ = (uint8_t)i;
    return 1 + LENGTHS + DC_SYMBOLS;
  }
  memcpy(symbol, first, firsts);
  symbol += firsts;
  for (int run = 0; run < 16; run++)
    for (int size = 1; size <= 10; size++)
      if (!memchr(first, run << 4 | size, firsts)) *symbol++ = (uint8_t)(run << 4 | size);
  CHECK(symbol == table + JPEG_TABLE_ROOM);
  return JPEG_TABLE_ROOM;
}
