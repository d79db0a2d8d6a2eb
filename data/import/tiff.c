#include "data/import/tiff.h"
#include <string.h>

bool tiff_is(const uint8_t *bytes, size_t size) {
  return size >= 4 && (!memcmp(bytes, "II*\0", 4) || !memcmp(bytes, "MM\0*", 4) || !memcmp(bytes, "II+\0", 4) ||
                       !memcmp(bytes, "MM\0+", 4));
}

#ifdef MASKRCNN_TIFF // the build found libtiff
#include <stdlib.h>
#include <tiffio.h>
#include "base/alloc.h"
#include "data/images/image.h"

const bool tiff_is_built = true;

// ---- a file in memory -----------------------------------------------------------------------------------------------

typedef struct MemoryFile {
  const uint8_t *bytes;
  size_t size, at;
} MemoryFile;

static tsize_t read_bytes(thandle_t of, tdata_t to, tsize_t n) {
  MemoryFile *m = of;
  const size_t left = m->at < m->size ? m->size - m->at : 0, take = MIN(left, (size_t)MAX(n, 0));
  memcpy(to, m->bytes + m->at, take);
  m->at += take;
  return (tsize_t)take;
}

static tsize_t write_bytes(thandle_t of, tdata_t from, tsize_t n) {
  (void)of;
  (void)from;
  (void)n;
  return 0;
}

static toff_t seek(thandle_t of, toff_t to, int whence) {
  MemoryFile *m = of;
  m->at = (size_t)(whence == SEEK_SET ? to : whence == SEEK_CUR ? m->at + to : m->size + to);
  return m->at;
}

static int close_file(thandle_t of) {
  (void)of;
  return 0;
}

static toff_t size_of(thandle_t of) { return ((MemoryFile *)of)->size; }

static TIFF *open_memory(MemoryFile *m) {
  TIFFSetWarningHandler(NULL);
  TIFFSetErrorHandler(NULL);
  return TIFFClientOpen("", "rm", m, read_bytes, write_bytes, seek, close_file, size_of, NULL, NULL);
}

// ---- pixels ---------------------------------------------------------------------------------------------------------

typedef struct TiffLayout {
  uint32_t h, w;
  uint16_t bits, samples, planar, photometric, format;
} TiffLayout;

static bool read_layout(TIFF *t, TiffLayout *l, const char *name, Err *err) {
  *l = (TiffLayout){.bits = 1,
                    .samples = 1,
                    .planar = PLANARCONFIG_CONTIG,
                    .photometric = PHOTOMETRIC_MINISBLACK,
                    .format = SAMPLEFORMAT_UINT};
  TIFFGetField(t, TIFFTAG_IMAGELENGTH, &l->h);
  TIFFGetField(t, TIFFTAG_IMAGEWIDTH, &l->w);
  TIFFGetFieldDefaulted(t, TIFFTAG_BITSPERSAMPLE, &l->bits);
  TIFFGetFieldDefaulted(t, TIFFTAG_SAMPLESPERPIXEL, &l->samples);
  TIFFGetFieldDefaulted(t, TIFFTAG_PLANARCONFIG, &l->planar);
  TIFFGetField(t, TIFFTAG_PHOTOMETRIC, &l->photometric);
  TIFFGetFieldDefaulted(t, TIFFTAG_SAMPLEFORMAT, &l->format);
  if (l->h == 0 || l->w == 0 || (uint64_t)l->h * l->w > IMAGE_MAX_PIXELS)
    return err_set(err, "%s: cannot read the image: its header says %u×%u pixels", name, l->w, l->h);
  if (TIFFLastDirectory(t) == 0) {
    TiffLayout next = {0};
    TIFFReadDirectory(t);
    TIFFGetField(t, TIFFTAG_IMAGELENGTH, &next.h);
    TIFFGetField(t, TIFFTAG_IMAGEWIDTH, &next.w);
    if (next.h == l->h && next.w == l->w) // smaller ones are previews
      return err_set(err, "%s: cannot read the image: a TIFF of several pages; save each as a file", name);
    TIFFSetDirectory(t, 0);
  }
  const bool bits = l->bits == 1 || l->bits == 8 || l->bits == 16 || l->bits == 32;
  const bool colours = l->photometric == PHOTOMETRIC_MINISBLACK || l->photometric == PHOTOMETRIC_MINISWHITE ||
                       l->photometric == PHOTOMETRIC_PALETTE || l->photometric == PHOTOMETRIC_RGB;
  const bool integers =
      l->format == SAMPLEFORMAT_UINT || l->format == SAMPLEFORMAT_INT || l->format == SAMPLEFORMAT_VOID;
  if (bits && colours && integers && l->samples >= 1 && l->samples <= 4) return true;
  return err_set(err,
                 "%s: cannot read the image: a TIFF of %d samples of %d bits (%s); convert it to grey or RGB of 8 or "
                 "16 bits",
                 name, l->samples, l->bits, integers ? "an unusual kind" : "not whole numbers");
}

