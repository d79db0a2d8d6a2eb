#include "data/images/image.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "data/images/jpeg.h"

#define STB_IMAGE_IMPLEMENTATION
#define STBI_ONLY_JPEG
#define STBI_ONLY_PNG
#define STBI_NO_STDIO
#define STBI_NO_LINEAR
#define STBI_MAX_DIMENSIONS 65536
// Scratch memory is zeroed, because a scan that names a Huffman table which the file never defined makes stb_image 2.27
// decode with whatever the memory held. stb_image's allocator takes no argument, so the thread has to know its own.
static _Thread_local Scratch *decoding;
#define STBI_MALLOC(bytes) scratch_take(decoding, bytes)
#define STBI_REALLOC_SIZED(p, old, bytes) scratch_resize(decoding, p, old, bytes)
#define STBI_FREE(p) ((void)(p))
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wunused-but-set-variable"
#pragma GCC diagnostic ignored "-Wsign-compare"
#include <stb/stb_image.h>
#pragma GCC diagnostic pop

Image image_alloc(int h, int w) { return (Image){h, w, xcalloc((size_t)h * w, 3)}; }

void image_free(Image *im) {
  free(im->rgb);
  *im = (Image){0};
}

// Reading through callbacks shows what stb_image does not report: that the decoder wanted bytes after the last one. It
// takes them as zeros, which turns a truncated JPEG into a picture whose lower part is gray.
typedef struct Bytes {
  const uint8_t *at, *end;
  bool past_end;
} Bytes;

static int bytes_read(void *user, char *out, int want) {
  Bytes *b = user;
  int have = (int)MIN((ptrdiff_t)want, b->end - b->at);
  memcpy(out, b->at, (size_t)have);
  b->at += have;
  b->past_end |= have == 0;
  return have;
}
static void bytes_skip(void *user, int count) {
  Bytes *b = user;
  b->past_end |= count > b->end - b->at;
  b->at += MIN((ptrdiff_t)count, b->end - b->at);
}
static int bytes_eof(void *user) {
  const Bytes *b = user;
  return b->at == b->end;
}
static const stbi_io_callbacks bytes_io = {bytes_read, bytes_skip, bytes_eof};

static bool png_is(const uint8_t *bytes, size_t size) { return size >= 8 && !memcmp(bytes, "\x89PNG\r\n\x1a\n", 8); }

static uint32_t png_u32(const uint8_t *p) { return (uint32_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3]; }

// What stb_image 2.27 must not see of a file of at least 24 bytes, or NULL: Apple's CgBI before IHDR, which our look at
// the size does not read; a chunk past the file's end, over which it steps to somewhere else, or makes room for 2 GB
// before it looks; an empty IDAT before any other, for it adds to a null pointer.
static const char *png_fault(const uint8_t *bytes, size_t size) {
  if (memcmp(bytes + 12, "IHDR", 4)) return "no IHDR";
  bool data = false;
  for (uint64_t at = 8, length; at + 8 <= size; at += 12 + length) { // length, name, data, CRC
    length = png_u32(bytes + at);
    if (!memcmp(bytes + at + 4, "IEND", 4)) break;
    if (at + 8 + length > size) return "outofdata";
    if (memcmp(bytes + at + 4, "IDAT", 4)) continue;
    if (!data && length == 0) return "empty IDAT";
    data = true;
  }
  return NULL;
}

typedef enum ImageHeader { HEADER_OK, HEADER_CUT, HEADER_UNKNOWN } ImageHeader;

// Size as the header says. Not by stb_image, which would read Huffman tables on the way.
static ImageHeader read_header(const uint8_t *bytes, size_t size, int *h, int *w) {
  if (jpeg_is(bytes, size)) {
    JpegFrame frame;
    if (!jpeg_frame(bytes, size, &frame)) return HEADER_CUT;
    *h = frame.h;
    *w = frame.w;
    return HEADER_OK;
  }
  if (!png_is(bytes, size)) return HEADER_UNKNOWN;
  if (size < 24) return HEADER_CUT;
  *w = (int)(png_u32(bytes + 16) & INT32_MAX); // after the signature and IHDR's length and name
  *h = (int)(png_u32(bytes + 20) & INT32_MAX);
  return HEADER_OK;
}

