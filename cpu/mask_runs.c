// Pasted masks as runs: how many each detection's mask has and where they go, then detections and runs as the host
// reads them. What mask_paste does pixel by pixel is done here by bands, inside the box alone.
//
// Pixels between the same two rows of the mask are a band; the same bands cross every column. Along a column a band's
// pixels are means of the same two values, by weights that go one way, so that the two values or two neighbouring
// pixels decide about all of them, by a margin above what rounding can do. Only where that leaves a doubt is every
// pixel evaluated.
#include <string.h>
#include "cpu/reference.h"
#include "exact/mask_bins.h"

enum { MOST_ROWS = 2 * 128 + 2 }; // of a mask and its border; mask_pool is at most 128

// Where a mean's weights and values are in [0, 1], its four roundings are off by less than 2^-22 together. A pixel
// beyond the margin, which is more than twice that, shows on which side of the threshold those are whose exact means
// lie farther out.
static const real MARGIN = (real)0x1p-20;

// ---- runs -----------------------------------------------------------------------------------------------------------

// Where the runs of a mask go; `to` NULL: they are counted.
typedef struct RunWriter {
  uint32_t *to;
  int n;
  uint32_t begin; // of the run under way
  bool set;       // it is foreground
} RunWriter;

static void end_run(RunWriter *w, uint32_t at) {
  if (w->to) w->to[w->n] = at - w->begin;
  w->n++;
  w->begin = at;
}

// Pixels from `at` on are of this colour.
static void set_colour(RunWriter *w, uint32_t at, bool set) {
  if (set == w->set) return;
  end_run(w, at);
  w->set = set;
}

// ---- bands ----------------------------------------------------------------------------------------------------------

// One detection's mask over its image.
typedef struct BandedMask {
  MaskMap map;
  Paste ys, xs;
  int left, right, top, bottom; // the pixels that it covers
  real threshold;
  bool plain;                           // its rows' weights are in [0, 1]
  int first[MOST_ROWS + 1];             // a band's first pixel; band i lies between rows i and i + 1
  int source;                           // the column of the mask that `low` is, of which `high` is the next
  real low[MOST_ROWS], high[MOST_ROWS]; // [ys.size]
  real value[MOST_ROWS];                // of the mask's rows in a column of the image
} BandedMask;

// The first pixel whose lower neighbour is this row or a later one.
static int band_first(const BandedMask *m, int row) {
  int from = m->top, to = m->bottom;
  while (from < to) {
    const int middle = from + (to - from) / 2;
    if (paste_tap(&m->ys, middle).low < row)
      from = middle + 1;
    else
      to = middle;
  }
  return from;
}

static BandedMask banded_mask(const MaskPaste *p, const ImageInfo *info, Box box, const MaskMap *map) {
  BandedMask m;
  m.map = *map;
  m.ys = paste_axis(p->exact, box.y1, box.y2, info->rh, info->h, map->h);
  m.xs = paste_axis(p->exact, box.x1, box.x2, info->rw, info->w, map->w);
  CHECK(m.ys.size <= MOST_ROWS);
  paste_range(&m.xs, info->w, &m.left, &m.right);
  paste_range(&m.ys, info->h, &m.top, &m.bottom);
  if (m.top >= m.bottom) m.right = m.left;
  m.threshold = p->threshold;
  m.source = -1;
  if (m.left >= m.right) return m;
  m.plain = paste_tap(&m.ys, m.bottom - 1).fraction <= 1; // the largest: only past the last row is there more than 1
  for (int row = 0; row < m.ys.size; row++) m.first[row] = band_first(&m, row);
  m.first[m.ys.size] = m.bottom;
  return m;
}

// The mask's rows where this column of the image is. Many columns lie between the same two of the mask.
static void take_column(BandedMask *m, Tap column) {
  if (column.low != m->source)
    for (int row = 0; row < m->ys.size; row++) {
      m->low[row] = mask_bordered(&m->map, row, column.low);
      m->high[row] = mask_bordered(&m->map, row, column.high);
    }
  m->source = column.low;
  for (int row = 0; row < m->ys.size; row++) m->value[row] = tap_between(column, m->low[row], m->high[row]);
}

static bool is_sound(real value) { return value >= 0 && value <= 1; } // not so for NaN

// Where pixels [y, end) of a band change from one colour to the other, `end` where they do not; -1: that is not
// certain. The pixel before the change and the one behind it show that all of them do as the mean does.
static int band_change(const BandedMask *m, int band, real upper, real lower, int y, int end) {
  const bool rising = lower > upper;
  const real low = m->threshold - MARGIN, high = m->threshold + MARGIN;
  const real at = (real)band + (m->threshold - upper) / (lower - upper);
  const real estimate = (at + (real)0.5) / m->ys.scale + m->ys.start - (real)0.5;
  if (!(estimate > (real)(y - 1) && estimate <= (real)end)) return -1; // NaN too
  const int change = MAX((int)real_floor(estimate) + 1, y);            // a pixel on the threshold is evaluated
  if (change > end) return -1;
  if (change > y) {
    const real before = tap_between(paste_tap(&m->ys, change - 1), upper, lower);
    if (!(rising ? before <= low : before >= high)) return -1;
  }
  if (change < end) {
    const real behind = tap_between(paste_tap(&m->ys, change), upper, lower);
    if (!(rising ? behind >= high : behind <= low)) return -1;
  }
  return change;
}

