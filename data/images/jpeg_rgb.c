#include "data/images/jpeg_rgb.h"
#include <string.h>
#include "base/basics.h"

// ---- upsampling: jdsample.c of libjpeg-turbo, whose rounding alternates ---------------------------------------------

static void repeat_samples(const uint8_t *restrict in, int w, int right, uint8_t *restrict out) {
  for (int x = 0; x < w; x++)
    for (int i = 0; i < right; i++) *out++ = in[x];
}

// Every sample becomes two pixels, a quarter of the way to its neighbours.
static void widen(const uint8_t *restrict in, int w, uint8_t *restrict out) {
  out[0] = in[0];
  for (int x = 0; x < w - 1; x++) {
    out[2 * x + 1] = (uint8_t)((3 * in[x] + in[x + 1] + 2) >> 2);
    out[2 * x + 2] = (uint8_t)((3 * in[x + 1] + in[x] + 1) >> 2);
  }
  out[2 * w - 1] = in[w - 1];
}

// Three parts of a row and one of the next, times 4 / 3 + 1.
static void blend_rows(const uint8_t *restrict near, const uint8_t *restrict far, int w, uint16_t *restrict sum) {
  for (int x = 0; x < w; x++) sum[x] = (uint16_t)(3 * near[x] + far[x]);
}

static void widen_sums(const uint16_t *restrict in, int w, uint8_t *restrict out) {
  out[0] = (uint8_t)((4 * in[0] + 8) >> 4);
  for (int x = 0; x < w - 1; x++) {
    out[2 * x + 1] = (uint8_t)((3 * in[x] + in[x + 1] + 7) >> 4);
    out[2 * x + 2] = (uint8_t)((3 * in[x + 1] + in[x] + 8) >> 4);
  }
  out[2 * w - 1] = (uint8_t)((4 * in[w - 1] + 7) >> 4);
}

// A component's row y at the image's resolution: `out`, or the component's own row. out and sums hold a row plus what
// the last sample adds.
static const uint8_t *upsample_row(const JpegPlane *p, int y, uint8_t *out, uint16_t *sums) {
  const int row = y / p->down, below = y % p->down;
  const uint8_t *near = p->at + (ptrdiff_t)row * p->pitch;
  if (p->right == 1 && p->down == 1) return near;
  const int next = MIN(MAX(below ? row + 1 : row - 1, 0), p->h - 1); // the nearer neighbouring row
  const uint8_t *far = p->at + (ptrdiff_t)next * p->pitch;
  const bool smooth = p->w > 2; // libjpeg repeats narrower rows
  if (p->right == 1 && p->down == 2) {
    for (int x = 0; x < p->w; x++) out[x] = (uint8_t)((3 * near[x] + far[x] + 1 + below) >> 2);
  } else if (p->right == 2 && p->down == 1 && smooth) {
    widen(near, p->w, out);
  } else if (p->right == 2 && p->down == 2 && smooth) {
    blend_rows(near, far, p->w, sums);
    widen_sums(sums, p->w, out);
  } else {
    repeat_samples(near, p->w, p->right, out);
  }
  return out;
}

// ---- colours --------------------------------------------------------------------------------------------------------

static inline uint8_t clamp(int16_t v) { return (uint8_t)MIN(MAX(v, 0), 255); }

// 1.402, 0.71414, 0.34414 and 1.772 (T.871, section 7) as 16-bit fractions without their integer parts: 16-bit factors
// multiply several times faster. Writes planes, because few processors can store every third byte.
static void ycc_to_rgb(const uint8_t *const row[3], int w, uint8_t *restrict red, uint8_t *restrict green,
                       uint8_t *restrict blue) {
  const uint8_t *y = row[0], *cb = row[1], *cr = row[2];
  const int16_t r_cr = 91881 - 65536, g_cb = -22554, g_cr = 65536 - 46802, b_cb = 116130 - 131072;
  for (int x = 0; x < w; x++) {
    const int16_t b = (int16_t)(cb[x] - 128), r = (int16_t)(cr[x] - 128);
    red[x] = clamp((int16_t)(y[x] + r + (int16_t)((r_cr * r + 32768) >> 16)));
    green[x] = clamp((int16_t)(y[x] - r + (int16_t)((g_cb * b + g_cr * r + 32768) >> 16)));
    blue[x] = clamp((int16_t)(y[x] + 2 * b + (int16_t)((b_cb * b + 32768) >> 16)));
  }
}

