#include "lib/opened.h"
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/parallel.h"
#include "engine/state.h"
#include "lib/options.h"
#include "lib/results.h"

static bool failed(maskrcnn_status *to, maskrcnn_status status, const Err *err) {
  *to = err_exit(err) == EXIT_RUN ? MASKRCNN_NO_MEMORY : status;
  return false;
}

// What the options change of a model as it was trained.
static bool adapt(const ResultType *result_type, ModelConfig *c, const maskrcnn_options *o, Err *err) {
  const ModelChanges changes = {.size = o->image_size,
                                .max_size = o->max_image_size,
                                .detections = (int)o->detections_per_image,
                                .proposals = (int)o->proposals_per_image,
                                .nms = o->nms,
                                .set = o->set};
  c->min_score = o->min_score;
  return result_type->check(o, err) && model_change(c, &changes, err);
}

static CanvasSet choose_canvases(const ModelConfig *c, const maskrcnn_options *options) {
  const Resize resize = resize_of(c);
  Canvas canvas[MAX_CANVASES];
  for (int i = 0; i < options->num_canvases; i++)
    canvas[i] = (Canvas){.h = options->canvases[i].height, .w = options->canvases[i].width};
  return canvases_given(&resize, model_of(c)->square, canvas, options->num_canvases);
}

// Of an image for which there is room from the beginning.
static int64_t usual_bytes(const Opened *o) {
  int64_t pixels = 0;
  for (int i = 0; i < o->canvases.n; i++) {
    const Canvas *c = &o->canvases.canvas[i];
    pixels = MAX(pixels, (int64_t)c->h * c->w);
  }
  return 3 * MIN(o->result_type->usual_canvases * pixels, o->max_pixels);
}

static bool open_engine(Opened *o, const maskrcnn_options *options, bool plan, const ModelConfig *config,
                        const Category *category, maskrcnn_status *status, Err *err) {
  const Shapes none = {0};
  Shapes shapes = {.canvases = o->canvases.n, .images = options->batch, .max_bytes = usual_bytes(o)};
  memcpy(shapes.canvas, o->canvases.canvas, sizeof shapes.canvas);
  Compute compute = {.device = options->device,
                     .tf32 = options->tf32,
                     .conv = options->conv,
                     .sync_nodes = options->sync_nodes,
                     .team = true, // the caller's program goes on without it
                     .plan_only = plan,
                     .most_device = options->max_device_bytes,
                     .most_host = options->max_host_bytes,
                     .mask_threshold = &options->mask_threshold};
  for (int i = 0; amp_names[i]; i++)
    if (!strcmp(amp_names[i], options->amp)) compute.amp = amp_types[i];
  Engine *e = &o->engine;
  if (engine_open(e, &compute, model_of(config), config, category, &none, &shapes, false, err)) return true;
  options_words(err);
  // No device; what the device cannot do; and all that a plan was made for, before there is too little memory.
  return failed(status,
                !e->dev          ? MASKRCNN_BAD_DEVICE
                : e->memory.rows ? MASKRCNN_NO_MEMORY
                                 : MASKRCNN_BAD_ARGUMENT,
                err);
}

void opened_memory(const Opened *o, size_t *device, size_t *host) {
  const MemoryPlan *m = &o->engine.memory;
  const size_t on_device = memory_sum(m, ON_DEVICE), on_host = memory_sum(m, ON_HOST) + memory_sum(m, ON_HOST_LOCKED);
  const bool gpu = o->engine.dev && o->engine.dev->gpu;
  *device = gpu ? on_device : 0;
  *host = gpu ? on_host : on_device + on_host;
}

