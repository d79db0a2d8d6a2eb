// The Huffman tables of ITU-T T.81 annex K.3, which nearly all files carry and Motion JPEG leaves out.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JPEG_TABLE_ROOM = 1 + 16 + 162 }; // bytes of the longest

// One table as a DHT segment holds it: class (0 DC, 1 AC) and number (0 luminance, 1 chrominance) in a byte, how many
// codes there are of each length from 1 to 16, and their symbols. Returns the size.
size_t jpeg_standard_table(bool ac, int number, uint8_t table[JPEG_TABLE_ROOM]);
