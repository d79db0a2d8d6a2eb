#include "engine/detect.h"
#include <stdlib.h>

// ---- memory -----------------------------------------------------------------------------------------------------

enum { MASKS_ROOM = 128 << 20 }; // bytes

static size_t count_bytes(const Detector *d) { return d->groups * sizeof *d->count; }
static size_t index_bytes(const Detector *d) { return d->rows * sizeof *d->index; }
static size_t score_bytes(const Detector *d, const Device *dev) { return d->rows * dtype_size(dev->real); }
static size_t host_bytes(const Detector *d, const Device *dev) {
  return d->mask_bytes + count_bytes(d) + index_bytes(d) + 5 * score_bytes(d, dev);
}

static int64_t words_of(int64_t pixels) { return (pixels + 31) / 32; }

void detect_plan(Engine *e) {
  const Shapes *s = &e->infer.shapes;
  const Network *n = &e->infer.network[0];
  if (!n->result[DETECTED_MASKS]) return; // a model that finds none
  const Boxes *b = &n->result[DETECTED_BOXES]->boxes;
  Detector *d = e->results = xcalloc(1, sizeof *d);
  d->groups = (size_t)b->groups;
  d->rows = d->groups * (size_t)b->capacity;
  const size_t one = (size_t)words_of(s->max_bytes / 3) * sizeof *d->bits;
  d->mask_bytes = MAX(one, MIN(d->rows * one, (size_t)MASKS_ROOM));
  memory_add(&e->memory, "masks of detections", ON_DEVICE, d->mask_bytes, "--batch");
  memory_add(&e->memory, "detections of a batch", ON_HOST_LOCKED, host_bytes(d, e->dev), "--batch");
}

bool detect_allocate(Engine *e, Err *err) {
  Device *dev = e->dev;
  Detector *d = e->results;
  if (!d) return true;
  if (!(d->device_bits = device_alloc(dev, d->mask_bytes)))
    return err_memory(err, d->mask_bytes, "the masks of detections", "--batch");
  d->bits = device_host_alloc(dev, d->mask_bytes);
  d->count = device_host_alloc(dev, count_bytes(d));
  d->index = device_host_alloc(dev, index_bytes(d));
  d->box = device_host_alloc(dev, 4 * score_bytes(d, dev));
  d->score = device_host_alloc(dev, score_bytes(d, dev));
  return (d->bits && d->count && d->index && d->box && d->score) ||
         err_memory(err, host_bytes(d, dev), "the detections of a batch", "--batch");
}

void detect_close(Engine *e) {
  Device *dev = e->dev;
  Detector *d = e->results;
  if (!d) return;
  void *const locked[] = {d->bits, d->count, d->index, d->box, d->score};
  for (int i = 0; i < COUNT(locked); i++) device_host_free(dev, locked[i]);
  device_free(dev, d->device_bits);
  free(d);
  e->results = NULL;
}

// ---- detections -------------------------------------------------------------------------------------------------

void detections_free(Detections *d) {
  for (int i = 0; i < d->n; i++) rle_free(&d->items[i].mask);
  free(d->items);
  *d = (Detections){0};
}

static double real_at(const Device *dev, const void *p, size_t i) {
  return dev->real == F64 ? ((const double *)p)[i] : (double)((const float *)p)[i];
}

static void fetch_boxes(Device *dev, const Detector *d, const Boxes *b) {
  device_fetch(dev, d->count, b->count, count_bytes(d));
  device_fetch(dev, d->index, b->index, index_bytes(d));
  device_fetch(dev, d->box, b->box.data, 4 * score_bytes(d, dev));
  device_fetch(dev, d->score, b->score.data, score_bytes(d, dev));
  device_sync(dev);
}

// All detections of the batch, without their masks.
static Detections list_boxes(const Engine *e, const Detector *d, const Batch *batch, size_t capacity) {
  Detections out = {0};
  for (size_t i = 0; i < d->groups; i++) out.n += d->count[i];
  out.items = xcalloc((size_t)out.n, sizeof *out.items);
  Detection *to = out.items;
  for (size_t i = 0; i < d->groups; i++)
    for (size_t row = i * capacity; row < i * capacity + (size_t)d->count[i]; row++, to++) {
      const ImageInfo *info = &batch->info[i];
      const double ratio[] = {(double)info->w / info->rw, (double)info->h / info->rh};
      *to = (Detection){
          .image = (int)i, .label = d->index[row] % e->config.classes, .score = (float)real_at(e->dev, d->score, row)};
      for (size_t k = 0; k < 4; k++) to->box[k] = (float)(real_at(e->dev, d->box, 4 * row + k) * ratio[k % 2]);
    }
  return out;
}

// Words of the largest mask among them.
static int64_t words_of_masks(const Detections *found, const Batch *batch) {
  int64_t words = 1;
  for (int i = 0; i < found->n; i++) {
    const ImageInfo *info = &batch->info[found->items[i].image];
    words = MAX(words, words_of((int64_t)info->h * info->w));
  }
  return words;
}

static void fetch_masks(Engine *e, const Detector *d, const Batch *batch, MaskPaste *paste, Detections *found) {
  Device *dev = e->dev;
  const Network *n = &e->infer.network[batch->canvas];
  const int64_t words = words_of_masks(found, batch);
  const size_t row_bytes = (size_t)words * sizeof *d->bits;
  CHECK(row_bytes <= d->mask_bytes);
  for (int first = 0; first < found->n; first += paste->rows) {
    paste->first = first;
    paste->rows = (int)MIN(d->mask_bytes / row_bytes, (size_t)(found->n - first));
    dev->ops->mask_paste(dev, paste, n->input->images.info, &n->result[DETECTED_BOXES]->boxes,
                         &n->result[DETECTED_MASKS]->x, d->device_bits, words);
    device_fetch(dev, d->bits, d->device_bits, (size_t)paste->rows * row_bytes);
    device_sync(dev);
    for (int i = 0; i < paste->rows; i++) {
      Detection *to = &found->items[first + i];
      const ImageInfo *info = &batch->info[to->image];
      to->mask = rle_from_bits(d->bits + i * words, info->h, info->w);
    }
  }
}

void engine_detections(Engine *e, const Batch *batch, float threshold, Detections *out) {
  const Detector *d = e->results;
  const Boxes *b = &e->infer.network[batch->canvas].result[DETECTED_BOXES]->boxes;
  MaskPaste paste = {.threshold = threshold, .exact = e->config.mask_paste_exact};
  fetch_boxes(e->dev, d, b);
  *out = list_boxes(e, d, batch, (size_t)b->capacity);
  fetch_masks(e, d, batch, &paste, out);
}