static void describe(Opened *o, const maskrcnn_options *options) {
  const Engine *e = &o->engine;
  size_t device, host;
  opened_memory(o, &device, &host);
  const int n = model_names(&e->config);
  o->ids = xcalloc((size_t)n, sizeof *o->ids);
  o->names = xcalloc((size_t)n, sizeof *o->names);
  for (int i = 0; i < n; i++) {
    o->ids[i] = e->category[i].id;
    o->names[i] = e->category[i].name;
  }
  for (int i = 0; i < o->canvases.n; i++)
    o->about_canvas[i] = (maskrcnn_size){o->canvases.canvas[i].h, o->canvases.canvas[i].w};
  for (int i = 0; i < config_fields(); i++)
    if (!strcmp(config_field_name(i), "resize_rule")) config_get(&e->config, i, o->resize_rule, sizeof o->resize_rule);
  o->about = (maskrcnn_description){.model = e->model->name,
                                    .device = e->dev->description,
                                    .why_cpu = e->dev->why_cpu,
                                    .num_kinds = 1,
                                    .kinds = &o->result_type->kind,
                                    .num_categories = n,
                                    .category_ids = o->ids,
                                    .category_names = o->names,
                                    .image_size = o->canvases.resize.size,
                                    .max_image_size = o->canvases.resize.max_size,
                                    .resize_rule = o->resize_rule,
                                    .num_canvases = o->canvases.n,
                                    .canvases = o->about_canvas,
                                    .batch = options->batch,
                                    .queue = options->queue,
                                    .max_pixels = options->max_pixels,
                                    .range_low = e->config.range_low,
                                    .range_high = e->config.range_high,
                                    .threads = e->dev->gpu ? 1 : omp_get_max_threads(),
                                    .device_bytes = device,
                                    .host_bytes = host};
  o->result_type->describe(&e->config, &o->about);
  for (int i = 0; amp_names[i]; i++)
    if (!strcmp(amp_names[i], options->amp)) o->about.amp = amp_names[i];
}

// What messages call the weights.
static const char *weights_name(const maskrcnn_options *o) { return o->weights ? o->weights : "the weights in memory"; }

static bool weights_open(Checkpoint *c, const maskrcnn_options *o, Err *err) {
  return o->weights ? state_open(c, o->weights, err)
                    : state_open_memory(c, o->weights_data, o->weights_bytes, weights_name(o), err);
}

// With the checkpoint open.
static bool open_from(Opened *o, const Checkpoint *c, const maskrcnn_options *options, bool plan,
                      maskrcnn_status *status, Err *err) {
  ModelConfig config;
  Category *category;
  Err why;
  if (!state_config(c, &config, &category, &why)) {
    err_set(err, "%s: %s", weights_name(options), why.msg);
    return failed(status, MASKRCNN_BAD_WEIGHTS, err);
  }
  o->result_type = model_of(&config)->result_type;
  bool ok = adapt(o->result_type, &config, options, err);
  if (!ok) {
    options_words(err);
    failed(status, MASKRCNN_BAD_ARGUMENT, err);
  } else {
    o->top = options->top && options->top < (size_t)config.classes ? (int)options->top : config.classes;
    o->canvases = choose_canvases(&config, options);
    ok = open_engine(o, options, plan, &config, category, status, err);
  }
  free(category);
  if (!ok || plan) return ok;
  if (!state_load(&o->engine, c, &(LoadOptions){0}, &why)) {
    err_set(err, "%s: %s", weights_name(options), why.msg);
    return failed(status, MASKRCNN_BAD_WEIGHTS, err);
  }
  describe(o, options);
  bool exif;
  o->about.exif = state_exif(c, &exif) ? exif : -1;
  o->upright = (options->exif < 0 ? o->about.exif : options->exif) == 1;
  o->gpu = o->engine.dev->gpu;
  return true;
}

bool opened_open(Opened *o, const maskrcnn_options *options, bool plan, char note[OPENED_NOTE], maskrcnn_status *status,
                 Err *err) {
  Checkpoint c = {0};
  *o = (Opened){.max_pixels = options->max_pixels, .copiers = options->threads ? options->threads : parallel_cores()};
  if (!weights_open(&c, options, err)) return failed(status, MASKRCNN_BAD_WEIGHTS, err);
  if (note) state_note_text(&c, weights_name(options), note, OPENED_NOTE);
  const bool ok = open_from(o, &c, options, plan, status, err);
  ckpt_close(&c);
  return ok;
}

void opened_close(Opened *o) {
  free(o->ids);
  free(o->names);
  engine_close(&o->engine);
}

// Of the one canvas that images are mapped onto.
static Size mapped(const Opened *o) { return (Size){o->canvases.canvas[0].h, o->canvases.canvas[0].w}; }

int opened_canvas(const Opened *o, int h, int w, ImageInfo *size, Err *err) {
  *size = (ImageInfo){.h = h, .w = w};
  const int canvas = canvases_fit(&o->canvases, h, w, &size->rh, &size->rw);
  if (o->result_type->map) o->result_type->map(&o->engine.config, (Size){h, w}, mapped(o), size->view.map);
  if (canvas < 0)
    err_set(err,
            "it is resized to %d x %d (h x w), which fits no canvas: open with a larger canvas, or with canvases NULL",
            size->rh, size->rw);
  return canvas;
}

int opened_shrink(const Opened *o, int h, int w) {
  return o->result_type->shrink ? o->result_type->shrink((Size){h, w}, mapped(o)) : 1;
}
