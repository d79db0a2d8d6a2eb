#include "data/images/jpeg_write.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "data/images/jpeg_tables.h"

enum { BLOCK = 8, CELLS = BLOCK * BLOCK, COMPONENTS = 3 };

typedef struct Code { // of a symbol
  uint16_t bits;
  uint8_t length;
} Code;

typedef struct Encoder {
  uint8_t *out;
  size_t n, cap;
  uint32_t pending; // bits not written yet, in the lowest `count`
  int count;
  uint8_t zigzag[CELLS];   // cell of the block at each position of the file's order
  uint8_t quant[2][CELLS]; // luminance and chrominance, by cell
  float basis[BLOCK][BLOCK];
  Code dc[12], ac[256];
} Encoder;

// Table K.1, and the corner of table K.2; its other values are 99.
static const uint8_t luminance[CELLS] = {16, 11, 10, 16, 24,  40,  51,  61,  12, 12, 14, 19, 26,  58,  60,  55,
                                         14, 13, 16, 24, 40,  57,  69,  56,  14, 17, 22, 29, 51,  87,  80,  62,
                                         18, 22, 37, 56, 68,  109, 103, 77,  24, 35, 55, 64, 81,  104, 113, 92,
                                         49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99};
static const uint8_t chrominance[4][4] = {{17, 18, 24, 47}, {18, 21, 26, 66}, {24, 26, 56, 99}, {47, 66, 99, 99}};

// ---- tables ---------------------------------------------------------------------------------------------------------

// Codes of the same length are consecutive, and longer ones continue from there (T.81 annex C).
static void make_codes(bool ac, Code *codes) {
  uint8_t table[JPEG_TABLE_ROOM];
  jpeg_standard_table(ac, 0, table);
  const uint8_t *lengths = table + 1, *symbol = lengths + 16;
  unsigned code = 0;
  for (int length = 1; length <= 16; length++, code <<= 1)
    for (int i = 0; i < lengths[length - 1]; i++) codes[*symbol++] = (Code){(uint16_t)code++, (uint8_t)length};
}

static void make_zigzag(uint8_t zigzag[CELLS]) {
  for (int diagonal = 0, n = 0; diagonal < 2 * BLOCK - 1; diagonal++)
    for (int i = 0; i <= diagonal; i++) {
      int y = diagonal % 2 ? i : diagonal - i, x = diagonal - y;
      if (y < BLOCK && x < BLOCK) zigzag[n++] = (uint8_t)(y * BLOCK + x);
    }
}

static void make_tables(Encoder *e, int quality) {
  const int scale = quality < 50 ? 5000 / quality : 200 - 2 * quality;
  for (int i = 0; i < CELLS; i++) {
    int y = i / BLOCK, x = i % BLOCK;
    int table[2] = {luminance[i], y < 4 && x < 4 ? chrominance[y][x] : 99};
    for (int k = 0; k < 2; k++) e->quant[k][i] = (uint8_t)MIN(MAX((table[k] * scale + 50) / 100, 1), 255);
    // Row y of the basis: the cosine of frequency y
    e->basis[y][x] = (y ? 0.5f : sqrtf(0.125f)) * cosf((float)M_PI / 16 * (float)((2 * x + 1) * y));
  }
  make_zigzag(e->zigzag);
  make_codes(false, e->dc);
  make_codes(true, e->ac);
}

// ---- bytes and bits -------------------------------------------------------------------------------------------------

static void put_byte(Encoder *e, int byte) {
  array_reserve((void **)&e->out, &e->cap, e->n + 1, 1);
  e->out[e->n++] = (uint8_t)byte;
}

static void put_bytes(Encoder *e, const uint8_t *bytes, size_t n) {
  for (size_t i = 0; i < n; i++) put_byte(e, bytes[i]);
}

// Writes the marker and length of a segment with `size` bytes of data.
static void put_segment(Encoder *e, int marker, int size) {
  put_bytes(e, (uint8_t[]){0xff, (uint8_t)marker, (uint8_t)((size + 2) >> 8), (uint8_t)(size + 2)}, 4);
}

static void put_bits(Encoder *e, unsigned bits, int count) {
  e->pending = e->pending << count | bits;
  for (e->count += count; e->count >= 8; e->count -= 8) {
    int byte = e->pending >> (e->count - 8) & 0xff;
    put_byte(e, byte);
    if (byte == 0xff) put_byte(e, 0); // so that data never look like a marker
  }
}

// ---- blocks ---------------------------------------------------------------------------------------------------------

static int bits_of(int value) {
  int n = 0;
  for (int v = abs(value); v; v >>= 1) n++;
  return n;
}

// Writes a value's low bits. Negative values are written minus one, so that their first bit is 0.
static void put_value(Encoder *e, int value, int bits) {
  put_bits(e, (unsigned)(value < 0 ? value - 1 : value) & ((1u << bits) - 1), bits);
}

static void put_code(Encoder *e, Code c) { put_bits(e, c.bits, c.length); }