// Pixels [y, end) of a band, in the column that begins at `base`.
static void walk_band(const BandedMask *m, int band, uint32_t base, RunWriter *runs) {
  const int y = m->first[band], end = m->first[band + 1];
  const real upper = m->value[band], lower = m->value[MIN(band + 1, m->ys.size - 1)];
  if (m->plain && is_sound(upper) && is_sound(lower)) {
    const real low = m->threshold - MARGIN, high = m->threshold + MARGIN;
    if (upper >= high && lower >= high) return set_colour(runs, base + (uint32_t)y, true);
    if (upper <= low && lower <= low) return set_colour(runs, base + (uint32_t)y, false);
    const int change = band_change(m, band, upper, lower, y, end);
    if (change > y) set_colour(runs, base + (uint32_t)y, lower <= upper);
    if (change >= 0 && change < end) set_colour(runs, base + (uint32_t)change, lower > upper);
    if (change >= 0) return;
  }
  for (int at = y; at < end; at++)
    set_colour(runs, base + (uint32_t)at, tap_between(paste_tap(&m->ys, at), upper, lower) >= m->threshold);
}

// The runs of one mask; returns how many. What the box does not cover is background.
static int walk_mask(const MaskPaste *p, const ImageInfo *info, Box box, const MaskMap *map, uint32_t *to) {
  const uint32_t h = (uint32_t)info->h, pixels = h * (uint32_t)info->w;
  BandedMask m = banded_mask(p, info, box, map);
  const bool whole = m.top == 0 && m.bottom == info->h; // behind a column's last pixel is the next one's first
  RunWriter runs = {.to = to};
  for (int x = m.left; x < m.right; x++) {
    const uint32_t base = (uint32_t)x * h, end = base + (uint32_t)m.bottom;
    take_column(&m, paste_tap(&m.xs, x));
    for (int band = 0; band < m.ys.size; band++)
      if (m.first[band] < m.first[band + 1]) walk_band(&m, band, base, &runs);
    if ((!whole || x + 1 == m.right) && end < pixels) set_colour(&runs, end, false);
  }
  end_run(&runs, pixels);
  return runs.n;
}

// ---- the ops --------------------------------------------------------------------------------------------------------

// The mask of a group's i-th detection, whose compacted row is `row`.
static int runs_of(const MaskPaste *p, const ImageInfo *images, const Boxes *d, int group, int i, const Tensor *probs,
                   int row, uint32_t *to) {
  const MaskMap map = {at(probs, row, 0, 0), probs->h, probs->w, probs->ldc};
  return walk_mask(p, &images[group], box_rows(&d->box)[(size_t)group * d->capacity + i], &map, to);
}

// Words of a mask's probabilities.
static int64_t map_words(const Tensor *probs) {
  return (int64_t)probs->h * probs->w * (int64_t)(sizeof(real) / sizeof(uint32_t));
}

// Gives each mask its room; counts of those that are to be probabilities become 0.
static void give_room(const MaskRuns *runs, int rows, int64_t least, int64_t spare) {
  int64_t more = 0; // that masks up to here want beyond the least
  for (int row = 0; row < rows; row++) {
    runs->first[row] = row * least + MIN(more, spare);
    more += MAX(runs->count[row] - least, 0);
    if (runs->count[row] > least && more > spare) runs->count[row] = 0;
  }
}

void OP(mask_runs)(Device *dev, const MaskPaste *p, const ImageInfo *images, const Boxes *detections,
                   const Tensor *probs, const MaskRuns *runs) {
  if (dev->measuring) return;
  const int rows = detections->groups * detections->capacity;
  const int64_t least = map_words(probs);
  CHECK(runs->room >= rows * least);
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int group = 0; group < detections->groups; group++)
    for (int i = 0; i < detections->capacity; i++) {
      if (i >= detections->count[group]) continue;
      const int row = compacted_row(detections, group) + i;
      runs->count[row] = runs_of(p, images, detections, group, i, probs, row, NULL);
    }
  give_room(runs, compacted_row(detections, detections->groups), least, runs->room - rows * least);
}

static void write_map(const Tensor *probs, int row, uint32_t *to) {
  for (int i = 0; i < probs->h * probs->w; i++) {
    const real *from = at(probs, row, i / probs->w, i % probs->w);
    memcpy((char *)to + (size_t)i * sizeof *from, from, sizeof *from);
  }
}

void OP(detections_write)(Device *dev, const MaskPaste *p, const ImageInfo *images, const Boxes *detections,
                          const Tensor *probs, const MaskRuns *runs, const DetectionRows *to) {
  if (dev->measuring) return;
  memcpy(to->count, detections->count, (size_t)detections->groups * sizeof *to->count);
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int group = 0; group < detections->groups; group++)
    for (int i = 0; i < detections->capacity; i++) {
      if (i >= detections->count[group]) continue;
      const int row = compacted_row(detections, group) + i;
      const size_t slot = (size_t)group * detections->capacity + i;
      to->index[row] = detections->index[slot];
      ((Box *)to->box)[row] = box_rows(&detections->box)[slot];
      ((real *)to->score)[row] = ((const real *)detections->score.data)[slot];
      to->runs[row] = probs ? runs->count[row] : 0;
      to->first[row] = probs ? runs->first[row] : 0;
      if (!probs) continue;
      if (runs->count[row])
        runs_of(p, images, detections, group, i, probs, row, to->words + runs->first[row]);
      else
        write_map(probs, row, to->words + runs->first[row]);
    }
}
