#include "engine/engine.h"
#include <stdlib.h>
#include <string.h>

const char *const amp_names[] = {"off", "bf16", "fp16", NULL};
const DType amp_types[] = {F32, BF16, F16};

Shapes shapes_of(const Dataset *d, int images) {
  Shapes s = {.canvases = d->num_canvases,
              .images = images,
              .max_objects = d->max_objects,
              .max_bytes = d->max_bytes,
              .max_words = d->max_words};
  memcpy(s.canvas, d->canvas, sizeof s.canvas);
  return s;
}

Resize resize_of(const ModelConfig *c) {
  return (Resize){.size = c->size, .max_size = c->max_size, .rule = c->resize_rule};
}

// ---- memory -----------------------------------------------------------------------------------------------------

// Asks for the arrays of a batch, or, when measuring, only adds up their sizes.
static bool inputs_allocate(Inputs *in, Device *dev, const Shapes *s, size_t *total, bool measure) {
  size_t n = (size_t)s->images, objects = n * (size_t)s->max_objects;
  *in = (Inputs){.images = s->images, .capacity = s->max_objects};
  const size_t room[INPUT_ARRAYS] = {[INPUT_INFO] = n * sizeof(ImageInfo),
                                     [INPUT_BYTES] = n * (size_t)s->max_bytes,
                                     [INPUT_BOX] = objects * 4 * dtype_size(dev->real),
                                     [INPUT_LABEL] = objects * sizeof(int),
                                     [INPUT_COUNT] = n * sizeof(int),
                                     [INPUT_BITMAP] = objects * sizeof(Bitmap),
                                     [INPUT_BITS] = n * (size_t)s->max_words * sizeof(uint32_t)};
  for (int i = 0; i < INPUT_ARRAYS; i++) {
    in->array[i].room = room[i];
    *total += 2 * room[i];
    if (measure) continue;
    in->array[i].data = device_alloc(dev, room[i]);
    in->array[i].staged = device_alloc(dev, room[i]);
    if (!in->array[i].data || !in->array[i].staged) return false;
  }
  return true;
}

static void inputs_free(Inputs *in, Device *dev) {
  for (int i = 0; i < INPUT_ARRAYS; i++) {
    device_free(dev, in->array[i].data);
    device_free(dev, in->array[i].staged);
  }
}

static void connect_inputs(MaskRcnn *m, const Inputs *in, DType real) {
  m->info = in->array[INPUT_INFO].data, m->bytes = in->array[INPUT_BYTES].data;
  m->truth = (Truth){.images = in->images,
                     .capacity = in->capacity,
                     .box = tensor_packed(real, in->images * in->capacity, 4),
                     .label = in->array[INPUT_LABEL].data,
                     .count = in->array[INPUT_COUNT].data,
                     .bitmap = in->array[INPUT_BITMAP].data,
                     .bits = in->array[INPUT_BITS].data};
  m->truth.box.data = in->array[INPUT_BOX].data;
}

// What a slot's reals are.
enum {
  REAL_LOSS,
  REAL_STATS = LOSSES,
  REAL_SCALE = REAL_STATS + 2,
  REAL_HYPER = REAL_SCALE + 3,
  SLOT_REALS = REAL_HYPER + 4
};

static bool slots_allocate(Engine *e) {
  for (int i = 0; i < STEPS_UNDER_WAY; i++) {
    struct StepSlot *s = &e->slot[i];
    s->real = device_host_alloc(e->dev, SLOT_REALS * dtype_size(e->dev->real));
    s->count = device_host_alloc(e->dev, 2 * sizeof *s->count);
    s->index = xcalloc((size_t)e->train_shapes.images, sizeof *s->index);
    if (!s->real || !s->count) return false;
  }
  return true;
}