static void transform(const Encoder *e, const float in[CELLS], const uint8_t *quant, int out[CELLS]) {
  float rows[CELLS];
  for (int y = 0; y < BLOCK; y++)
    for (int u = 0; u < BLOCK; u++) {
      float sum = 0;
      for (int x = 0; x < BLOCK; x++) sum += e->basis[u][x] * in[y * BLOCK + x];
      rows[y * BLOCK + u] = sum;
    }
  for (int v = 0; v < BLOCK; v++)
    for (int u = 0; u < BLOCK; u++) {
      float sum = 0;
      for (int y = 0; y < BLOCK; y++) sum += e->basis[v][y] * rows[y * BLOCK + u];
      out[v * BLOCK + u] = (int)lroundf(sum / quant[v * BLOCK + u]);
    }
}

static void put_block(Encoder *e, const float in[CELLS], const uint8_t *quant, int *last_dc) {
  int value[CELLS];
  transform(e, in, quant, value);
  int difference = value[0] - *last_dc, bits = bits_of(difference), run = 0;
  *last_dc = value[0];
  put_code(e, e->dc[bits]);
  put_value(e, difference, bits);
  for (int i = 1; i < CELLS; i++) {
    int v = value[e->zigzag[i]];
    if (v == 0) {
      run++;
      continue;
    }
    for (; run >= 16; run -= 16) put_code(e, e->ac[0xf0]);
    bits = bits_of(v);
    put_code(e, e->ac[run << 4 | bits]);
    put_value(e, v, bits);
    run = 0;
  }
  if (run) put_code(e, e->ac[0]);
}

// Reads an 8 × 8 block of each component: JFIF's YCbCr, centred at 0. Edge pixels are repeated.
static void take_block(const Image *im, int top, int left, float block[COMPONENTS][CELLS]) {
  for (int i = 0; i < CELLS; i++) {
    int y = MIN(top + i / BLOCK, im->h - 1), x = MIN(left + i % BLOCK, im->w - 1);
    const uint8_t *p = im->rgb + 3 * ((size_t)y * im->w + x);
    float r = p[0], g = p[1], b = p[2];
    block[0][i] = 0.299f * r + 0.587f * g + 0.114f * b - 128;
    block[1][i] = -0.168736f * r - 0.331264f * g + 0.5f * b;
    block[2][i] = 0.5f * r - 0.418688f * g - 0.081312f * b;
  }
}

// ---- the file -------------------------------------------------------------------------------------------------------

static void put_headers(Encoder *e, const Image *im) {
  put_bytes(e, (uint8_t[]){0xff, 0xd8}, 2);
  put_segment(e, 0xe0, 14); // JFIF 1.1, square pixels
  put_bytes(e, (uint8_t[]){'J', 'F', 'I', 'F', 0, 1, 1, 0, 0, 1, 0, 1, 0, 0}, 14);
  for (int k = 0; k < 2; k++) {
    put_segment(e, 0xdb, 1 + CELLS);
    put_byte(e, k);
    for (int i = 0; i < CELLS; i++) put_byte(e, e->quant[k][e->zigzag[i]]);
  }
  put_segment(e, 0xc0, 6 + 3 * COMPONENTS); // frame: 8 bits, every component at full resolution
  put_bytes(e, (uint8_t[]){8, (uint8_t)(im->h >> 8), (uint8_t)im->h, (uint8_t)(im->w >> 8), (uint8_t)im->w, COMPONENTS},
            6);
  for (int k = 0; k < COMPONENTS; k++) put_bytes(e, (uint8_t[]){(uint8_t)(k + 1), 0x11, k > 0}, 3);
  for (int ac = 0; ac < 2; ac++) { // for all components
    uint8_t table[JPEG_TABLE_ROOM];
    const size_t size = jpeg_standard_table(ac, 0, table);
    put_segment(e, 0xc4, (int)size);
    put_bytes(e, table, size);
  }
  put_segment(e, 0xda, 4 + 2 * COMPONENTS); // scan: all components, both tables number 0
  put_bytes(e, (uint8_t[]){COMPONENTS, 1, 0, 2, 0, 3, 0, 0, 63, 0}, 10);
}

uint8_t *jpeg_encode(const Image *im, int quality, size_t *size) {
  CHECK(im->h > 0 && im->w > 0 && im->h <= UINT16_MAX && im->w <= UINT16_MAX && quality >= 1 && quality <= 100);
  Encoder e = {0};
  make_tables(&e, quality);
  put_headers(&e, im);
  int dc[COMPONENTS] = {0};
  for (int y = 0; y < im->h; y += BLOCK)
    for (int x = 0; x < im->w; x += BLOCK) {
      float block[COMPONENTS][CELLS];
      take_block(im, y, x, block);
      for (int k = 0; k < COMPONENTS; k++) put_block(&e, block[k], e.quant[k > 0], &dc[k]);
    }
  put_bits(&e, 0x7f, 7); // fills the last byte with ones
  put_bytes(&e, (uint8_t[]){0xff, 0xd9}, 2);
  *size = e.n;
  return e.out;
}
