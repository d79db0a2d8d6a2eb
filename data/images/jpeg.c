#include "data/images/jpeg.h"
#include <string.h>
#include "data/images/exif.h"

static unsigned u16(const uint8_t *p) { return p[0] << 8 | p[1]; }

bool jpeg_is(const uint8_t *bytes, size_t size) { return size >= 2 && bytes[0] == 0xff && bytes[1] == JPEG_SOI; }

JpegStep jpeg_next(const uint8_t **at, const uint8_t *end, JpegSegment *s) {
  const uint8_t *p = *at;
  bool standalone = true;
  *s = (JpegSegment){.body = end};
  while (standalone) { // in entropy-coded data 0xff is followed by zero or a restart marker
    p = memchr(p, 0xff, (size_t)(end - p));
    if (!p) return JPEG_CUT;
    while (p < end && *p == 0xff) p++; // fill bytes before a marker are legal
    if (p == end) return JPEG_CUT;
    if (*p == JPEG_EOI) return JPEG_END;
    standalone = *p <= 1 || (*p >= JPEG_RST0 && *p <= JPEG_SOI);
  }
  if (end - p < 3) return JPEG_CUT;
  const size_t length = u16(p + 1);
  *s = (JpegSegment){*p, p + 3, length - 2};
  if (length < 2) return JPEG_BAD;
  const bool cut = s->size > (size_t)(end - s->body);
  if (cut) s->size = (size_t)(end - s->body);
  *at = s->body + s->size;
  return cut ? JPEG_CUT : JPEG_SEGMENT;
}

bool jpeg_step_fault(JpegStep step, const JpegSegment *s, const uint8_t *bytes, const char *lacks, ImageFault *fault) {
  if (step == JPEG_CUT) return fault_set(fault, FAULT_CUT, "no %s", lacks);
  if (step == JPEG_END) return fault_set(fault, FAULT_CORRUPT, "no %s before its end marker", lacks);
  return fault_set(fault, FAULT_CORRUPT, "the segment at byte %td has an invalid length, %zu", s->body - bytes - 4,
                   s->size + 2);
}

static bool is_frame(int marker) {
  const bool basic = marker >= JPEG_SOF0 && marker <= JPEG_SOF15;
  return (basic && marker != JPEG_DHT && marker != JPEG_JPG && marker != JPEG_DAC) || marker == JPEG_SOF55;
}

static bool frame_supported(const JpegFrame *frame, ImageFault *fault) {
  const char *what = NULL;
  if (frame->marker == JPEG_SOF55)
    what = "a JPEG-LS file; convert it to PNG";
  else if (frame->marker > JPEG_JPG)
    what = "an arithmetic-coded JPEG; convert it to a baseline JPEG or to PNG";
  else if (frame->marker == JPEG_SOF3)
    what = "a lossless JPEG; convert it to PNG";
  else if (frame->marker > JPEG_SOF3)
    what = "a hierarchical JPEG; convert it to a baseline JPEG or to PNG";
  else if (frame->bits != 8)
    what = "a JPEG with more than 8 bits per sample; convert it to PNG";
  else if (frame->h == 0)
    what = "a JPEG that gives its height only at the end (DNL); convert it to PNG";
  return !what || fault_set(fault, FAULT_UNSUPPORTED, "%s", what);
}

enum { HEAD = 6, EACH = 3 }; // bytes of a frame header: before its components, of each of them

// The number of components and the largest sampling factors; no components where the segment is too short.
static int read_components(const JpegSegment *s, int *h_max, int *v_max) {
  const int n = s->size >= HEAD ? s->body[HEAD - 1] : 0;
  *h_max = *v_max = 1;
  if (s->size < HEAD + EACH * (size_t)n) return 0;
  for (int i = 0; i < n; i++) {
    const int sampling = s->body[HEAD + EACH * i + 1];
    *h_max = MAX(*h_max, sampling >> 4);
    *v_max = MAX(*v_max, sampling & 15);
  }
  return n;
}

// Refuses what T.81 allows but libjpeg does not decode either.
static bool components_supported(const JpegSegment *s, ImageFault *fault) {
  enum { MOST = 4 }; // of a sampling factor; 0 and more than this are not JPEG
  int h_max, v_max;
  const int n = read_components(s, &h_max, &v_max);
  if (n == 2) return fault_set(fault, FAULT_UNSUPPORTED, "a JPEG of 2 components, not 1, 3 or 4; convert it to PNG");
  for (int i = 0; i < n && h_max <= MOST && v_max <= MOST; i++) {
    const int sampling = s->body[HEAD + EACH * i + 1], h = sampling >> 4, v = sampling & 15;
    if (h && v && (h_max % h || v_max % v))
      return fault_set(fault, FAULT_UNSUPPORTED, "a JPEG with %d component samples for %d pixels; convert it to PNG",
                       h_max % h ? h : v, h_max % h ? h_max : v_max);
  }
  return true;
}

// Of every block at least the DC takes a bit of Huffman code; in a sequential image the end of the block, too. (A
// progressive scan of AC may pass over any number of blocks.) 0 where the segment is too short.
static int64_t least_bytes(const JpegFrame *f, const JpegSegment *s) {
  int h_max, v_max;
  const int n = read_components(s, &h_max, &v_max);
  int64_t blocks = 0;
  for (int i = 0; i < n; i++) {
    const int sampling = s->body[HEAD + EACH * i + 1];
    const int64_t w = (int64_t)f->w * (sampling >> 4) / h_max, h = (int64_t)f->h * (sampling & 15) / v_max;
    blocks += (w + 7) / 8 * ((h + 7) / 8);
  }
  return blocks * (f->marker == JPEG_SOF2 ? 1 : 2) / 8;
}

bool jpeg_frame(const uint8_t *bytes, size_t size, JpegFrame *frame, ImageFault *fault) {
  const uint8_t *at = bytes;
  JpegSegment s;
  JpegStep step;
  do step = jpeg_next(&at, bytes + size, &s);
  while (step == JPEG_SEGMENT && !is_frame(s.marker));
  if (step == JPEG_BAD || !is_frame(s.marker)) return jpeg_step_fault(step, &s, bytes, "frame header", fault);
  if (s.size < 5) return jpeg_step_fault(step == JPEG_CUT ? JPEG_CUT : JPEG_BAD, &s, bytes, "frame header", fault);
  *frame = (JpegFrame){s.marker, s.body[0], (int)u16(s.body + 1), (int)u16(s.body + 3), 0};
  frame->least = least_bytes(frame, &s);
  return frame_supported(frame, fault) && components_supported(&s, fault);
}

int jpeg_orientation(const uint8_t *bytes, size_t size) {
  enum { PREFIX = 6 }; // before the TIFF header
  const uint8_t *at = bytes;
  JpegSegment s;
  JpegStep step;
  do {
    step = jpeg_next(&at, bytes + size, &s);
    if (s.marker != JPEG_APP1 || step == JPEG_BAD || s.size < PREFIX || memcmp(s.body, "Exif\0", PREFIX)) continue;
    const int orientation = exif_orientation(s.body, s.size);
    return orientation || step == JPEG_SEGMENT ? orientation : -1;
  } while (step == JPEG_SEGMENT && s.marker != JPEG_SOS);
  return step == JPEG_CUT ? -1 : 0;
}
