// Run-length masks: encoding, set operations, COCO's string form, areas, boxes, IoU.
// Results equal cocoapi's maskApi.c (Dollár and Lin, 2014) for every mask whose runs add up to h·w.
#include "data/coco/rle.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "data/coco/run_builder.h"

void rle_free(Rle *r) {
  free(r->runs);
  *r = (Rle){0};
}

Rle rle_copy(const Rle *r) {
  Rle copy = *r;
  copy.runs = xmalloc((size_t)r->n * sizeof *r->runs);
  if (r->n > 0) memcpy(copy.runs, r->runs, (size_t)r->n * sizeof *r->runs);
  return copy;
}

// Bytes and bits

Rle rle_from_bytes(const uint8_t *mask, int h, int w) {
  RunBuilder b = {0};
  bool value = false;
  uint32_t length = 0;
  for (int x = 0; x < w; x++) {
    const uint8_t *pixel = mask + x;
    for (int y = 0; y < h; y++, pixel += w) {
      if ((*pixel != 0) != value) {
        push_run(&b, length);
        value = !value;
        length = 0;
      }
      length++;
    }
  }
  push_run(&b, length);
  return (Rle){h, w, b.n, b.run};
}

Rle rle_from_bits(const uint32_t *bits, int h, int w) {
  RunBuilder b = {0};
  const uint32_t pixels = (uint32_t)h * (uint32_t)w;
  uint32_t begin = 0, flip = 0; // flip: all ones while in the foreground, so that the next change is the next set bit
  for (uint32_t word = 0; word < pixels / 32 + (pixels % 32 != 0); word++) {
    uint32_t changes = bits[word] ^ flip;
    while (changes != 0) {
      uint32_t bit = (uint32_t)__builtin_ctz(changes);
      uint32_t at = 32 * word + bit;
      if (at >= pixels) break; // unused bits of the last word are undefined
      push_run(&b, at - begin);
      begin = at;
      flip = ~flip;
      changes = ~changes & (UINT32_MAX << bit);
    }
  }
  push_run(&b, pixels - begin);
  return (Rle){h, w, b.n, b.run};
}

// Bits from … end - 1.
static void set_bits(uint32_t *bits, uint64_t from, uint64_t end) {
  for (; from < end && from % 32; from++) bits[from / 32] |= 1u << from % 32;
  for (; end - from >= 32; from += 32) bits[from / 32] = UINT32_MAX;
  for (; from < end; from++) bits[from / 32] |= 1u << from % 32;
}

void rle_add_to_bits(const Rle *r, uint32_t *bits) {
  uint64_t at = 0;
  for (int i = 0; i < r->n; at += r->runs[i++])
    if (i % 2) set_bits(bits, at, at + r->runs[i]);
}

void rle_to_bytes(const Rle *r, uint8_t *mask) {
  memset(mask, 0, (size_t)r->h * (size_t)r->w);
  uint32_t at = 0;
  for (int i = 0; i < r->n; at += r->runs[i++]) {
    if (i % 2 == 0 || r->runs[i] == 0) continue;
    uint32_t x = at / (uint32_t)r->h, y = at % (uint32_t)r->h;
    for (uint32_t k = 0; k < r->runs[i]; k++) {
      mask[(size_t)y * (size_t)r->w + x] = 1;
      if (++y == (uint32_t)r->h) {
        y = 0;
        x++;
      }
    }
  }
}

// Set operations

// A walk over the runs of a mask.
typedef struct RunWalk {
  const Rle *rle;
  int run;
  uint32_t left; // pixels of this run still ahead
} RunWalk;

static void walk_past_empty_runs(RunWalk *w) {
  while (w->left == 0 && w->run + 1 < w->rle->n) w->left = w->rle->runs[++w->run];
}

static RunWalk walk_begin(const Rle *r) {
  RunWalk w = {.rle = r, .left = r->n > 0 ? r->runs[0] : 0};
  walk_past_empty_runs(&w);
  return w;
}

static bool walk_value(const RunWalk *w) { return w->run % 2 != 0; }

// Advances both walks over the pixels until the next change in either, and returns how many; 0 at the end.
static uint32_t walk_together(RunWalk *a, RunWalk *b) {
  uint32_t length = MIN(a->left, b->left);
  a->left -= length;
  b->left -= length;
  walk_past_empty_runs(a);
  walk_past_empty_runs(b);
  return length;
}

static Rle merge_two(Scratch *scratch, const Rle *p, const Rle *q, bool intersect) {
  RunBuilder out = {.scratch = scratch};
  RunWalk a = walk_begin(p), b = walk_begin(q);
  bool value = false;
  uint32_t run = 0;
  for (;;) {
    bool in_a = walk_value(&a), in_b = walk_value(&b);
    uint32_t length = walk_together(&a, &b);
    if (length == 0) break;
    if ((intersect ? in_a && in_b : in_a || in_b) != value) {
      push_run(&out, run);
      value = !value;
      run = 0;
    }
    run += length;
  }
  push_run(&out, run);
  return (Rle){p->h, p->w, out.n, out.run};
}

