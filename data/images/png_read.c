#include "data/images/png_read.h"
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "base/alloc.h"
#include "data/images/png_filter.h"

enum { GRAY = 0, RGB = 2, PALETTE = 3, GRAY_ALPHA = 4, RGB_ALPHA = 6 };
enum { SIGNATURE = 8, IHDR_SIZE = 13, CHUNK = 12 }; // bytes; CHUNK: of a chunk without its data

static uint32_t u32(const uint8_t *p) { return (uint32_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3]; }

// ---- chunks ---------------------------------------------------------------------------------------------------------

typedef struct Chunk {
  const uint8_t *type, *data; // four letters
  uint32_t size;              // of the data
} Chunk;

static bool is(const Chunk *c, const char *type) { return !memcmp(c->type, type, 4); }
static bool is_critical(const Chunk *c) { return !(c->type[0] & 0x20); }
static bool is_letter(uint8_t c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }
static bool has_type(const Chunk *c) {
  return is_letter(c->type[0]) && is_letter(c->type[1]) && is_letter(c->type[2]) && is_letter(c->type[3]);
}

static int samples(int color) { return color == RGB ? 3 : color == RGB_ALPHA ? 4 : color == GRAY_ALPHA ? 2 : 1; }

bool png_is(const uint8_t *bytes, size_t size) {
  return size >= SIGNATURE && !memcmp(bytes, "\x89PNG\r\n\x1a\n", SIGNATURE);
}

bool png_header(const uint8_t *bytes, size_t size, PngHeader *header, ImageFault *fault) {
  const uint8_t *chunk = bytes + SIGNATURE, *data = chunk + 8;
  if (size < SIGNATURE + 8) return fault_set(fault, FAULT_CUT, "ends within its header");
  if (!memcmp(chunk + 4, "CgBI", 4))
    return fault_set(fault, FAULT_UNSUPPORTED, "a PNG in the iPhone format of Xcode; convert it to an ordinary PNG");
  if (memcmp(chunk + 4, "IHDR", 4) || u32(chunk) != IHDR_SIZE)
    return fault_set(fault, FAULT_CORRUPT, "its first chunk is not an IHDR of %d bytes", IHDR_SIZE);
  if (size < SIGNATURE + CHUNK + IHDR_SIZE) return fault_set(fault, FAULT_CUT, "ends within its header");
  if (crc32(0, chunk + 4, 4 + IHDR_SIZE) != u32(data + IHDR_SIZE))
    return fault_set(fault, FAULT_CORRUPT, "wrong checksum in the chunk at byte %d", SIGNATURE);
  if (u32(data) > INT32_MAX || u32(data + 4) > INT32_MAX)
    return fault_set(fault, FAULT_CORRUPT, "its header says %u×%u pixels", u32(data), u32(data + 4));
  *header = (PngHeader){
      .w = (int)u32(data), .h = (int)u32(data + 4), .bits = data[8], .color = data[9], .interlaced = data[12] == 1};
  enum { DEFLATE_MOST = 1032 }; // the most bytes that a compressed byte can decode to
  const uint64_t row = ((uint64_t)header->w * (uint64_t)samples(header->color) * (uint64_t)header->bits + 7) / 8;
  const uint64_t most = INT64_MAX / MAX((uint64_t)header->h, 1);
  header->least = row < most ? (int64_t)((uint64_t)header->h * (row + 1) / DEFLATE_MOST) : 0;
  return true;
}

