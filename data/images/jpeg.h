// The marker segments of a JPEG file. ITU-T T.81 annex B.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "data/images/fault.h"

enum {
  JPEG_SOF0 = 0xc0, // baseline
  JPEG_SOF1,        // the same with more tables
  JPEG_SOF2,        // progressive
  JPEG_SOF3,        // lossless
  JPEG_DHT,
  JPEG_JPG = 0xc8,
  JPEG_DAC = 0xcc,
  JPEG_SOF15 = 0xcf,
  JPEG_RST0 = 0xd0,
  JPEG_RST7 = 0xd7,
  JPEG_SOI,
  JPEG_EOI,
  JPEG_SOS,
  JPEG_DQT,
  JPEG_DNL,
  JPEG_DRI,
  JPEG_APP0 = 0xe0,
  JPEG_APP1,
  JPEG_APP15 = 0xef,
  JPEG_SOF55 = 0xf7, // JPEG-LS
  JPEG_COM = 0xfe,
};

typedef struct JpegSegment {
  int marker;
  const uint8_t *body; // after the marker and the two bytes of length
  size_t size;         // of the body, or of the part of it that is in the file
} JpegSegment;

typedef enum JpegStep { JPEG_SEGMENT, JPEG_END, JPEG_CUT, JPEG_BAD } JpegStep;

typedef struct JpegFrame {
  int marker; // JPEG_SOF0 … JPEG_SOF15, JPEG_SOF55
  int bits;   // per sample
  int h, w;
  int64_t least; // bytes that its coded pixels take, or more
} JpegFrame;

bool jpeg_is(const uint8_t *bytes, size_t size); // whether it begins as a JPEG file does
// Advances *at past the next segment, skipping entropy-coded data and anything else that is not a marker. JPEG_END at
// EOI; JPEG_CUT at the end of the file, also within a segment, whose available part is then returned; JPEG_BAD at a
// segment of less than two bytes, to which s->body then points.
JpegStep jpeg_next(const uint8_t **at, const uint8_t *end, JpegSegment *s);
// Finds the frame header; false if the file ends first, has none, or uses a coding that we do not decode.
bool jpeg_frame(const uint8_t *bytes, size_t size, JpegFrame *frame, ImageFault *fault);
// The message for a step other than JPEG_SEGMENT where a segment is needed. `lacks`: what is missing from the file.
bool jpeg_step_fault(JpegStep step, const JpegSegment *s, const uint8_t *bytes, const char *lacks, ImageFault *fault);
// The orientation in the first EXIF block (APP1) before the pixels: 1 … 8, 0 without a valid one, or -1 if the bytes
// end before that is known.
int jpeg_orientation(const uint8_t *bytes, size_t size);
