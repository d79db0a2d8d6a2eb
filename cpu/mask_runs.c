// Pasted masks as runs: how many each detection's mask has and where they go, then detections and runs as the host
// reads them. A mask is walked down its columns, pixel by pixel, as mask_paste pastes it.
#include <string.h>
#include "cpu/reference.h"
#include "exact/mask_bins.h"

// Where the runs of a mask go; `to` NULL: they are counted.
typedef struct RunWriter {
  uint32_t *to;
  int n;
  uint32_t begin; // of the run under way
} RunWriter;

static void end_run(RunWriter *w, uint32_t at) {
  if (w->to) w->to[w->n] = at - w->begin;
  w->n++;
  w->begin = at;
}

// The runs of one mask; returns how many. What the box does not cover is background.
static int walk_mask(const MaskPaste *p, const ImageInfo *info, Box box, const MaskMap *map, uint32_t *to) {
  const uint32_t h = (uint32_t)info->h, pixels = h * (uint32_t)info->w;
  Paste ys = paste_axis(p->exact, box.y1, box.y2, info->rh, info->h, map->h);
  Paste xs = paste_axis(p->exact, box.x1, box.x2, info->rw, info->w, map->w);
  int left, right, top, bottom;
  paste_range(&xs, info->w, &left, &right);
  paste_range(&ys, info->h, &top, &bottom);
  RunWriter runs = {.to = to};
  bool set = false;
  uint32_t covered = 0; // pixels up to here are known
  for (int x = left; x < right; x++) {
    Tap column = paste_tap(&xs, x);
    for (int y = top; y < bottom; y++) {
      const uint32_t at = (uint32_t)x * h + (uint32_t)y;
      if (set && at > covered) {
        end_run(&runs, covered);
        set = false;
      }
      if ((pasted_value(map, paste_tap(&ys, y), column) >= p->threshold) != set) {
        end_run(&runs, at);
        set = !set;
      }
      covered = at + 1;
    }
  }
  if (set && covered < pixels) end_run(&runs, covered);
  end_run(&runs, pixels);
  return runs.n;
}

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
      to->runs[row] = runs->count[row];
      to->first[row] = runs->first[row];
      if (runs->count[row])
        runs_of(p, images, detections, group, i, probs, row, to->words + runs->first[row]);
      else
        write_map(probs, row, to->words + runs->first[row]);
    }
}
