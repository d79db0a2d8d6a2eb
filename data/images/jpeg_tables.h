// The standard Huffman tables of ITU-T T.81 annex K.3, which nearly all files include and Motion JPEG omits.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JPEG_TABLE_ROOM = 1 + 16 + 162 }; // bytes of the longest

// One table in a DHT segment's format: class (0 DC, 1 AC) and number (0 luminance, 1 chrominance) in a byte, the number
// of codes of each length from 1 to 16, and their symbols. Returns the size.
size_t jpeg_standard_table(bool ac, int number, uint8_t table[JPEG_TABLE_ROOM]);