// The depths allowed for each colour type are in table 11.1 of the standard.
static bool header_ok(const PngHeader *h, const uint8_t *bytes, ImageFault *fault) {
  static const uint8_t depths[] = {[GRAY] = 1 | 2 | 4 | 8 | 16,
                                   [RGB] = 8 | 16,
                                   [PALETTE] = 1 | 2 | 4 | 8,
                                   [GRAY_ALPHA] = 8 | 16,
                                   [RGB_ALPHA] = 8 | 16};
  const bool single_bit = (h->bits & (h->bits - 1)) == 0;
  if (h->color > RGB_ALPHA || !single_bit || !(depths[h->color] & h->bits))
    return fault_set(fault, FAULT_CORRUPT, "invalid header: colour type %d with %d bits", h->color, h->bits);
  const uint8_t *methods = bytes + SIGNATURE + 8 + 10; // compression, filter, interlace
  if (methods[0] || methods[1] || methods[2] > 1)
    return fault_set(fault, FAULT_CORRUPT, "invalid header: compression %d, filter %d, interlace %d", methods[0],
                     methods[1], methods[2]);
  return true;
}

typedef struct PngFile {
  PngHeader header;
  SampleRange range;       // of 16-bit samples
  const uint8_t *byte_of;  // [SAMPLE_VALUES] of 16-bit samples in the range
  uint32_t *count;         // [SAMPLE_VALUES] where samples are counted instead of written; NULL: pixels are written
  uint32_t *samples;       // [h, w, samples of a pixel] where they are kept as they are; NULL: likewise
  uint8_t palette[256][3]; // entries that the file lacks are black
  bool has_palette;
  bool clear[256];      // entries of the palette that are wholly transparent
  const uint8_t *first; // IDAT chunk; the others follow it
  uint64_t packed_size; // of all IDAT chunks together
} PngFile;

// Takes one chunk; `last` is the one before it.
static bool take_chunk(PngFile *f, const Chunk *c, const Chunk *last, ImageFault *fault) {
  if (is(c, "IDAT")) {
    if (f->first && !is(last, "IDAT"))
      return fault_set(fault, FAULT_CORRUPT, "other chunks lie between its IDAT chunks");
    if (!f->first) f->first = c->type - 4;
    f->packed_size += c->size;
  } else if (is(c, "PLTE")) {
    if (f->header.color != PALETTE) return true; // only a suggestion for displays
    if (f->has_palette) return fault_set(fault, FAULT_CORRUPT, "a second palette");
    if (f->first || c->size == 0 || c->size % 3 || c->size > sizeof f->palette)
      return fault_set(fault, FAULT_CORRUPT, "a palette of %u bytes%s", c->size, f->first ? " after the pixels" : "");
    memcpy(f->palette, c->data, c->size);
    f->has_palette = true;
  } else if (is(c, "tRNS") && f->header.color == PALETTE) {
    for (uint32_t i = 0; i < c->size && i < COUNT(f->clear); i++) f->clear[i] = c->data[i] == 0;
  } else if (is(c, "IHDR") && last->type) {
    return fault_set(fault, FAULT_CORRUPT, "a second IHDR");
  } else if (is_critical(c) && !is(c, "IHDR") && !is(c, "IEND")) {
    return fault_set(fault, FAULT_CORRUPT, "an unknown critical chunk, %.4s", (const char *)c->type);
  }
  return true;
}

// Walks all chunks and verifies their checksums.
static bool read_chunks(PngFile *f, const uint8_t *bytes, size_t size, ImageFault *fault) {
  Chunk c = {0}, last;
  for (size_t at = SIGNATURE; !c.type || !is(&c, "IEND"); at += CHUNK + c.size) {
    last = c;
    if (size - at < CHUNK) return fault_set(fault, FAULT_CUT, "ends without an IEND chunk");
    c = (Chunk){bytes + at + 4, bytes + at + 8, u32(bytes + at)};
    if (c.size > INT32_MAX)
      return fault_set(fault, FAULT_CORRUPT, "the chunk at byte %zu has an invalid length, %u", at, c.size);
    if (c.size > size - at - CHUNK) return fault_set(fault, FAULT_CUT, "ends within the chunk at byte %zu", at);
    if (crc32(0, c.type, c.size + 4) != u32(c.data + c.size))
      return fault_set(fault, FAULT_CORRUPT, "wrong checksum in the chunk at byte %zu", at);
    if (!has_type(&c))
      return fault_set(fault, FAULT_CORRUPT, "the type of the chunk at byte %zu has characters other than letters", at);
    if (!take_chunk(f, &c, &last, fault)) return false;
  }
  if (!f->first) return fault_set(fault, FAULT_CORRUPT, "no IDAT chunk");
  if (f->header.color == PALETTE && !f->has_palette) return fault_set(fault, FAULT_CORRUPT, "no palette");
  return true;
}