// `n` floats as reals of the device, by device_upload or device_stage.
static void send_real(Device *dev, void (*send)(Device *, void *, const void *, size_t), void *dst, const float *src,
                      size_t n) {
  if (dev->real == F32) {
    send(dev, dst, src, n * sizeof *src);
    return;
  }
  double *wide = xmalloc(n * sizeof *wide);
  for (size_t i = 0; i < n; i++) wide[i] = src[i];
  send(dev, dst, wide, n * sizeof *wide); // the CPU's copies are done at once
  free(wide);
}

static MaskRcnn *build_graphs(Engine *e, const Shapes *s, bool training) {
  MaskRcnn *models = xcalloc((size_t)s->canvases, sizeof *models);
  for (int i = 0; i < s->canvases; i++) {
    maskrcnn_build(&models[i], &e->config, e->dev, &e->params, training, s->images, s->canvas[i].h, s->canvas[i].w,
                   s->max_objects);
    e->arena_bytes = MAX(e->arena_bytes, models[i].graph.bytes);
  }
  return models;
}

// Scratch of what a step does outside its graph.
static void measure_update(Engine *e) {
  e->dev->measuring = true;
  e->dev->ops->grad_stats(e->dev, e->params.trainable, NULL, LOSSES, NULL, NULL, NULL);
  e->dev->measuring = false;
}

static void print_plans(const MaskRcnn *models, const Shapes *s, const char *purpose) {
  for (int i = 0; models && i < s->canvases; i++) {
    printf("%s, canvas %d x %d (h x w), batch %d: ", purpose, s->canvas[i].h, s->canvas[i].w, s->images);
    arena_print(models[i].graph.blocks, models[i].graph.num_blocks, models[i].graph.bytes, stdout);
  }
}

static void print_summary(const Engine *e, size_t inputs) {
  printf("memory: parameters, gradients, momentum %.1f MB; activations %.1f MB; scratch %.1f MB; inputs %.1f MB; "
         "total %.1f MB\n",
         (double)e->params.bytes / 1e6, (double)e->arena_bytes / 1e6, (double)e->dev->scratch_bytes / 1e6,
         (double)inputs / 1e6, (double)e->total_bytes / 1e6);
}

bool engine_open(Engine *e, const Compute *compute, const ModelConfig *config, const Category *category,
                 const Shapes *train, const Shapes *infer, bool print_plan, Err *err) {
  *e = (Engine){.config = *config, .train_shapes = *train, .infer_shapes = *infer};
  if (!config_check(config, err) || !(e->dev = device_open(compute->device, err))) return false;
  if ((compute->amp || compute->tf32 || compute->conv) && !e->dev->gpu)
    return err_set(err, "--%s needs a GPU, and this runs on the CPU",
                   compute->amp    ? "amp"
                   : compute->tf32 ? "tf32"
                                   : "conv");
  e->dev->tf32 = compute->tf32;
  if (!device_choose_rung(e->dev, compute->conv, err)) return false;
  size_t names = (size_t)(config->classes - 1) * sizeof *category;
  e->category = memcpy(xmalloc(names), category, names);
  params_init(&e->params, e->dev, compute->amp ? compute->amp : e->dev->real);
  if (train->images) e->train = build_graphs(e, train, true);
  if (infer->images) e->infer = build_graphs(e, infer, false);

  size_t inputs = 0;
  inputs_allocate(&e->train_inputs, e->dev, train, &inputs, true);
  inputs_allocate(&e->infer_inputs, e->dev, infer, &inputs, true);
  if (!params_allocate(&e->params, err)) return false;
  for (int i = 0; e->train && i < train->canvases; i++) graph_measure(&e->train[i].graph);
  for (int i = 0; e->infer && i < infer->canvases; i++) graph_measure(&e->infer[i].graph);
  measure_update(e);
  e->total_bytes = e->params.bytes + e->arena_bytes + e->dev->scratch_bytes + inputs;
  if (print_plan) {
    print_plans(e->train, train, "training");
    print_plans(e->infer, infer, "inference");
    print_summary(e, inputs);
  }
  size_t rest = e->total_bytes - e->params.bytes, available = device_available(e->dev);
  if (available && rest > available)
    return err_set(err,
                   "out of memory: %.1f MB asked for, %.1f MB free on %s; a smaller --batch, --size or --max-size "
                   "shrinks it",
                   (double)rest / 1e6, (double)available / 1e6, e->dev->description);
  size_t real = dtype_size(e->dev->real), unused = 0;
  e->arena = device_alloc(e->dev, e->arena_bytes);
  e->hyper = device_alloc(e->dev, 5 * real);
  e->scale = device_alloc(e->dev, 3 * real);
  e->stats = device_alloc(e->dev, 2 * real);
  if (!e->arena || !e->hyper || !e->scale || !e->stats || !device_reserve_scratch(e->dev, err) ||
      !inputs_allocate(&e->train_inputs, e->dev, train, &unused, false) ||
      !inputs_allocate(&e->infer_inputs, e->dev, infer, &unused, false) || !slots_allocate(e))
    return err_set(err, "out of memory: %.1f MB asked for; a smaller --batch, --size or --max-size shrinks it",
                   (double)e->total_bytes / 1e6);
  engine_set_scale(e, (double[]){compute->amp == F16 ? 65536 : 1, 0, 0});
  for (int i = 0; e->train && i < train->canvases; i++) {
    e->train[i].loss_scale = e->scale;
    graph_bind(&e->train[i].graph, e->arena);
    connect_inputs(&e->train[i], &e->train_inputs, e->dev->real);
  }
  for (int i = 0; e->infer && i < infer->canvases; i++) {
    graph_bind(&e->infer[i].graph, e->arena);
    connect_inputs(&e->infer[i], &e->infer_inputs, e->dev->real);
  }
  return true;
}

