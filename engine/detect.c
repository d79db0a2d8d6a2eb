#include "engine/detect.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "data/coco/cocoeval.h"

// ---- memory -----------------------------------------------------------------------------------------------------

// Runs reserved per mask, on average: those of a shape as wide as a square image has columns. Masks without room are
// copied as probabilities.
enum { RUNS_ROOM = 2048 };
static int64_t runs_in(int64_t pixels) { return MAX(RUNS_ROOM, (int64_t)(2 * sqrt((double)pixels))); }

// The next `bytes` bytes of a block; with block NULL only advances *at.
static void *part_of(char *block, size_t *at, size_t bytes) {
  void *part = block ? block + *at : NULL;
  *at += (bytes + 63) / 64 * 64;
  return part;
}

// Lays out what mask_runs writes for detections_write; returns its size.
static size_t lay_out_runs(const Detector *d, char *block, MaskRuns *runs) {
  size_t at = 0;
  runs->count = part_of(block, &at, d->rows * sizeof *runs->count);
  runs->first = part_of(block, &at, d->rows * sizeof *runs->first);
  runs->toggles = part_of(block, &at, d->rows * RUN_SLICES * sizeof *runs->toggles);
  runs->last = part_of(block, &at, d->rows * RUN_SLICES * sizeof *runs->last);
  return at;
}

static size_t lay_out_slot(const Detector *d, const Device *dev, char *block, DetectorSlot *s) {
  const size_t real = dtype_size(dev->real);
  DetectionRows *r = &s->rows;
  size_t at = 0;
  r->count = part_of(block, &at, d->groups * sizeof *r->count);
  s->counter = part_of(block, &at, MAX_COUNTERS * sizeof *s->counter);
  r->index = part_of(block, &at, d->rows * sizeof *r->index);
  r->runs = part_of(block, &at, d->rows * sizeof *r->runs);
  r->first = part_of(block, &at, d->rows * sizeof *r->first);
  r->box = part_of(block, &at, 4 * d->rows * real);
  r->score = part_of(block, &at, d->rows * real);
  r->words = part_of(block, &at, (size_t)d->runs.room * sizeof *r->words);
  return at;
}

static size_t slot_bytes(const Detector *d, const Device *dev) {
  return lay_out_slot(d, dev, NULL, &(DetectorSlot){0});
}
static size_t items_bytes(const Detector *d) {
  return d->groups * sizeof *d->slot[0].info + d->rows * sizeof *d->slot[0].items;
}

static void plan(Engine *e) {
  const Network *n = &e->infer.network[0];
  if (!n->result[DETECTED_BOXES]) return; // a model without detections
  const Value *masks = n->result[DETECTED_MASKS];
  const Boxes *b = &n->result[DETECTED_BOXES]->boxes;
  const size_t real_words = dtype_size(e->dev->real) / sizeof(uint32_t);
  Detector *d = e->results = xcalloc(1, sizeof *d);
  d->groups = (size_t)b->groups;
  d->rows = d->groups * (size_t)b->capacity;
  d->size = masks ? masks->x.h : 0;
  const size_t runs = (size_t)runs_in(e->infer.shapes.max_bytes / 3);
  const char *fewer = e->config.detections > USUAL_DETECTIONS ? "--batch or --detections" : "--batch";
  if (masks) {
    d->runs.room = (int64_t)(d->rows * MAX(runs, (size_t)(d->size * d->size) * real_words));
    memory_add(&e->memory, "offsets of mask runs", ON_DEVICE, lay_out_runs(d, NULL, &(MaskRuns){0}), fewer);
  }
  memory_add(&e->memory, "detections of in-flight batches", ON_HOST_LOCKED, BATCHES_UNDER_WAY * slot_bytes(d, e->dev),
             fewer);
  memory_add(&e->memory, "lists of detections", ON_HOST, BATCHES_UNDER_WAY * items_bytes(d), fewer);
}

static bool slot_allocate(const Detector *d, Device *dev, DetectorSlot *s) {
  if (!(s->block = device_host_alloc(dev, slot_bytes(d, dev)))) return false;
  lay_out_slot(d, dev, s->block, s);
  s->info = xcalloc(d->groups, sizeof *s->info);
  s->items = xcalloc(d->rows, sizeof *s->items);
  s->mark = device_mark_open(dev);
  return true;
}

static bool allocate(Engine *e, Err *err) {
  Detector *d = e->results;
  if (!d) return true;
  const size_t bytes = d->size ? lay_out_runs(d, NULL, &(MaskRuns){0}) : 0;
  if (bytes && !(d->scratch = device_alloc(e->dev, bytes)))
    return err_memory(err, bytes, "the offsets of mask runs", "--batch");
  if (bytes) lay_out_runs(d, d->scratch, &d->runs);
  for (int i = 0; i < BATCHES_UNDER_WAY; i++)
    if (!slot_allocate(d, e->dev, &d->slot[i]))
      return err_memory(err, BATCHES_UNDER_WAY * slot_bytes(d, e->dev), "the detections of in-flight batches",
                        "--batch");
  return true;
}