// By halves, so that many parts take time in proportion to their runs, but for a logarithm.
Rle rle_merge_in(Scratch *scratch, const Rle *parts, int count, bool intersect) {
  if (count == 0) return (Rle){0};
  if (count == 1) return parts[0];
  const int half = count / 2;
  Rle p = rle_merge_in(scratch, parts, half, intersect);
  Rle q = rle_merge_in(scratch, parts + half, count - half, intersect);
  CHECK(p.h == q.h && p.w == q.w);
  const Rle both = merge_two(scratch, &p, &q, intersect);
  if (!scratch && half > 1) rle_free(&p);
  if (!scratch && count - half > 1) rle_free(&q);
  return both;
}

Rle rle_merge(const Rle *parts, int count, bool intersect) {
  return count == 1 ? rle_copy(&parts[0]) : rle_merge_in(NULL, parts, count, intersect);
}

// COCO's string: each run, from the fourth on as the difference from the last run of its colour, in groups of five bits
// from the lowest, as characters '0' + group, + 32 if another group follows. The last group carries the sign.

// 33 bits need at most seven groups; 1 for the NUL.
size_t rle_string_room(const Rle *r) { return 7 * (size_t)r->n + 1; }

// The number of five-bit groups that x and its sign need.
static int groups_of(int64_t x) {
  const uint64_t magnitude = (uint64_t)(x ^ (x >> 63));
  return (68 - __builtin_clzll(magnitude << 1 | 1)) / 5;
}

// Always writes the first four groups, needed or not, because a branch on the number's length would be mispredicted.
static char *write_number(char *to, int64_t x) {
  const int groups = groups_of(x);
  const uint32_t low = (uint32_t)x;
  const uint32_t bits = (low & 31) | (low & 31 << 5) << 3 | (low & 31 << 10) << 6 | (low & 31 << 15) << 9;
  const uint32_t more = UINT32_C(0x20202020) & (uint32_t)((UINT64_C(1) << 8 * (groups - 1)) - 1);
  const uint32_t text = UINT32_C(0x30303030) + bits + more;
  for (int k = 0; k < 4; k++) to[k] = (char)(text >> 8 * k);
  for (int k = 4; k < groups; k++) to[k] = (char)('0' + (x >> 5 * k & 31) + (k < groups - 1 ? 32 : 0));
  return to + groups;
}

size_t rle_write_string(const Rle *r, char *s) {
  char *to = s;
  for (int i = 0; i < r->n; i++) to = write_number(to, (int64_t)r->runs[i] - (i > 2 ? (int64_t)r->runs[i - 2] : 0));
  *to = '\0';
  return (size_t)(to - s);
}

char *rle_to_string(const Rle *r) {
  char *s = xmalloc(rle_string_room(r));
  const size_t length = rle_write_string(r, s);
  return xrealloc(s, length + 1);
}

// Reads the number at s[*at] and advances past it; false if there is none.
static bool decode_number(const char *s, size_t len, size_t *at, int64_t *number) {
  int group = s[*at] - '0';
  if (group >= 0 && group < 32) { // a single group, the common case
    ++*at;
    *number = (group ^ 16) - 16;
    return true;
  }
  *number = 0;
  for (int shift = 0; shift <= 30; shift += 5) {
    group = *at < len ? s[(*at)++] - '0' : -1;
    if (group < 0 || group > 63) return false;
    *number |= (int64_t)(group & 31) << shift;
    if (group & 32) continue;
    if (group & 16) *number -= INT64_C(32) << shift;
    return true;
  }
  return false;
}

bool rle_decode(uint32_t *runs, int *n, const char *s, size_t len, int h, int w, Err *err) {
  uint64_t sum = 0, pixels = (uint64_t)h * (uint64_t)w;
  *n = 0;
  for (size_t at = 0; at < len;) {
    size_t begin = at;
    int64_t x;
    if (!decode_number(s, len, &at, &x))
      return err_set(err, "malformed run-length string: no number at character %zu", begin);
    if (*n > 2) x += runs[*n - 2];
    if (x < 0 || (sum += (uint64_t)x) > pixels || *n == INT_MAX) break;
    runs[(*n)++] = (uint32_t)x;
    if (at == len && sum == pixels && pixels <= UINT32_MAX) return true;
  }
  return err_set(err, "the runs of the run-length string do not add up to its size, %d x %d pixels (h x w)", h, w);
}