// stb_image gives some failures no reason; what it said last would be of an earlier image, or NULL.
static const char unexplained[] = "malformed";

// What a refused file most likely is, and the way out: the reasons that stb_image gives are for programmers.
static bool refuse(const char *name, const uint8_t *bytes, size_t size, bool cut, const char *reason, Err *err) {
  static const char lfs[] = "version https://git-lfs";
  JpegFrame frame = {.bits = 8};
  bool jpeg = jpeg_is(bytes, size);
  if (jpeg) jpeg_frame(bytes, size, &frame);
  const char *why = NULL;
  if (size == 0)
    why = "the file is empty; copy or download it again";
  else if (size > sizeof lfs && !memcmp(bytes, lfs, sizeof lfs - 1))
    why = "a Git LFS pointer; run `git lfs pull`";
  else if (!jpeg && !png_is(bytes, size))
    why = "not a JPEG or PNG file; convert it";
  else if (frame.coding == JPEG_ARITHMETIC)
    why = "an arithmetic-coded JPEG; convert it to a baseline one or to PNG";
  else if (frame.coding == JPEG_LOSSLESS)
    why = "a lossless JPEG; convert it to PNG";
  else if (frame.bits != 8)
    why = "a JPEG with more than 8 bits per sample; convert it to PNG";
  else if (cut || !strcmp(reason, "outofdata"))
    why = "the file is truncated; copy or download it again";
  else if (!strcmp(reason, "outofmem"))
    why = "it decompresses to more than 4 GB";
  if (why) return err_set(err, "%s: cannot read the image: %s", name, why);
  if (jpeg && !strcmp(reason, "bad png sig")) reason = unexplained; // left from looking whether it is a PNG
  return err_set(err, "%s: cannot read the image: corrupt (%s); copy or download it again, or remove it", name, reason);
}

static bool refuse_without_memory(const char *name, size_t bytes, Err *err) {
  char what[512];
  snprintf(what, sizeof what, "the pixels of %s", name);
  return err_memory(err, bytes, what, NULL);
}

static bool size_ok(int h, int w, const char *name, Err *err) {
  if (h > 0 && w > 0 && (int64_t)h * w <= IMAGE_MAX_PIXELS) return true;
  if (h <= 0 || w <= 0) return err_set(err, "%s: cannot read the image: its header says %d×%d pixels", name, w, h);
  return err_set(err, "%s: cannot read the image: its header says %d×%d pixels; at most %d in all are supported", name,
                 w, h, IMAGE_MAX_PIXELS);
}

bool image_measure(const uint8_t *bytes, size_t size, const char *name, int *h, int *w, Err *err) {
  ImageHeader header = read_header(bytes, size, h, w);
  if (header != HEADER_OK) return refuse(name, bytes, size, header == HEADER_CUT, "", err);
  return size_ok(*h, *w, name, err);
}

int image_orientation(const uint8_t *bytes, size_t size) {
  return jpeg_is(bytes, size) ? jpeg_orientation(bytes, size) : 1;
}

bool image_info(const char *path, bool upright, int *h, int *w, Err *err) {
  if (!path_is_file(path)) return err_set(err, "cannot open %s: no such file, or not a regular file", path);
  uint8_t start[4096]; // holds most headers; long metadata before a JPEG's frame sends us to the whole file
  FILE *f = fopen(path, "rb");
  size_t size = f ? fread(start, 1, sizeof start, f) : 0;
  if (f) fclose(f);
  char *whole = NULL;
  const uint8_t *bytes = start;
  if (read_header(start, size, h, w) != HEADER_OK) {
    if (!(whole = file_read(path, &size, err))) return false;
    bytes = (const uint8_t *)whole;
  }
  bool ok = image_measure(bytes, size, path, h, w, err);
  if (ok && upright && image_orientation(bytes, size) >= IMAGE_TURNED) {
    int stored = *h;
    *h = *w;
    *w = stored;
  }
  free(whole);
  return ok;
}