// ---- inflating ------------------------------------------------------------------------------------------------------

static voidpf take(voidpf scratch, uInt items, uInt bytes) { return scratch_take(scratch, (size_t)items * bytes); }
static void give_back(voidpf scratch, voidpf piece) {
  (void)scratch;
  (void)piece;
}

typedef struct Inflater {
  z_stream z;
  Chunk next; // to be read after z.next_in
  int status;
} Inflater;

// Inflates up to `want` bytes of the IDAT chunks; returns how many.
static size_t inflate_some(Inflater *s, uint8_t *out, size_t want) {
  z_stream *z = &s->z;
  z->next_out = out;
  z->avail_out = (uInt)want;
  while (s->status == Z_OK && z->avail_out > 0) {
    s->status = inflate(z, Z_NO_FLUSH);
    if (s->status != Z_BUF_ERROR || !is(&s->next, "IDAT")) continue; // only that needs the next chunk
    z->next_in = (Bytef *)s->next.data;
    z->avail_in = s->next.size;
    const uint8_t *behind = s->next.data + s->next.size + 4;
    s->next = (Chunk){behind + 4, behind + 8, u32(behind)};
    s->status = Z_OK;
  }
  return want - z->avail_out;
}

static bool inflate_fault(const Inflater *s, ImageFault *fault) {
  if (s->status == Z_MEM_ERROR) return fault_set(fault, FAULT_MEMORY, "inflate");
  return fault_set(fault, FAULT_CORRUPT, "its compressed pixels: %s", s->z.msg ? s->z.msg : "they end too early");
}

// Up to the end of the stream, where zlib checks the Adler-32. Like libpng, drops data that are more than the pixels.
static bool inflate_rest(Inflater *s, ImageFault *fault) {
  enum { MOST = 1 << 20 };
  uint8_t surplus[4096];
  for (size_t dropped = 0; s->status == Z_OK;)
    if ((dropped += inflate_some(s, surplus, sizeof surplus)) > MOST)
      return fault_set(fault, FAULT_CORRUPT, "its compressed pixels: they are many more than its size needs");
  return s->status == Z_STREAM_END || inflate_fault(s, fault);
}

// ---- rows -----------------------------------------------------------------------------------------------------------

static inline void put(uint8_t *to, uint8_t r, uint8_t g, uint8_t b) {
  to[0] = r;
  to[1] = g;
  to[2] = b;
}

static bool has_alpha(int color) { return color == GRAY_ALPHA || color == RGB_ALPHA; }

static inline int u16(const uint8_t *p) { return p[0] << 8 | p[1]; }

// Sixteen-bit samples of `range` as bytes; NULL if out of memory.
static const uint8_t *bytes_of(SampleRange range, Scratch *scratch) {
  uint8_t *byte = scratch_resize(scratch, NULL, 0, SAMPLE_VALUES);
  for (int v = 0; byte && v < SAMPLE_VALUES; v++) byte[v] = sample_range_byte(range, v);
  return byte;
}

// As write_row, for 16-bit samples.
static void write_deep_row(const PngFile *f, const uint8_t *row, int w, uint8_t *to, ptrdiff_t step) {
  const int color = f->header.color, pixel = 2 * samples(color);
  for (int x = 0; x < w; x++, to += step, row += pixel) {
    const uint8_t first = f->byte_of[u16(row)];
    if (color == GRAY || color == GRAY_ALPHA)
      put(to, first, first, first);
    else
      put(to, first, f->byte_of[u16(row + 2)], f->byte_of[u16(row + 4)]);
  }
}