void engine_close(Engine *e) {
  for (int i = 0; e->train && i < e->train_shapes.canvases; i++) maskrcnn_free(&e->train[i]);
  for (int i = 0; e->infer && i < e->infer_shapes.canvases; i++) maskrcnn_free(&e->infer[i]);
  free(e->train);
  free(e->infer);
  free(e->category);
  if (e->dev) {
    inputs_free(&e->train_inputs, e->dev);
    inputs_free(&e->infer_inputs, e->dev);
    device_free(e->dev, e->arena);
    device_free(e->dev, e->hyper);
    device_free(e->dev, e->scale);
    for (int i = 0; i < STEPS_UNDER_WAY; i++) {
      device_host_free(e->dev, e->slot[i].real);
      device_host_free(e->dev, e->slot[i].count);
      free(e->slot[i].index);
    }
    for (int i = 0; i < MAX_CANVASES; i++) {
      device_forget(e->dev, e->step_program[i]);
      device_forget(e->dev, e->infer_program[i]);
    }
    device_free(e->dev, e->stats);
    params_free(&e->params);
    device_close(e->dev);
  }
  *e = (Engine){0};
}

// ---- a batch's way to the device ----------------------------------------------------------------------------------

static void stage(Engine *e, Inputs *in, const Batch *b) {
  CHECK(b->images == in->images && b->capacity == in->capacity);
  const size_t n = (size_t)b->images, objects = n * (size_t)b->capacity, real = dtype_size(e->dev->real);
  const struct {
    const void *host;
    size_t bytes;
  } from[INPUT_ARRAYS] = {[INPUT_INFO] = {b->info, n * sizeof *b->info},
                          [INPUT_BYTES] = {b->bytes, (size_t)b->num_bytes},
                          [INPUT_BOX] = {b->box, objects * 4 * real},
                          [INPUT_LABEL] = {b->label, objects * sizeof *b->label},
                          [INPUT_COUNT] = {b->count, n * sizeof *b->count},
                          [INPUT_BITMAP] = {b->bitmap, objects * sizeof *b->bitmap},
                          [INPUT_BITS] = {b->bits, (size_t)b->num_words * sizeof *b->bits}};
  in->canvas = b->canvas;
  for (int i = 0; i < INPUT_ARRAYS; i++) {
    CHECK(from[i].bytes <= in->array[i].room);
    in->array[i].used = from[i].bytes;
    if (i == INPUT_BOX)
      send_real(e->dev, device_stage, in->array[i].staged, from[i].host, objects * 4);
    else
      device_stage(e->dev, in->array[i].staged, from[i].host, from[i].bytes);
  }
}

