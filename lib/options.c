#include "lib/options.h"
#include <string.h>
#include "data/batches/canvas.h"
#include "engine/engine.h"

void maskrcnn_options_init(maskrcnn_options *options, size_t size) {
  const maskrcnn_options defaults = {.device = "auto",
                                     .amp = "off",
                                     .batch = 1,
                                     .min_score = 0.05f,
                                     .mask_threshold = 0.5f,
                                     .max_pixels = 16 << 20,
                                     .top = 5,
                                     .nms = -1,
                                     .exif = -1};
  if (!options || size < sizeof options->size) return;
  memset(options, 0, size);
  memcpy(options, &defaults, MIN(size, sizeof defaults));
  options->size = size;
}

static bool in_range(const char *name, int64_t value, int64_t least, int64_t most, Err *err) {
  return (value >= least && value <= most) || err_set(err, "%s is %lld: it must be from %lld to %lld", name,
                                                      (long long)value, (long long)least, (long long)most);
}

// NaN is in no range.
static bool is_share(const char *name, double value, Err *err) {
  return (value >= 0 && value <= 1) || err_set(err, "%s is %g: it must be from 0 to 1", name, value);
}

static bool is_flag(const char *name, int value, Err *err) { return in_range(name, value, 0, 1, err); }

static bool is_amp(const char *name, Err *err) {
  for (int i = 0; amp_names[i]; i++)
    if (!strcmp(amp_names[i], name)) return true;
  return err_set(err, "amp is \"%s\": choose from off, bf16, fp16", name);
}

static bool canvases_usable(const maskrcnn_options *o, Err *err) {
  if (!o->canvases)
    return o->num_canvases == 0 || err_set(err, "num_canvases is %d, but canvases is NULL", o->num_canvases);
  if (!in_range("num_canvases", o->num_canvases, 1, OPTIONS_CANVASES, err)) return false;
  for (int i = 0; i < o->num_canvases; i++) {
    const maskrcnn_size s = o->canvases[i];
    if (s.height < CANVAS_MULTIPLE || s.width < CANVAS_MULTIPLE || s.height > 16384 || s.width > 16384 ||
        s.height % CANVAS_MULTIPLE || s.width % CANVAS_MULTIPLE)
      return err_set(err, "canvas %d is %d x %d: sides must be multiples of %d from %d to 16384", i, s.height, s.width,
                     CANVAS_MULTIPLE, CANVAS_MULTIPLE);
  }
  return true;
}

static bool weights_usable(const maskrcnn_options *o, Err *err) {
  if (o->weights && o->weights_data)
    return err_set(err, "weights and weights_data are both set: leave one of them NULL");
  if (o->weights_data)
    return o->weights_bytes > 0 || err_set(err, "weights_bytes is 0: it must be weights_data's length");
  return (o->weights && *o->weights) ||
         err_set(err, "weights is %s: it must name a file, or weights_data point to its contents",
                 o->weights ? "empty" : "NULL");
}

bool options_take(maskrcnn_options *own, const maskrcnn_options *given, Err *err) {
  if (!given) return err_set(err, "options is NULL: maskrcnn_options_init sets the defaults");
  if (given->size < offsetof(maskrcnn_options, device))
    return err_set(err, "options have a size of %zu bytes: call maskrcnn_options_init(&options, sizeof options)",
                   given->size);
  if (given->size % _Alignof(maskrcnn_options))
    return err_set(err,
                   "options have a size of %zu bytes, which ends inside a member: call maskrcnn_options_init(&options, "
                   "sizeof options)",
                   given->size);
  if (given->size > sizeof *own)
    return err_set(err, "options have %zu bytes, this library, %s, knows %zu of them: it is older than maskrcnn.h",
                   given->size, maskrcnn_version(), sizeof *own);
  maskrcnn_options_init(own, sizeof *own);
  memcpy(own, given, given->size);
  own->size = sizeof *own;
  if (!weights_usable(own, err)) return false;
  if (!own->device) own->device = "auto";
  if (!own->amp) own->amp = "off";
  if (!is_amp(own->amp, err) || !is_flag("tf32", own->tf32, err) || !is_flag("sync_nodes", own->sync_nodes, err) ||
      !in_range("batch", own->batch, 1, 1024, err))
    return false;
  if (!own->queue) own->queue = 4 * own->batch;
  return in_range("queue", own->queue, own->batch, 1 << 16, err) && is_share("min_score", own->min_score, err) &&
         is_share("mask_threshold", own->mask_threshold, err) &&
         in_range("image_size", own->image_size, 0, 8192, err) &&
         in_range("max_image_size", own->max_image_size, 0, 16384, err) &&
         in_range("detections_per_image", (int64_t)own->detections_per_image, 0, MOST_DETECTIONS, err) &&
         in_range("proposals_per_image", (int64_t)own->proposals_per_image, 0, MOST_DETECTIONS, err) &&
         (own->nms < 0 || is_share("nms", (double)own->nms, err)) &&
         in_range("max_pixels", own->max_pixels, 1, OPTIONS_PIXELS, err) &&
         in_range("threads", own->threads, 0, 1024, err) && in_range("exif", own->exif, -1, 1, err) &&
         canvases_usable(own, err);
}

void options_words(Err *err) {
  static const struct {
    const char *program, *library;
  } words[] = {{"--max-size", "max_image_size"},
               {"--detections", "detections_per_image"},
               {"--proposals", "proposals_per_image"},
               {"--set", "set"},
               {"--size", "image_size"},
               {"--batch", "batch"},
               {"--device", "device"},
               {"--amp", "amp"},
               {"--tf32", "tf32"},
               {"--conv", "conv"},
               {"--sync-nodes", "sync_nodes"}};
  for (int i = 0; i < COUNT(words); i++)
    for (char *at; (at = strstr(err->msg, words[i].program));) {
      Err rest;
      snprintf(rest.msg, sizeof rest.msg, "%s", at + strlen(words[i].program));
      snprintf(at, sizeof err->msg - (size_t)(at - err->msg), "%s%s", words[i].library, rest.msg);
    }
}