// Counts the samples of a row, except those of alpha.
static void count_row(const PngFile *f, const uint8_t *row, int w) {
  const int color = f->header.color, all = samples(color), colors = all - has_alpha(color);
  for (int x = 0; x < w; x++, row += 2 * all)
    for (int k = 0; k < colors; k++) f->count[u16(row + 2 * k)]++;
}

// Keeps the samples of a row, whose pixels are `step` pixels apart in the image.
static void keep_row(const PngFile *f, const uint8_t *row, int w, uint32_t *to, int step) {
  const int bits = f->header.bits, n = samples(f->header.color);
  for (int x = 0; x < w; x++, to += (size_t)step * n)
    for (int k = 0; k < n; k++) {
      const size_t i = (size_t)x * n + k;
      const int packed = bits < 8 ? row[i * bits / 8] >> (8 - bits - i * bits % 8) & ((1 << bits) - 1) : row[i];
      to[k] = (uint32_t)(bits == 16 ? u16(row + 2 * i) : packed);
    }
}

// Writes the w pixels of a row with samples of at most 8 bits, `step` bytes apart in the image.
static void write_row(const PngFile *f, const uint8_t *row, int w, uint8_t *to, ptrdiff_t step) {
  const PngHeader *h = &f->header;
  const int bits = h->bits, top = (1 << bits) - 1;
  switch (h->color) {
  case GRAY:
  case PALETTE:
    for (int x = 0; x < w; x++, to += step) {
      int v = bits == 8 ? row[x] : row[(size_t)x * bits / 8] >> (8 - bits - x * bits % 8) & top;
      if (h->color == PALETTE) {
        memcpy(to, f->palette[v], 3);
      } else {
        v = v * 255 / top;
        put(to, (uint8_t)v, (uint8_t)v, (uint8_t)v);
      }
    }
    break;
  case GRAY_ALPHA:
    for (int x = 0; x < w; x++, to += step, row += 2) put(to, row[0], row[0], row[0]);
    break;
  default:
    if (h->color == RGB && step == 3) {
      memcpy(to, row, (size_t)w * 3);
      break;
    }
    const int pixel = samples(h->color);
    for (int x = 0; x < w; x++, to += step, row += pixel) put(to, row[0], row[1], row[2]);
  }
}

// ---- passes ---------------------------------------------------------------------------------------------------------

// Every dx-th pixel from x of every dy-th row from y: all of them, or one of Adam7's seven.
typedef struct PngPass {
  int x, y, dx, dy;
} PngPass;
static const PngPass whole[] = {{0, 0, 1, 1}};
static const PngPass adam7[] = {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4},
                                {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}};

static size_t row_size(const PngHeader *h, int w) { return ((size_t)w * samples(h->color) * h->bits + 7) / 8; }

static int pass_w(const PngHeader *h, const PngPass *p) { return (h->w - p->x + p->dx - 1) / p->dx; }
static int pass_h(const PngHeader *h, const PngPass *p) { return (h->h - p->y + p->dy - 1) / p->dy; }

// Rows, each after its filter, and the one above the first, so that rows are read many at a time.
enum { ROWS_BYTES = 1 << 18 };
static size_t rows_room(const PngHeader *h) { return row_size(h, h->w) + 1 + MAX(ROWS_BYTES, row_size(h, h->w) + 1); }