// The staged batch becomes the one that graphs read.
static void take_staged(Engine *e, const Inputs *in) {
  device_stage_wait(e->dev);
  for (int i = 0; i < INPUT_ARRAYS; i++) device_copy(e->dev, in->array[i].data, in->array[i].staged, in->array[i].used);
  device_stage_next(e->dev);
}

static void download_real(Device *dev, double *dst, const void *src, size_t n) {
  if (dev->real == F64) {
    device_download(dev, dst, src, n * sizeof *dst);
    return;
  }
  float *narrow = xmalloc(n * sizeof *narrow);
  device_download(dev, narrow, src, n * sizeof *narrow);
  for (size_t i = 0; i < n; i++) dst[i] = narrow[i];
  free(narrow);
}

// ---- training ---------------------------------------------------------------------------------------------------

enum { SCALE_INTERVAL = 2000 }; // clean steps before fp16's loss scale doubles, as torch.amp.GradScaler

static double waited_seconds(Engine *e) {
  device_sync(e->dev);
  return now_seconds();
}

void engine_get_scale(Engine *e, double scale[3]) { download_real(e->dev, scale, e->scale, 3); }

void engine_set_scale(Engine *e, const double scale[3]) {
  send_real(e->dev, device_upload, e->scale, (float[]){(float)scale[0], (float)scale[1], (float)scale[2]}, 3);
  send_real(e->dev, device_upload, e->hyper, (float[]){0, 0, 0, 0, (float)(1 / scale[0])}, 5);
}

static void queue_update(Engine *e, const MaskRcnn *m) {
  Device *dev = e->dev;
  Params *p = &e->params;
  dev->ops->grad_stats(dev, p->trainable, p->grad, LOSSES, m->loss.data, e->hyper, e->stats);
  Sgd sgd = {.hyper = e->hyper, .stats = e->stats};
  if (e->factors) sgd.factors = *e->factors, sgd.kind = p->kind;
  dev->ops->sgd(dev, &sgd, p->trainable, p->master, p->grad, p->momentum);
  if (p->shadow_dtype == F16) dev->ops->loss_scale_update(dev, SCALE_INTERVAL, e->stats, e->scale, e->hyper);
  params_refresh_shadows(p);
}

static void queue_step(Engine *e, MaskRcnn *m) {
  graph_forward(&m->graph);
  graph_backward(&m->graph);
  queue_update(e, m);
}

static void timed_step(Engine *e, MaskRcnn *m, struct StepSlot *slot) {
  double start = waited_seconds(e);
  graph_forward(&m->graph);
  double forward = waited_seconds(e);
  graph_backward(&m->graph);
  double backward = waited_seconds(e);
  queue_update(e, m);
  slot->forward_seconds = forward - start;
  slot->backward_seconds = backward - forward;
  slot->update_seconds = waited_seconds(e) - backward;
}

// The first run queues kernel by kernel (libraries and modules load lazily), the second is recorded, all others replay it.
static bool run_recorded(Engine *e, MaskRcnn *m, void **program, int *runs, void (*queue)(Engine *, MaskRcnn *)) {
  if (e->uncaptured || (*runs)++ == 0 || m->graph.timing) return false;
  if (!*program) {
    if (!device_record(e->dev)) return false;
    queue(e, m);
    *program = device_record_end(e->dev);
  }
  device_replay(e->dev, *program);
  return true;
}