// Masks whose runs were made on the host have memory of their own.
static void slot_empty(DetectorSlot *s) {
  for (int i = 0; i < s->n; i++)
    if (!s->rows.runs[i]) rle_free(&s->items[i].mask);
  s->n = 0;
}

static bool make_room(Engine *e, int64_t pixels) {
  Detector *d = e->results;
  CHECK(!engine_detecting(e));
  const int64_t before = d->runs.room, room = (int64_t)d->rows * runs_in(pixels);
  char *block[BATCHES_UNDER_WAY] = {NULL};
  if (!d->size || room <= before) return true;
  d->runs.room = room;
  bool ok = true;
  for (int i = 0; i < BATCHES_UNDER_WAY && ok; i++)
    ok = (block[i] = device_host_alloc(e->dev, slot_bytes(d, e->dev))) != NULL;
  if (!ok) d->runs.room = before;
  for (int i = 0; i < BATCHES_UNDER_WAY; i++) {
    DetectorSlot *s = &d->slot[i];
    char *unused = block[i];
    if (ok) {
      slot_empty(s);
      unused = s->block;
      s->block = block[i];
      lay_out_slot(d, e->dev, s->block, s);
    }
    device_host_free(e->dev, unused);
  }
  return ok;
}

static size_t room_bytes(const Engine *e, int64_t pixels) {
  const Detector *d = e->results;
  Detector larger = *d;
  larger.runs.room = MAX(d->runs.room, (int64_t)d->rows * runs_in(pixels));
  return d->size ? BATCHES_UNDER_WAY * (slot_bytes(&larger, e->dev) - slot_bytes(d, e->dev)) : 0;
}

static void close_results(Engine *e) {
  Device *dev = e->dev;
  Detector *d = e->results;
  if (!d) return;
  if (engine_detecting(e)) device_sync(dev); // batches in flight write into the slots
  for (int i = 0; i < BATCHES_UNDER_WAY; i++) {
    DetectorSlot *s = &d->slot[i];
    slot_empty(s);
    device_mark_close(dev, s->mark);
    device_host_free(dev, s->block);
    free(s->info);
    free(s->items);
  }
  device_free(dev, d->scratch);
  free(d);
  e->results = NULL;
}

void detections_free(Detections *d) {
  for (int i = 0; i < d->n; i++) rle_free(&d->items[i].mask);
  free(d->items);
  *d = (Detections){0};
}

// ---- queueing ---------------------------------------------------------------------------------------------------

static MaskPaste paste_at(const Engine *e, float threshold) {
  return (MaskPaste){.threshold = threshold, .exact = e->config.mask_paste_exact};
}

static void queue_runs(Engine *e, const Network *n, float threshold) {
  const Detector *d = e->results;
  const MaskPaste paste = paste_at(e, threshold);
  if (!d->size) return;
  e->dev->ops->mask_runs(e->dev, &paste, n->input->images.info, &n->result[DETECTED_BOXES]->boxes,
                         &n->result[DETECTED_MASKS]->x, &d->runs);
}

static void queue(Engine *e, const Network *n) {
  if (e->results) queue_runs(e, n, e->mask_threshold);
}

// Queues the copies of the rows that queue_runs counted to a slot.
static void queue_rows(Engine *e, const Batch *batch, float threshold, DetectorSlot *s) {
  const Detector *d = e->results;
  const Network *n = &e->infer.network[batch->canvas];
  const MaskPaste paste = paste_at(e, threshold);
  slot_empty(s);
  s->batch = batch;
  memcpy(s->info, batch->info, d->groups * sizeof *s->info);
  e->dev->ops->detections_write(e->dev, &paste, n->input->images.info, &n->result[DETECTED_BOXES]->boxes,
                                d->size ? &n->result[DETECTED_MASKS]->x : NULL, d->size ? &d->runs : NULL, &s->rows);
  for (int i = 0; i < model_counters(e->model); i++)
    device_fetch(e->dev, &s->counter[i], *n->counter[i], sizeof *s->counter);
  device_mark_set(e->dev, s->mark);
}

// ---- detections -------------------------------------------------------------------------------------------------

static double real_at(const Device *dev, const void *p, size_t i) {
  return dev->real == F64 ? ((const double *)p)[i] : (double)((const float *)p)[i];
}

// The runs of a mask that was copied as probabilities, from the reference, whose results equal the device's.
static Rle runs_here(const Engine *e, const Detector *d, const DetectorSlot *s, int row, int image, float threshold) {
  const Device *dev = e->dev;
  const size_t real = dtype_size(dev->real), bytes = (size_t)(d->size * d->size) * real;
  const ImageInfo *info = &s->info[image];
  Device host = {.ops = dev->gpu ? ops_of_cpu() : dev->ops, .real = dev->real};
  Tensor map = tensor_packed(dev->real, 1, 1), box = tensor_packed(dev->real, 1, 4);
  double score = 0;
  int64_t first;
  DetectionRows to = {&(int){0}, &(int){0}, (double[4]){0}, &score, &(int){0}, &first, NULL};
  Boxes one = {.groups = 1, .capacity = 1, .box = box, .score = map, .index = &(int){0}, .count = &(int){1}};
  map.h = map.w = d->size;
  map.data = memcpy(xmalloc(bytes), s->rows.words + s->rows.first[row], bytes);
  one.box.data = (char *)s->rows.box + 4 * (size_t)row * real;
  one.score.data = &score;
  const MaskRuns runs = {.room = INT64_MAX, .count = &(int){0}, .first = &first};
  const MaskPaste paste = paste_at(e, threshold);
  host.ops->mask_runs(&host, &paste, info, &one, &map, &runs);
  to.words = xmalloc((size_t)*runs.count * sizeof *to.words);
  host.ops->detections_write(&host, &paste, info, &one, &map, &runs, &to);
  free(map.data);
  return (Rle){info->h, info->w, *runs.count, to.words};
}