// Pixels [h, w, channels], of which the first three channels count, to rgb, upright.
static void write_upright(uint8_t *rgb, const uint8_t *pixels, int channels, int h, int w, int orientation) {
  const bool from_bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const ptrdiff_t down = (ptrdiff_t)w * channels * (from_bottom ? -1 : 1), right = from_right ? -channels : channels;
  const uint8_t *first = pixels;
  if (from_bottom) first += (ptrdiff_t)(h - 1) * w * channels;
  if (from_right) first += (ptrdiff_t)(w - 1) * channels;
  const bool turned = orientation >= IMAGE_TURNED;
  const ptrdiff_t next_row = turned ? right : down, next = turned ? down : right;
  for (int y = 0; y < (turned ? w : h); y++) {
    const uint8_t *p = first + y * next_row;
    for (int x = 0; x < (turned ? h : w); x++, p += next, rgb += 3) memcpy(rgb, p, 3);
  }
}

bool image_decode_into(uint8_t *rgb, int orientation, const uint8_t *bytes, size_t size, Scratch *scratch,
                       const char *name, Err *err) {
  int h = 0, w = 0, got_h, got_w, stored;
  if (!image_measure(bytes, size, name, &h, &w, err)) return false;
  if (jpeg_is(bytes, size) && !jpeg_tables_ok(bytes, size))
    return refuse(name, bytes, size, false, "bad Huffman table", err);
  const char *fault = png_is(bytes, size) ? png_fault(bytes, size) : NULL;
  if (fault) return refuse(name, bytes, size, false, fault, err);
  Bytes b = {bytes, bytes + size, false};
  const int channels = jpeg_is(bytes, size) ? 4 : 3; // stb_image's vector code for YCbCr writes four
  decoding = scratch;
  stbi__g_failure_reason = unexplained;
  const uint8_t *pixels = stbi_load_from_callbacks(&bytes_io, &b, &got_w, &got_h, &stored, channels);
  decoding = NULL;
  if (!pixels && scratch->lacking) return refuse_without_memory(name, scratch->lacking, err);
  if (!pixels || b.past_end) return refuse(name, bytes, size, b.past_end, pixels ? "" : stbi_failure_reason(), err);
  if (got_h != h || got_w != w) return refuse(name, bytes, size, false, "two sizes", err);
  write_upright(rgb, pixels, channels, h, w, orientation);
  return true;
}

static bool decode_owned(Image *im, bool upright, const uint8_t *bytes, size_t size, const char *name, Err *err) {
  *im = (Image){0};
  int h = 0, w = 0;
  if (!image_measure(bytes, size, name, &h, &w, err)) return false;
  const int orientation = upright ? image_orientation(bytes, size) : 1;
  const bool turned = orientation >= IMAGE_TURNED;
  *im = (Image){.h = turned ? w : h, .w = turned ? h : w, .rgb = malloc((size_t)h * w * 3)};
  if (!im->rgb) return refuse_without_memory(name, (size_t)h * w * 3, err);
  Scratch scratch = {0};
  bool ok = image_decode_into(im->rgb, orientation, bytes, size, &scratch, name, err);
  scratch_free(&scratch);
  if (!ok) image_free(im);
  return ok;
}

bool image_decode(Image *im, const uint8_t *bytes, size_t size, const char *name, Err *err) {
  return decode_owned(im, false, bytes, size, name, err);
}

static bool load(Image *im, bool upright, const char *path, Err *err) {
  *im = (Image){0};
  size_t size;
  Scratch file = {0};
  const uint8_t *bytes = scratch_read_file(&file, path, &size, err);
  bool ok = bytes && decode_owned(im, upright, bytes, size, path, err);
  scratch_free(&file);
  return ok;
}
bool image_load(Image *im, const char *path, Err *err) { return load(im, false, path, err); }
bool image_load_upright(Image *im, const char *path, Err *err) { return load(im, true, path, err); }