static void *slot_at(const Engine *e, const struct StepSlot *s, int i) {
  return (char *)s->real + (size_t)i * dtype_size(e->dev->real);
}
static double slot_real(const Engine *e, const struct StepSlot *s, int i) {
  return e->dev->real == F64 ? ((const double *)s->real)[i] : (double)((const float *)s->real)[i];
}
static void slot_set(const Engine *e, struct StepSlot *s, int i, float v) {
  if (e->dev->real == F64)
    ((double *)s->real)[i] = v;
  else
    ((float *)s->real)[i] = v;
}

void engine_stage(Engine *e, const Batch *batch) {
  struct StepSlot *s = &e->slot[e->started % STEPS_UNDER_WAY];
  s->wait_seconds = device_idle(e->dev) ? batch->wait_seconds : 0; // a device at work missed nothing
  memcpy(s->index, batch->index, (size_t)batch->images * sizeof *s->index);
  double start = now_seconds();
  stage(e, &e->train_inputs, batch);
  s->transfer_seconds = 0;
  if (!e->train[batch->canvas].graph.timing) return;
  device_stage_wait(e->dev);
  s->transfer_seconds = now_seconds() - start;
}

void engine_start(Engine *e, const StepOptions *o) {
  Device *dev = e->dev;
  CHECK(e->started - e->handed_out < STEPS_UNDER_WAY);
  struct StepSlot *s = &e->slot[e->started++ % STEPS_UNDER_WAY];
  int canvas = e->train_inputs.canvas;
  MaskRcnn *m = &e->train[canvas];
  size_t real = dtype_size(dev->real);
  e->batches++;
  s->forward_seconds = s->backward_seconds = s->update_seconds = 0;
  const float hyper[] = {o->learning_rate, o->momentum, o->weight_decay, o->clip};
  for (int i = 0; i < COUNT(hyper); i++) slot_set(e, s, REAL_HYPER + i, hyper[i]);
  device_upload(dev, e->hyper, slot_at(e, s, REAL_HYPER), COUNT(hyper) * real);
  take_staged(e, &e->train_inputs);
  if (m->graph.timing)
    timed_step(e, m, s);
  else if (!run_recorded(e, m, &e->step_program[canvas], &e->step_runs[canvas], queue_step))
    queue_step(e, m);
  device_fetch(dev, slot_at(e, s, REAL_LOSS), m->loss.data, LOSSES * real);
  device_fetch(dev, slot_at(e, s, REAL_STATS), e->stats, 2 * real);
  device_fetch(dev, slot_at(e, s, REAL_SCALE), e->scale, 3 * real);
  device_fetch(dev, &s->count[0], m->roi_targets.rois.count, sizeof *s->count);
  device_fetch(dev, &s->count[1], m->roi_targets.objects.count, sizeof *s->count);
}

bool engine_result(Engine *e, bool wait, StepResult *r) {
  // All but the last two started are complete (engine.h).
  if (e->handed_out >= e->started - (wait ? 0 : 2)) return false;
  if (e->handed_out >= e->started - 2) device_sync(e->dev);
  const struct StepSlot *s = &e->slot[e->handed_out % STEPS_UNDER_WAY];
  *r = (StepResult){.step = e->handed_out++,
                    .grad_norm = slot_real(e, s, REAL_STATS),
                    .finite = slot_real(e, s, REAL_STATS + 1) != 0,
                    .loss_scale = slot_real(e, s, REAL_SCALE),
                    .skipped = (int)slot_real(e, s, REAL_SCALE + 2),
                    .rois = s->count[0],
                    .positives = s->count[1],
                    .index = s->index,
                    .wait_seconds = s->wait_seconds,
                    .transfer_seconds = s->transfer_seconds,
                    .forward_seconds = s->forward_seconds,
                    .backward_seconds = s->backward_seconds,
                    .update_seconds = s->update_seconds};
  for (int i = 0; i < LOSSES; i++) r->total += r->loss[i] = slot_real(e, s, REAL_LOSS + i);
  return true;
}

