// The marker segments of a JPEG file: what can be learnt and must be checked before its pixels are decoded.
// ITU-T T.81 annex B.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum JpegCoding { JPEG_HUFFMAN, JPEG_LOSSLESS, JPEG_ARITHMETIC } JpegCoding;

typedef struct JpegFrame {
  JpegCoding coding;
  int bits; // a sample
  int h, w;
} JpegFrame;

bool jpeg_is(const uint8_t *bytes, size_t size); // begins as a JPEG file does
// The frame header; false when the file ends before it or holds none.
bool jpeg_frame(const uint8_t *bytes, size_t size, JpegFrame *frame);
// Whether every Huffman table of the file is of lawful size. stb_image 2.27 writes past its own tables otherwise.
bool jpeg_tables_ok(const uint8_t *bytes, size_t size);
// EXIF orientation, 1 … 8; 1 (upright) without the tag. Tag 0x0112 of the TIFF structure in APP1, Exif 2.32 section
// 4.6.
int jpeg_orientation(const uint8_t *bytes, size_t size);