static void interleave(const uint8_t *restrict a, const uint8_t *restrict b, const uint8_t *restrict c, int w,
                       uint8_t *restrict rgb) {
  for (int x = 0; x < w; x++) {
    rgb[3 * x] = a[x];
    rgb[3 * x + 1] = b[x];
    rgb[3 * x + 2] = c[x];
  }
}

// Multiplies by black, where 255 is none, and rounds. ycck: the colours are complements.
static void darken(uint8_t *restrict rgb, const uint8_t *restrict black, int w, bool ycck) {
  for (int i = 0; i < 3 * w; i++) {
    const unsigned t = (ycck ? 255u - rgb[i] : rgb[i]) * black[i / 3] + 128u;
    rgb[i] = (uint8_t)((t + (t >> 8)) >> 8);
  }
}

// Moves n rows of pixels to where they belong from row y on, several of each column at a time: columns may become rows.
static void move_rows(const uint8_t *rows, int y, int n, int w, const RowTarget *to) {
  for (int x = 0; x < w; x++)
    for (int k = 0; k < n; k++) memcpy(row_target_at(to, y + k, x), rows + 3 * ((size_t)k * (size_t)w + (size_t)x), 3);
}

bool jpeg_planes_to_rgb(const JpegPlanes *p, const RowTarget *to, Scratch *scratch) {
  static const int counts[] = {[JPEG_GRAY] = 1, [JPEG_YCC] = 3, [JPEG_RGB] = 3, [JPEG_CMYK] = 4, [JPEG_YCCK] = 4};
  enum { BEYOND = 4, MOST = 4, TOGETHER = 16 }; // further pixels of the last sample; components; rows that are moved
  const size_t room = (size_t)p->w + BEYOND;
  uint8_t *rows = scratch_take(scratch, (MOST + 3) * room), *colors[3];
  uint8_t *apart = scratch_take(scratch, to->right == 3 ? 0 : 3 * TOGETHER * (size_t)p->w);
  uint16_t *sums = scratch_take(scratch, room * sizeof *sums);
  if (!rows || !apart || !sums) return false;
  for (int k = 0; k < 3; k++) colors[k] = rows + (MOST + (size_t)k) * room;
  for (int y = 0; y < p->h; y++) {
    const uint8_t *row[MOST];
    const int moved = y % TOGETHER;
    uint8_t *rgb = to->right == 3 ? row_target_at(to, y, 0) : apart + 3 * (size_t)moved * (size_t)p->w;
    for (int k = 0; k < counts[p->colors]; k++) row[k] = upsample_row(&p->plane[k], y, rows + k * room, sums);
    if (p->colors == JPEG_YCC || p->colors == JPEG_YCCK) {
      ycc_to_rgb(row, p->w, colors[0], colors[1], colors[2]);
      interleave(colors[0], colors[1], colors[2], p->w, rgb);
    } else if (p->colors == JPEG_GRAY) {
      interleave(row[0], row[0], row[0], p->w, rgb);
    } else {
      interleave(row[0], row[1], row[2], p->w, rgb);
    }
    if (p->colors == JPEG_CMYK || p->colors == JPEG_YCCK) darken(rgb, row[3], p->w, p->colors == JPEG_YCCK);
    if (to->right != 3 && (moved == TOGETHER - 1 || y == p->h - 1)) move_rows(apart, y - moved, moved + 1, p->w, to);
  }
  return true;
}