void engine_step(Engine *e, const Batch *batch, const StepOptions *o, StepResult *r) {
  engine_stage(e, batch);
  engine_start(e, o);
  CHECK(engine_result(e, true, r) && e->handed_out == e->started);
}

static void *host_alloc(void *dev, size_t bytes) { return device_host_alloc(dev, bytes); }
static void host_free(void *dev, void *p) { device_host_free(dev, p); }
HostMemory engine_host_memory(Engine *e) { return (HostMemory){host_alloc, host_free, e->dev}; }

// ---- inference --------------------------------------------------------------------------------------------------

static void queue_inference(Engine *e, MaskRcnn *m) {
  (void)e;
  graph_forward(&m->graph);
}

void engine_infer(Engine *e, const Batch *batch) {
  MaskRcnn *m = &e->infer[batch->canvas];
  stage(e, &e->infer_inputs, batch);
  take_staged(e, &e->infer_inputs);
  if (!run_recorded(e, m, &e->infer_program[batch->canvas], &e->infer_runs[batch->canvas], queue_inference))
    queue_inference(e, m);
}

void detections_free(Detections *d) {
  for (int i = 0; i < d->n; i++) rle_free(&d->items[i].mask);
  free(d->items);
  *d = (Detections){0};
}

void engine_detections(Engine *e, const Batch *batch, float threshold, Detections *out) {
  Device *dev = e->dev;
  const MaskRcnn *m = &e->infer[batch->canvas];
  const Boxes *b = &m->detections;
  size_t rows = (size_t)b->groups * (size_t)b->capacity;
  int *count = xmalloc((size_t)b->groups * sizeof *count), *index = xmalloc(rows * sizeof *index);
  double *box = xmalloc(rows * 4 * sizeof *box), *score = xmalloc(rows * sizeof *score);
  device_download(dev, count, b->count, (size_t)b->groups * sizeof *count);
  device_download(dev, index, b->index, rows * sizeof *index);
  download_real(dev, box, b->box.data, rows * 4);
  download_real(dev, score, b->score.data, rows);

  int total = 0;
  int64_t words = 1;
  for (int i = 0; i < b->groups; i++) {
    total += count[i];
    if (count[i]) words = MAX(words, ((int64_t)batch->info[i].h * batch->info[i].w + 31) / 32);
  }
  size_t bytes = (size_t)total * (size_t)words * sizeof(uint32_t);
  uint32_t *device_bits = device_alloc(dev, bytes), *bits = xmalloc(bytes);
  CHECK(device_bits);
  MaskPaste paste = {.threshold = threshold, .exact = e->config.mask_paste_exact};
  dev->ops->mask_paste(dev, &paste, m->info, b, &m->mask_probs->x, device_bits, words);
  device_download(dev, bits, device_bits, bytes);
  device_free(dev, device_bits);

  *out = (Detections){.items = xcalloc((size_t)total, sizeof *out->items)};
  for (int i = 0; i < b->groups; i++)
    for (int j = 0; j < count[i]; j++) {
      const ImageInfo *info = &batch->info[i];
      size_t row = (size_t)i * (size_t)b->capacity + (size_t)j;
      Detection *d = &out->items[out->n];
      double ratio_x = (double)info->w / info->rw, ratio_y = (double)info->h / info->rh;
      *d = (Detection){.image = i, .label = index[row] % e->config.classes, .score = (float)score[row]};
      for (int k = 0; k < 4; k++) d->box[k] = (float)(box[4 * row + (size_t)k] * (k % 2 ? ratio_y : ratio_x));
      d->mask = rle_from_bits(bits + (size_t)out->n * (size_t)words, info->h, info->w);
      out->n++;
    }
  free(bits);
  free(score);
  free(box);
  free(index);
  free(count);
}