static Detection detection_of(const Engine *e, const DetectorSlot *s, int row, int image, float threshold) {
  const DetectionRows *r = &s->rows;
  const ImageInfo *info = &s->info[image];
  const double ratio[] = {(double)info->w / info->rw, (double)info->h / info->rh};
  Detection to = {.image = image,
                  .label = r->index[row] % e->config.classes,
                  .score = (float)real_at(e->dev, r->score, (size_t)row)};
  for (size_t k = 0; k < 4; k++) to.box[k] = (float)(real_at(e->dev, r->box, 4 * (size_t)row + k) * ratio[k % 2]);
  const Detector *d = e->results;
  if (d->size)
    to.mask = r->runs[row] ? (Rle){info->h, info->w, r->runs[row], r->words + r->first[row]}
                           : runs_here(e, d, s, row, image, threshold);
  return to;
}

// Makes detections of a slot's rows, which must have arrived.
static Detections list(const Engine *e, DetectorSlot *s, float threshold) {
  const Detector *d = e->results;
  for (int image = 0; image < (int)d->groups; image++)
    for (int i = 0; i < s->rows.count[image]; i++, s->n++) s->items[s->n] = detection_of(e, s, s->n, image, threshold);
  return (Detections){s->items, s->n};
}

void engine_start_detection(Engine *e, const Batch *batch) {
  Detector *d = e->results;
  CHECK(engine_detecting(e) < BATCHES_UNDER_WAY);
  DetectorSlot *s = &d->slot[d->started++ % BATCHES_UNDER_WAY];
  s->started = now_seconds();
  engine_queue_inference(e, batch, e->timing);
  queue_rows(e, batch, e->mask_threshold, s);
}

bool engine_next_detections(Engine *e, bool wait, BatchDetections *out) {
  Detector *d = e->results;
  if (!engine_detecting(e)) return false;
  DetectorSlot *s = &d->slot[d->handed_out % BATCHES_UNDER_WAY];
  if (!wait && !device_mark_reached(e->dev, s->mark)) return false;
  device_mark_wait(e->dev, s->mark);
  d->handed_out++;
  *out = (BatchDetections){.batch = s->batch, .detections = list(e, s, e->mask_threshold), .started = s->started};
  memcpy(out->counter, s->counter, sizeof out->counter);
  return true;
}

int engine_detecting(const Engine *e) {
  const Detector *d = e->results;
  return (int)(d->started - d->handed_out);
}

void engine_drop(Engine *e) {
  Detector *d = e->results;
  if (d) d->handed_out = d->started;
}

void engine_detections(Engine *e, const Batch *batch, float threshold, Detections *out) {
  Detector *d = e->results;
  CHECK(!engine_detecting(e));
  DetectorSlot *s = &d->slot[d->started % BATCHES_UNDER_WAY];
  queue_runs(e, &e->infer.network[batch->canvas], threshold);
  queue_rows(e, batch, threshold, s);
  device_mark_wait(e->dev, s->mark);
  const Detections found = list(e, s, threshold);
  out->n = found.n;
  out->items = xcalloc((size_t)found.n, sizeof *out->items);
  for (int i = 0; i < found.n; i++) {
    out->items[i] = found.items[i];
    out->items[i].mask = rle_copy(&found.items[i].mask);
  }
}

// ---- the row ----------------------------------------------------------------------------------------------------

static size_t bytes_of(const ModelConfig *c, int images, size_t each) {
  return (size_t)images * (size_t)c->detections * each + (images ? cocoeval_bytes(c->classes) : 0);
}
static size_t result_bytes(const ModelConfig *c, int images) {
  enum { RUNS = 256 }; // runs of a mask that covers a quarter of an image of 500 columns
  return bytes_of(c, images, sizeof(CocoResult) + RUNS * sizeof(uint32_t));
}
static size_t result_bytes_of_boxes(const ModelConfig *c, int images) {
  return bytes_of(c, images, sizeof(CocoResult));
}

#define OUTPUTS                                                                                                        \
  .plan = plan, .allocate = allocate, .make_room = make_room, .room_bytes = room_bytes, .close = close_results,        \
  .queue = queue
const Outputs outputs_detections = {OUTPUTS, .result_bytes = result_bytes, .pixels = "mask_pixels_image"};
const Outputs outputs_boxes = {OUTPUTS, .result_bytes = result_bytes_of_boxes};
