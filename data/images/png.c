#include "data/images/png.h"
#include <errno.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "base/alloc.h"
#include "base/lock.h"
#include "base/regular.h"
#include "data/images/png_filter.h"

static void put_u32(uint8_t *p, uint32_t v) {
  for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> (24 - 8 * i));
}

// Length, type, data, CRC of type and data.
static void write_chunk(FILE *f, const char *type, const uint8_t *data, size_t size) {
  uint8_t head[8], tail[4];
  put_u32(head, (uint32_t)size);
  memcpy(head + 4, type, 4);
  uLong crc = crc32(crc32(0, head + 4, 4), data, (uInt)size);
  put_u32(tail, (uint32_t)crc);
  fwrite(head, 1, sizeof head, f);
  fwrite(data, 1, size, f);
  fwrite(tail, 1, sizeof tail, f);
}

// Filters one row: the residual of each byte after predicting it from its neighbours. `up` is the row above, zeros for
// the first; `bpp` is bytes per pixel. Returns the sum of the residuals' magnitudes: a smaller sum usually compresses
// better.
static uint64_t filter_row(int filter, const uint8_t *row, const uint8_t *up, size_t size, size_t bpp, uint8_t *out) {
  uint64_t sum = 0;
  for (size_t i = 0; i < size; i++) {
    int a = i < bpp ? 0 : row[i - bpp], b = up[i], c = i < bpp ? 0 : up[i - bpp];
    int predicted = filter == PNG_NONE      ? 0
                    : filter == PNG_SUB     ? a
                    : filter == PNG_UP      ? b
                    : filter == PNG_AVERAGE ? (a + b) / 2
                                            : png_paeth(a, b, c);
    out[i] = (uint8_t)(row[i] - predicted);
    sum += (uint64_t)abs((int8_t)out[i]);
  }
  return sum;
}

// Writes each row as its filter's number and the filtered bytes; filters are chosen by the specification's heuristic
// (12.8).
static void filter_rows(const PngPixels *im, int first, int end, uint8_t *out) {
  const size_t bpp = (size_t)im->channels * (size_t)im->sample_bytes, stride = (size_t)im->w * bpp;
  uint8_t *trial = xmalloc(stride), *zeros = xcalloc(stride, 1);
  for (int y = first; y < end; y++, out += stride + 1) {
    const uint8_t *row = im->bytes + (size_t)y * stride, *up = y > 0 ? row - stride : zeros;
    uint64_t least = UINT64_MAX;
    for (int filter = 0; filter < PNG_FILTERS && least > 0; filter++) {
      uint64_t sum = filter_row(filter, row, up, stride, bpp, trial);
      if (sum >= least) continue;
      least = sum;
      out[0] = (uint8_t)filter;
      memcpy(out + 1, trial, stride);
    }
  }
  free(trial);
  free(zeros);
}

// ---- compression --------------------------------------------------------------------------------------------------

enum { BAND_BYTES = 1 << 20 };
enum { DEFLATE_BYTES = 268 << 10 }; // memory of a zlib compressor, from its manual

// Rows that are compressed by themselves, so that several threads share an image. The bands of an image depend on its
// size alone.
typedef struct Band {
  uint8_t *packed;       // after room for the stream's header and before room for its checksum; owned
  size_t size, filtered; // bytes
  uLong adler;           // checksum of the filtered bytes
} Band;
enum { STREAM_HEADER = 2, STREAM_CHECKSUM = 4 };

static Band pack_band(const PngPixels *im, int first, int end, int level) {
  const size_t stride = (size_t)im->w * (size_t)(im->channels * im->sample_bytes);
  const size_t size = (stride + 1) * (size_t)(end - first);
  uint8_t *filtered = xmalloc(size);
  filter_rows(im, first, end, filtered);
  z_stream z = {0};
  int status = deflateInit2(&z, level, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY); // -15: no header, window of 32 KB
  if (status == Z_MEM_ERROR) die_of_memory(DEFLATE_BYTES, HERE);
  CHECK(status == Z_OK);
  Band band = {.filtered = size, .adler = adler32(adler32(0, NULL, 0), filtered, (uInt)size)};
  const size_t room = deflateBound(&z, (uLong)size) + 16; // a flush ends with an empty block
  band.packed = xmalloc(STREAM_HEADER + room + STREAM_CHECKSUM);
  z.next_in = filtered;
  z.avail_in = (uInt)size;
  z.next_out = band.packed + STREAM_HEADER;
  z.avail_out = (uInt)room;
  status = deflate(&z, end == im->h ? Z_FINISH : Z_SYNC_FLUSH);
  CHECK(status == (end == im->h ? Z_STREAM_END : Z_OK) && z.avail_in == 0 && z.avail_out > 0);
  band.size = room - z.avail_out;
  deflateEnd(&z);
  free(filtered);
  return band;
}