static bool read_pass(const PngFile *f, const PngPass *p, Inflater *s, uint8_t *rows, const RowTarget *to,
                      ImageFault *fault) {
  const PngHeader *h = &f->header;
  const int w = pass_w(h, p), height = w > 0 ? pass_h(h, p) : 0; // a pass without columns has no rows
  const size_t size = row_size(h, w), stride = size + 1, bpp = (size_t)MAX(samples(h->color) * h->bits / 8, 1);
  memset(rows, 0, stride);
  for (int y = 0; y < height;) {
    const int n = MIN((int)MAX(ROWS_BYTES / stride, 1), height - y);
    uint8_t *row = rows + stride;
    if (inflate_some(s, row, (size_t)n * stride) < (size_t)n * stride) return inflate_fault(s, fault);
    for (const int end = y + n; y < end; y++, row += stride) {
      if (row[0] >= PNG_FILTERS) return fault_set(fault, FAULT_CORRUPT, "row %d has an unknown filter, %d", y, row[0]);
      png_unfilter(row[0], row + 1, row + 1 - stride, size, bpp);
      if (f->count)
        count_row(f, row + 1, w);
      else if (f->samples)
        keep_row(f, row + 1, w, f->samples + ((size_t)(p->y + y * p->dy) * h->w + p->x) * samples(h->color), p->dx);
      else
        (h->bits == 16 ? write_deep_row : write_row)(f, row + 1, w, row_target_at(to, p->y + y * p->dy, p->x),
                                                     to->right * p->dx);
    }
    memcpy(rows, row - stride, stride);
  }
  return true;
}

// Writes pixels, or counts the samples.
static bool read_pixels(PngFile *f, const RowTarget *to, const uint8_t *bytes, size_t size, Scratch *scratch,
                        ImageFault *fault) {
  if (!png_header(bytes, size, &f->header, fault) || !header_ok(&f->header, bytes, fault)) return false;
  if (f->count && f->header.bits != 16) return true;
  if (!read_chunks(f, bytes, size, fault)) return false;
  const PngHeader *h = &f->header;
  if (h->least > (int64_t)f->packed_size)
    return fault_set(fault, FAULT_CORRUPT, "%llu compressed bytes are too few for %d×%d pixels",
                     (unsigned long long)f->packed_size, h->w, h->h);
  const PngPass *passes = h->interlaced ? adam7 : whole;
  uint8_t *rows = scratch_resize(scratch, NULL, 0, rows_room(h));
  Inflater s = {.z = {.zalloc = take, .zfree = give_back, .opaque = scratch},
                .next = {f->first + 4, f->first + 8, u32(f->first)}};
  const bool deep = h->bits == 16 && !f->count && !f->samples;
  if (deep) f->byte_of = bytes_of(f->range, scratch);
  const bool lacks = !rows || (deep && !f->byte_of);
  if (lacks || inflateInit(&s.z) != Z_OK) return fault_set(fault, FAULT_MEMORY, "rows");
  bool ok = true;
  for (int i = 0; ok && i < (h->interlaced ? COUNT(adam7) : COUNT(whole)); i++)
    ok = read_pass(f, &passes[i], &s, rows, to, fault);
  ok = ok && inflate_rest(&s, fault);
  inflateEnd(&s.z);
  return ok;
}

bool png_read(const RowTarget *to, SampleRange range, const uint8_t *bytes, size_t size, Scratch *scratch,
              ImageFault *fault) {
  return read_pixels(&(PngFile){.range = range}, to, bytes, size, scratch, fault);
}

bool png_count(uint32_t *count, const uint8_t *bytes, size_t size, Scratch *scratch, ImageFault *fault) {
  return read_pixels(&(PngFile){.count = count}, NULL, bytes, size, scratch, fault);
}

bool png_samples(Samples *s, const uint8_t *bytes, size_t size, Scratch *scratch, ImageFault *fault) {
  PngHeader h = {0};
  if (!png_header(bytes, size, &h, fault) || !header_ok(&h, bytes, fault)) return false;
  *s = (Samples){h.h, h.w, samples(h.color), h.bits, h.color == PALETTE, {{0}}, {0}, NULL};
  s->v = xmalloc((size_t)h.h * (size_t)h.w * (size_t)s->channels * sizeof *s->v);
  PngFile f = {.samples = s->v};
  const bool ok = read_pixels(&f, NULL, bytes, size, scratch, fault);
  memcpy(s->palette, f.palette, sizeof s->palette);
  memcpy(s->clear, f.clear, sizeof s->clear);
  return ok;
}