bool rle_from_string(Rle *r, const char *s, size_t len, int h, int w, Err *err) {
  *r = (Rle){.h = h, .w = w, .runs = xmalloc(len * sizeof *r->runs)};
  bool ok = rle_decode(r->runs, &r->n, s, len, h, w, err);
  if (!ok) rle_free(r);
  return ok;
}

bool rle_adds_up(const uint32_t *counts, int n, int h, int w, Err *err) {
  uint64_t sum = 0, pixels = (uint64_t)h * (uint64_t)w;
  for (int i = 0; i < n; i++) sum += counts[i];
  return (n > 0 && sum == pixels && pixels <= UINT32_MAX) ||
         err_set(err, "the runs add up to %llu instead of their size, %d x %d pixels (h x w)", (unsigned long long)sum,
                 h, w);
}

bool rle_from_counts(Rle *r, const uint32_t *counts, int n, int h, int w, Err *err) {
  *r = (Rle){0};
  if (!rle_adds_up(counts, n, h, w, err)) return false;
  *r = rle_copy(&(Rle){.h = h, .w = w, .n = n, .runs = (uint32_t *)counts});
  return true;
}

// Measures

uint64_t rle_area(const Rle *r) {
  uint64_t area = 0;
  for (int i = 1; i < r->n; i += 2) area += r->runs[i];
  return area;
}

void rle_bbox(const Rle *r, double bbox[4]) {
  memset(bbox, 0, 4 * sizeof *bbox);
  const uint32_t h = (uint32_t)r->h;
  uint32_t left = UINT32_MAX, top = UINT32_MAX, right = 0, bottom = 0, x = 0, y = 0; // where the run begins
  bool any = false;
  for (int i = 0; h > 0 && i < r->n; i++) {
    // Avoids a division, which is slow.
    uint32_t after = y + r->runs[i], columns = after < h ? 0 : after < 2 * h ? 1 : after / h;
    if (i % 2 != 0 && r->runs[i] != 0) {
      uint32_t last = after - columns * h;
      // Runs that wrap into the next column contain a bottom and a top pixel.
      bool ends = last == 0, wraps = columns > ends;
      left = MIN(left, x);
      right = MAX(right, x + columns - ends);
      top = MIN(top, wraps ? 0 : y);
      bottom = MAX(bottom, wraps || ends ? h - 1 : last - 1);
      any = true;
    }
    x += columns;
    y = after - columns * h;
  }
  if (!any) return;
  bbox[0] = left;
  bbox[1] = top;
  bbox[2] = right - left + 1;
  bbox[3] = bottom - top + 1;
}

void bbox_iou(const double *dt, int dts, const double *gt, int gts, const uint8_t *crowd, double *iou) {
  for (int d = 0; d < dts; d++)
    for (int g = 0; g < gts; g++, iou++) {
      const double *a = dt + 4 * (size_t)d, *b = gt + 4 * (size_t)g;
      *iou = 0;
      double w = fmin(a[0] + a[2], b[0] + b[2]) - fmax(a[0], b[0]);
      double h = fmin(a[1] + a[3], b[1] + b[3]) - fmax(a[1], b[1]);
      if (w <= 0 || h <= 0) continue;
      double area = a[2] * a[3], both = w * h;
      *iou = both / (crowd && crowd[g] ? area : area + b[2] * b[3] - both);
    }
}

static double mask_iou(const Rle *dt, const Rle *gt, bool crowd) {
  if (dt->h != gt->h || dt->w != gt->w) return -1;
  RunWalk a = walk_begin(dt), b = walk_begin(gt);
  uint64_t both = 0, either = 0;
  for (;;) {
    bool in_a = walk_value(&a), in_b = walk_value(&b);
    uint32_t length = walk_together(&a, &b);
    if (length == 0) break;
    if (in_a && in_b) both += length;
    if (in_a || in_b) either += length;
  }
  if (both == 0) return 0;
  return (double)both / (double)(crowd ? rle_area(dt) : either);
}

void rle_iou(const Rle *dt, int dts, const Rle *gt, int gts, const uint8_t *crowd, double *iou) {
  double *boxes = xmalloc(4 * ((size_t)dts + (size_t)gts) * sizeof *boxes);
  double *gt_boxes = boxes + 4 * (size_t)dts;
  for (int d = 0; d < dts; d++) rle_bbox(&dt[d], boxes + 4 * (size_t)d);
  for (int g = 0; g < gts; g++) rle_bbox(&gt[g], gt_boxes + 4 * (size_t)g);
  bbox_iou(boxes, dts, gt_boxes, gts, crowd, iou);
  for (int d = 0; d < dts; d++) // masks with disjoint boxes need no walk
    for (int g = 0; g < gts; g++, iou++)
      if (*iou > 0) *iou = mask_iou(&dt[d], &gt[g], crowd && crowd[g]);
  free(boxes);
}