static int band_rows(const PngPixels *im) {
  return (int)MAX(BAND_BYTES / ((size_t)im->w * (size_t)(im->channels * im->sample_bytes) + 1), 1);
}

size_t png_write_bytes(const PngPixels *im) {
  const size_t row = (size_t)im->w * (size_t)(im->channels * im->sample_bytes) + 1;
  const size_t band = row * (size_t)MIN(band_rows(im), im->h);
  enum { FILTERED = 1, PACKED = 1, ROWS = 2 };
  return (size_t)omp_get_max_threads() * (band * (FILTERED + PACKED) + band / 8 + row * ROWS + DEFLATE_BYTES);
}

// The pixels as a zlib stream, in a chunk per band, of which each thread has one.
static void write_pixels(FILE *f, const PngPixels *im, int level) {
  const int rows = band_rows(im), bands = (im->h + rows - 1) / rows;
  uLong adler = adler32(0, NULL, 0);
#pragma omp parallel for ordered schedule(dynamic)
  for (int i = 0; i < bands; i++) {
    Band band = pack_band(im, i * rows, MIN((i + 1) * rows, im->h), level);
    const size_t head = i == 0 ? STREAM_HEADER : 0;
    uint8_t *packed = band.packed + STREAM_HEADER - head;
    size_t size = head + band.size;
    if (head) memcpy(packed, (const uint8_t[]){0x78, 0x01}, STREAM_HEADER); // deflate, a window of 32 KB
#pragma omp ordered
    {
      adler = adler32_combine(adler, band.adler, (z_off_t)band.filtered);
      if (i == bands - 1) {
        put_u32(packed + size, (uint32_t)adler);
        size += STREAM_CHECKSUM;
      }
      write_chunk(f, "IDAT", packed, size);
    }
    free(band.packed);
  }
}

// ---- files --------------------------------------------------------------------------------------------------------

enum { SIGNATURE = 8, HEADER = 13, CHUNK = 12 }; // bytes; CHUNK: of a chunk without its data
static const char keyword[] = "Software";        // its NUL separates it from the text

static void write_image(FILE *f, const PngPixels *im, int level, const char *software) {
  static const uint8_t signature[SIGNATURE] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  static const uint8_t color[] = {[1] = 0, [3] = 2, [4] = 6}; // gray, RGB, RGB with alpha
  uint8_t header[HEADER] = {[8] = (uint8_t)(8 * im->sample_bytes), [9] = color[im->channels]}; // not interlaced
  put_u32(header, (uint32_t)im->w);
  put_u32(header + 4, (uint32_t)im->h);
  fwrite(signature, 1, sizeof signature, f);
  write_chunk(f, "IHDR", header, sizeof header);
  if (software) {
    char *text = xasprintf("%s %s", keyword, software);
    text[sizeof keyword - 1] = 0;
    write_chunk(f, "tEXt", (const uint8_t *)text, sizeof keyword + strlen(software));
    free(text);
  }
  write_pixels(f, im, level);
  write_chunk(f, "IEND", header, 0);
}

PngPixels png_pixels(const Image *im) {
  return (PngPixels){.h = im->h, .w = im->w, .channels = 3, .sample_bytes = 1, .bytes = im->rgb};
}

bool png_write(const char *path, const Image *im, int level, Err *err) {
  const PngPixels pixels = png_pixels(im);
  return png_write_pixels(path, &pixels, level, NULL, err);
}

bool png_write_pixels(const char *path, const PngPixels *im, int level, const char *software, Err *err) {
  CHECK(im->channels == 1 || im->channels == 3 || im->channels == 4);
  CHECK(im->sample_bytes == 1 || im->sample_bytes == 2);
  CHECK(im->h > 0 && im->w > 0);
  const int file = file_make(path, false);
  FILE *f = file >= 0 ? fdopen(file, "wb") : NULL;
  if (!f) {
    err_set(err, "cannot write %s: %s", path, strerror(errno));
    if (file >= 0) close(file);
    return false;
  }
  write_image(f, im, level, software);
  const bool failed = ferror(f);
  int reason = errno; // of a write; closing may fail too and change errno
  if (fclose(f) == 0 && !failed) return true;
  if (!failed) reason = errno;
  err_set(err, "cannot write all of %s: %s", path, strerror(reason));
  errno = reason;
  return false;
}

bool png_is_signed(const char *path, const char *software) {
  char *want = xasprintf("tEXt%s %s", keyword, software);
  size_t size = strlen(want);
  char *found = xmalloc(size);
  want[4 + sizeof keyword - 1] = 0;
  FILE *f = regular_read(path, NULL);
  bool is = f && fseek(f, SIGNATURE + CHUNK + HEADER + 4, SEEK_SET) == 0 && fread(found, 1, size, f) == size &&
            memcmp(found, want, size) == 0;
  if (f) fclose(f);
  free(found);
  free(want);
  return is;
}