// Puts samples of a tile, or strip, of `rows` × `columns` pixels at (x, y); of one plane, or -1: of all.
static void put(Samples *s, const TiffLayout *l, const uint8_t *from, size_t stride, uint32_t y, uint32_t x,
                uint32_t rows, uint32_t columns, int plane) {
  const int n = plane < 0 ? l->samples : 1;
  for (uint32_t r = 0; r < rows && y + r < l->h; r++, from += stride)
    for (uint32_t c = 0; c < columns && x + c < l->w; c++)
      for (int k = 0; k < n; k++) {
        const size_t i = (size_t)c * (size_t)n + (size_t)k;
        uint32_t v = 0;
        if (l->bits == 1) v = from[i / 8] >> (7 - i % 8) & 1;
        if (l->bits == 8) v = from[i];
        if (l->bits == 16) v = ((const uint16_t *)(const void *)from)[i];
        if (l->bits == 32) v = ((const uint32_t *)(const void *)from)[i];
        if (l->photometric == PHOTOMETRIC_MINISWHITE) v = (uint32_t)((UINT64_C(1) << l->bits) - 1) - v;
        s->v[((size_t)(y + r) * l->w + x + c) * (size_t)s->channels + (size_t)(plane < 0 ? k : plane)] = v;
      }
}

static bool read_tiles(TIFF *t, const TiffLayout *l, Samples *s) {
  uint32_t h = 0, w = 0;
  const tmsize_t size = TIFFTileSize(t), stride = TIFFTileRowSize(t);
  if (!TIFFGetField(t, TIFFTAG_TILELENGTH, &h) || !TIFFGetField(t, TIFFTAG_TILEWIDTH, &w) || size <= 0) return false;
  const int planes = l->planar == PLANARCONFIG_SEPARATE ? l->samples : 1;
  uint8_t *tile = xmalloc((size_t)size);
  bool ok = true;
  for (int p = 0; ok && p < planes; p++)
    for (uint32_t y = 0; ok && y < l->h; y += h)
      for (uint32_t x = 0; ok && x < l->w; x += w) {
        ok = TIFFReadTile(t, tile, x, y, 0, (uint16_t)p) >= 0;
        if (ok) put(s, l, tile, (size_t)stride, y, x, h, w, planes > 1 ? p : -1);
      }
  free(tile);
  return ok;
}

static bool read_lines(TIFF *t, const TiffLayout *l, Samples *s) {
  const tmsize_t size = TIFFScanlineSize(t);
  const int planes = l->planar == PLANARCONFIG_SEPARATE ? l->samples : 1;
  if (size <= 0) return false;
  uint8_t *line = xmalloc((size_t)size);
  bool ok = true;
  for (int p = 0; ok && p < planes; p++)
    for (uint32_t y = 0; ok && y < l->h; y++) {
      ok = TIFFReadScanline(t, line, y, (uint16_t)p) >= 0;
      if (ok) put(s, l, line, (size_t)size, y, 0, 1, l->w, planes > 1 ? p : -1);
    }
  free(line);
  return ok;
}

static void read_palette(TIFF *t, const TiffLayout *l, Samples *s) {
  uint16_t *rgb[3];
  if (!TIFFGetField(t, TIFFTAG_COLORMAP, &rgb[0], &rgb[1], &rgb[2])) return;
  for (int i = 0; i < 1 << MIN(l->bits, 8); i++)
    for (int k = 0; k < 3; k++) s->palette[i][k] = (uint8_t)(rgb[k][i] >> 8);
}

bool tiff_decode(Samples *s, const uint8_t *bytes, size_t size, const char *name, Err *err) {
  MemoryFile m = {bytes, size, 0};
  TiffLayout l;
  *s = (Samples){0};
  TIFF *t = open_memory(&m);
  if (!t) return err_set(err, "%s: cannot read the image: no valid TIFF", name);
  bool ok = read_layout(t, &l, name, err);
  // Compressed pixels may be many for each byte, but no codec makes a million of one.
  if (ok && (uint64_t)l.h * l.w / 1000000 > size) ok = err_set(err, "%s: cannot read the image: truncated", name);
  if (ok) {
    *s = (Samples){(int)l.h, (int)l.w, l.samples, l.bits, l.photometric == PHOTOMETRIC_PALETTE, {{0}}, {0}, NULL};
    s->v = xcalloc((size_t)l.h * l.w * l.samples, sizeof *s->v);
    if (s->indexed) read_palette(t, &l, s);
    ok = TIFFIsTiled(t) ? read_tiles(t, &l, s) : read_lines(t, &l, s);
    if (!ok) {
      free(s->v);
      *s = (Samples){0};
      err_set(err, "%s: cannot read the image: its compressed pixels are corrupt or truncated", name);
    }
  }
  TIFFClose(t);
  return ok;
}

bool tiff_measure(const uint8_t *bytes, size_t size, const char *name, int *h, int *w, Err *err) {
  MemoryFile m = {bytes, size, 0};
  TiffLayout l;
  TIFF *t = open_memory(&m);
  if (!t) return err_set(err, "%s: cannot read the image: no valid TIFF", name);
  const bool ok = read_layout(t, &l, name, err);
  *h = (int)l.h;
  *w = (int)l.w;
  TIFFClose(t);
  return ok;
}

#else

const bool tiff_is_built = false;

bool tiff_decode(Samples *s, const uint8_t *bytes, size_t size, const char *name, Err *err) {
  (void)bytes;
  (void)size;
  *s = (Samples){0};
  return err_set(err, "%s: this build cannot read TIFF; install libtiff (Debian's libtiff-dev) and build again", name);
}

bool tiff_measure(const uint8_t *bytes, size_t size, const char *name, int *h, int *w, Err *err) {
  Samples s;
  *h = *w = 0;
  return tiff_decode(&s, bytes, size, name, err);
}

#endif
