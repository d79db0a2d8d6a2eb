// Dumps what a model computes for one batch, tensor by tensor, to a safetensors file for comparison with another
// implementation (test/peers/compare_torchvision.py, test/peers/compare_torchvision_gpu.py). Activations are NHWC
// without padding channels, rows past a count left out, in the type in which they are stored.
//
// With --feed every tensor that is also in FILE is replaced by FILE's as soon as it has been dumped, so that later
// nodes read FILE's; "grad.V" replaces the gradient of value V before the node that made V runs backward.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/cli.h"
#include "base/file_set.h"
#include "base/output.h"
#include "engine/detect.h"
#include "engine/state.h"
#include "models/rcnn.h"

// clang-format off
#define DUMP_OPTIONS(X)                                                                                                \
  X(STRING, weights, NULL, "FILE", "weights")                                                                          \
  X(STRING, data, NULL, "DIR", "COCO data set")                                                                        \
  X(STRING, split, "val", "NAME", "split of --data")                                                                   \
  X(INT, limit, 0, 1, INT32_MAX, "N", "only the first N images", .usual = "all images")                                \
  X(INT, batch, 2, 1, 64, "N", "images in the batch")                                                                  \
  X(INT, height, 0, 1, 8192, "PIXELS", "height of the canvas", .usual = "as the images need")                          \
  X(INT, width, 0, 1, 8192, "PIXELS", "width of the canvas", .usual = "as the images need")                            \
  X(STRING, device, "cpu64", "NAME", "cpu64, cpu, or cuda:N")                                                          \
  X(CHOICE_IMPLIED, amp, 0, amp_names, "bf16", "16-bit activations, on a GPU")                                         \
  X(FLAG, tf32, false, "TF32 matrix products, on a GPU")                                                               \
  X(FLAG, train, false, "two training steps instead of inference")                                                     \
  X(FLAG, inputs, false, "write the batch alone, without computing")                                                   \
  X(FLAG, all, false, "write every activation and gradient, not only those that leave a stage")                        \
  X(INT, size, 0, 0, 8192, "PIXELS", "length of the input's shorter side", .usual = "as trained")                      \
  X(STRING, set, NULL, "FIELD=VALUE", "fields of the configuration, as infer's --set")                                 \
  X(STRING, feed, NULL, "FILE", "tensors that replace computed ones")                                                  \
  X(INT64, seed, 1, 0, 0, "N", "seed of order, flips and sampling")                                                    \
  X(FLOAT, flip, 0, 0, 1, "P", "probability of a horizontal flip")                                                     \
  X(STRING, out, NULL, "FILE", "file to write")
// clang-format on

typedef struct DumpOptions {
  OPTION_FIELDS(DUMP_OPTIONS)
} DumpOptions;

static DumpOptions parse(int argc, char **argv) {
  DumpOptions o = {OPTION_DEFAULTS(DUMP_OPTIONS)};
  OPTION_TABLE(table, DumpOptions, DUMP_OPTIONS);
  Cli cli = {.usage = "--weights FILE --data DIR --out FILE [options]",
             .about = "Writes what a model computes for one batch as a safetensors file.",
             .options = table,
             .num_options = COUNT(table),
             .values = &o};
  cli_parse_or_exit(&cli, argc, argv);
  if (!o.weights || !o.data || !o.out) die(EXIT_USAGE, "--weights, --data and --out are needed; --help lists all");
  return o;
}

// ---- collecting -------------------------------------------------------------------------------------------------

typedef struct Item {
  char *name;
  CkptType type;
  int ndim;
  int64_t dims[4];
  void *data;
} Item;

typedef struct Dump {
  Observer observer; // of the walk whose values are collected
  Device *dev;
  const Network *network;
  const Checkpoint *feed; // NULL: no values are replaced
  bool all;
  Item *items;
  size_t n, capacity;
} Dump;

// Takes ownership of `data`.
static void put(Dump *d, char *name, CkptType type, int ndim, const int64_t *dims, void *data) {
  array_reserve((void **)&d->items, &d->capacity, d->n + 1, sizeof *d->items);
  Item *item = &d->items[d->n++];
  *item = (Item){.name = name, .type = type, .ndim = ndim, .data = data};
  memcpy(item->dims, dims, (size_t)ndim * sizeof *dims);
}

static void *downloaded(const Dump *d, const void *src, size_t bytes) {
  void *host = xmalloc(bytes);
  device_download(d->dev, host, src, bytes);
  return host;
}

// The fed tensor of that name, or NULL.
static const void *fed(const Dump *d, const char *name, CkptType type, size_t bytes) {
  const CkptTensor *t = d->feed ? ckpt_find(d->feed, name) : NULL;
  if (!t) return NULL;
  if (t->type != type || t->bytes != bytes)
    die(EXIT_USAGE, "--feed: %s has %zu bytes of %s where %zu of %s are wanted", name, t->bytes,
        ckpt_type_name(t->type), bytes, ckpt_type_name(type));
  return t->data;
}

static void put_ints(Dump *d, const char *name, int *src, int n) {
  size_t bytes = (size_t)n * sizeof *src;
  put(d, xstrdup(name), CKPT_I32, 1, &(int64_t){n}, downloaded(d, src, bytes));
  const void *data = fed(d, name, CKPT_I32, bytes);
  if (data) device_upload(d->dev, src, data, bytes);
}

// "name.part"
static void put_record_ints(Dump *d, const char *name, const char *part, int *src, int n) {
  char *full = xasprintf("%s.%s", name, part);
  put_ints(d, full, src, n);
  free(full);
}

static const CkptType stored_type[DTYPES] = {[F32] = CKPT_F32, [F64] = CKPT_F64, [BF16] = CKPT_BF16, [F16] = CKPT_F16};

// The first `rows` rows n of a tensor; bytes of a pixel without its padding channels, and with them.
typedef struct TensorRows {
  size_t pixels, lane, pitch;
} TensorRows;

static TensorRows rows_of(const Tensor *t, int rows) {
  size_t size = dtype_size(t->dtype);
  return (TensorRows){(size_t)rows * (size_t)t->h * (size_t)t->w, size * (size_t)t->c, size * (size_t)t->ldc};
}

// Channels [first, first + channels) of a tensor.
static void feed_channels(const Dump *d, const char *name, const Tensor *t, int first, int channels, int rows) {
  TensorRows r = rows_of(t, rows);
  const size_t begin = (size_t)first * dtype_size(t->dtype);
  r.lane = (size_t)channels * dtype_size(t->dtype);
  const char *data = fed(d, name, stored_type[t->dtype], r.pixels * r.lane);
  if (!data) return;
  if (r.lane == r.pitch) {
    device_upload(d->dev, t->data, data, r.pixels * r.lane);
    return;
  }
  char *all = downloaded(d, t->data, r.pixels * r.pitch);
  for (size_t i = 0; i < r.pixels; i++) memcpy(all + i * r.pitch + begin, data + i * r.lane, r.lane);
  device_upload(d->dev, t->data, all, r.pixels * r.pitch);
  free(all);
}

static void put_channels(Dump *d, char *name, const Tensor *t, int first, int channels, int rows) {
  TensorRows r = rows_of(t, rows);
  const size_t begin = (size_t)first * dtype_size(t->dtype);
  r.lane = (size_t)channels * dtype_size(t->dtype);
  char *all = downloaded(d, t->data, r.pixels * r.pitch);
  if (r.lane != r.pitch)
    for (size_t i = 0; i < r.pixels; i++) memmove(all + i * r.lane, all + i * r.pitch + begin, r.lane);
  put(d, name, stored_type[t->dtype], 4, (int64_t[]){rows, t->h, t->w, channels}, all);
  feed_channels(d, name, t, first, channels, rows);
}

static void put_tensor(Dump *d, char *name, const Tensor *t, int rows) { put_channels(d, name, t, 0, t->c, rows); }

static int count_of(const Dump *d, const int *count) {
  int n;
  device_download(d->dev, &n, count, sizeof n);
  return n;
}

static int rows_in(const Dump *d, const Value *v) { return v->x.count ? count_of(d, v->x.count) : v->x.n; }

static void put_boxes(Dump *d, const char *name, const Boxes *b) {
  int rows = b->groups * b->capacity;
  put_tensor(d, xasprintf("%s.box", name), &b->box, rows);
  put_tensor(d, xasprintf("%s.score", name), &b->score, rows);
  put_record_ints(d, name, "index", b->index, rows);
  put_record_ints(d, name, "count", b->count, b->groups);
}

static void put_params(Dump *d, const char *prefix, const Params *p, bool gradients) {
  for (int i = 0; i < p->n; i++) {
    const Param *q = p->list[i];
    if (gradients && !q->trainable) continue;
    put_tensor(d, xasprintf("%s.%s", prefix, q->name), gradients ? &q->grad : &q->master, q->master.n);
  }
}

// ---- what is collected ---- -------------------------------------------------------------------------------------

static void *copied(const void *src, size_t bytes) { return bytes ? memcpy(xmalloc(bytes), src, bytes) : xmalloc(0); }

static void put_batch(Dump *d, const Dataset *data, const Batch *b) {
  enum { FIELDS = 8 };
  int64_t *info = xmalloc((size_t)b->images * FIELDS * sizeof *info);
  for (int i = 0; i < b->images; i++) {
    const ImageInfo *s = &b->info[i];
    int64_t id = b->index[i] < 0 ? -1 : data->coco.images[data->image[b->index[i]]].id;
    memcpy(info + i * FIELDS, (int64_t[]){id, s->offset, s->h, s->w, s->rh, s->rw, s->flip, (int64_t)s->key},
           FIELDS * sizeof *info);
  }
  put(d, xstrdup("info"), CKPT_I64, 2, (int64_t[]){b->images, FIELDS}, info);
  put(d, xstrdup("bytes"), CKPT_U8, 1, &b->num_bytes, copied(b->bytes, (size_t)b->num_bytes));
  const Canvas *c = &data->canvas[b->canvas];
  put(d, xstrdup("canvas"), CKPT_I32, 1, (int64_t[]){2}, copied((int[]){c->h, c->w}, 2 * sizeof(int)));
}

static void put_truth(Dump *d, const Batch *b) {
  int64_t rows = (int64_t)b->images * b->capacity, images = b->images;
  put(d, xstrdup("truth.box"), CKPT_F32, 2, (int64_t[]){rows, 4}, copied(b->box, (size_t)rows * 4 * sizeof *b->box));
  put(d, xstrdup("truth.label"), CKPT_I32, 1, &rows, copied(b->label, (size_t)rows * sizeof *b->label));
  put(d, xstrdup("truth.count"), CKPT_I32, 1, &images, copied(b->count, (size_t)images * sizeof *b->count));
  int64_t *window = xmalloc((size_t)rows * 5 * sizeof *window);
  for (int64_t i = 0; i < rows; i++) {
    const Bitmap *s = &b->bitmap[i];
    memcpy(window + 5 * i, (int64_t[]){s->offset, s->x, s->y, s->w, s->h}, 5 * sizeof *window);
  }
  put(d, xstrdup("truth.bitmap"), CKPT_I64, 2, (int64_t[]){rows, 5}, window);
  put(d, xstrdup("truth.bits"), CKPT_U32, 1, &b->num_words, copied(b->bits, (size_t)b->num_words * sizeof *b->bits));
}

static void put_rpn_targets(Dump *d, const char *name, const RpnTargets *t) {
  put_record_ints(d, name, "index", t->index, t->images * t->batch);
  put_record_ints(d, name, "positives", t->positives, t->images);
  put_record_ints(d, name, "count", t->count, t->images);
  put_tensor(d, xasprintf("%s.delta", name), &t->delta, t->delta.n);
}

static void put_rois(Dump *d, const char *name, const Rois *r) {
  int n = count_of(d, r->count);
  put_tensor(d, xasprintf("%s.box", name), &r->box, n);
  put_record_ints(d, name, "image", r->image, n);
}

// A node's outputs list sampled RoIs before their targets.
static void put_targets(Dump *d, const Value *v, const Value *rois) {
  int n = count_of(d, rois->rois.count);
  if (v->type == VALUE_BOX_TARGETS) {
    put_record_ints(d, rois->name, "label", v->box_targets.label, n);
    put_tensor(d, xasprintf("%s.delta", rois->name), &v->box_targets.delta, n);
  } else {
    put_record_ints(d, rois->name, "label", v->object_targets.label, n);
    put_record_ints(d, rois->name, "truth", v->object_targets.truth, n);
  }
}

// The name under which an activation is written; NULL = it is not written.
static const char *label(const Network *network, const Node *n, const Value *v, char name[16]) {
  const Rcnn *m = rcnn_of(network);
  for (int l = 0; l < MAX_LEVELS; l++) {
    const struct {
      const char *letter;
      const Value *v;
    } level[] = {{"c", l < COUNT(m->c) ? m->c[l] : NULL}, {"p", m->p[l]}};
    for (int k = 0; k < COUNT(level); k++) {
      if (v != level[k].v) continue;
      snprintf(name, 16, "%s%d", level[k].letter, l);
      return name;
    }
  }
  const Value *single[] = {m->image,       m->class_logits, m->box_deltas,  m->mask_logits,
                           m->mask_target, m->mask_probs,   network->losses};
  for (int k = 0; k < COUNT(single); k++)
    if (v == single[k]) return v->name;
  return strcmp(n->type->name, "roi_align") ? NULL : v->name;
}

// Channels of a value under a name of their own.
typedef struct Channels {
  const char *name;
  char buffer[16];
  int first, count;
} Channels;

// All channels of a value, or the RPN's logits and its deltas; returns how many: 0 for a value that is not written.
// With --all every activation has a name.
static int channels_of(const Dump *d, const Node *n, const Value *v, Channels part[2]) {
  const Rcnn *m = rcnn_of(d->network);
  const int per_cell = m->anchors.per_cell;
  for (int l = 0; l < MAX_LEVELS; l++) {
    if (v != m->rpn_outputs[l]) continue;
    for (int k = 0; k < 2; k++) {
      part[k] = (Channels){.first = k ? 0 : 4 * per_cell, .count = k ? 4 * per_cell : per_cell};
      snprintf(part[k].buffer, sizeof part[k].buffer, "%s%d", k ? "deltas" : "logits", l);
      part[k].name = part[k].buffer;
    }
    return 2;
  }
  part[0] = (Channels){.count = v->x.c};
  part[0].name = label(d->network, n, v, part[0].buffer);
  if (!part[0].name && d->all) part[0].name = v->name;
  return part[0].name != NULL;
}

static bool written_later(const Graph *g, const Node *n, const Value *v) {
  for (int i = n->id + 1; i < g->nodes; i++)
    for (int j = 0; j < g->node[i]->outs; j++)
      if (g->node[i]->out[j] == v) return true;
  return false;
}

static void put_output(Dump *d, const Graph *g, const Node *n, int output) {
  const Value *v = n->out[output];
  Channels part[2];
  switch (v->type) {
  case VALUE_TENSOR:
    for (int i = v->whole ? 0 : channels_of(d, n, v, part); i-- > 0;) // parts are written as part of their whole
      put_channels(d, xstrdup(part[i].name), &v->x, part[i].first, part[i].count, rows_in(d, v));
    break;
  case VALUE_BOXES: put_boxes(d, v->name, &v->boxes); break;
  case VALUE_ROIS:
    if (g->training) put_rois(d, v->name, &v->rois);
    break;
  case VALUE_RPN_TARGETS: put_rpn_targets(d, v->name, &v->rpn_targets); break;
  case VALUE_BOX_TARGETS:
  case VALUE_OBJECT_TARGETS: put_targets(d, v, n->out[output - 1]); break;
  case VALUE_HITS:
    put_record_ints(d, v->name, "top1", v->hits.top1, 1);
    put_record_ints(d, v->name, "top5", v->hits.top5, 1);
    break;
  case VALUE_IMAGES:
  case VALUE_LABELS:
  case VALUE_TRUTH: break; // inputs
  }
}

// ---- the observer -----------------------------------------------------------------------------------------------

// Values share memory: each is copied as soon as it is complete.
static void after_node(Observer *o, Graph *g, Node *n, Pass pass) {
  Dump *d = (Dump *)o;
  Channels part[2];
  if (pass == PASS_FORWARD) {
    for (int i = 0; i < n->outs; i++)
      if (!written_later(g, n, n->out[i])) put_output(d, g, n, i);
    return;
  }
  // "grad.V@N" is the gradient of value V as it is after node N has added to it.
  for (int i = 0; i < n->ins; i++) {
    const Value *v = n->in[i].v;
    for (int k = n->in[i].wanted ? channels_of(d, n, v, part) : 0; k-- > 0;)
      put_channels(d, xasprintf("grad.%s@%s", part[k].name, n->name), &v->dx, part[k].first, part[k].count,
                   rows_in(d, v));
  }
}

static void before_node(Observer *o, Graph *g, Node *n, Pass pass) {
  (void)g;
  const Dump *d = (Dump *)o;
  Channels part[2];
  if (pass == PASS_FORWARD || n->type->source) return;
  for (int i = 0; i < n->outs && !n->out[i]->whole; i++)
    for (int k = channels_of(d, n, n->out[i], part); k-- > 0;) {
      char *name = xasprintf("grad.%s", part[k].name);
      feed_channels(d, name, &n->out[i]->dx, part[k].first, part[k].count, rows_in(d, n->out[i]));
      free(name);
    }
}

static void walk(Dump *d, Network *n, bool backward) {
  d->observer = (Observer){.before = before_node, .after = after_node};
  d->network = n;
  graph_observe(&n->graph, &d->observer);
  graph_forward(&n->graph);
  if (backward) graph_backward(&n->graph);
  graph_unobserve(&n->graph, &d->observer);
}

// Two steps on one batch: the first with learning rate 0, so that gradients and activations belong to the same weights;
// the second with the momentum left by the first.
static void dump_training(Dump *d, Engine *e, const Batch *b) {
  StepOptions step = {.momentum = 0.9f, .weight_decay = 1e-4f, .clip = 1};
  StepResult r;
  engine_step(e, b, &step, &r);
  walk(d, &e->train.network[b->canvas], d->all);
  put_params(d, "grad", &e->params, true);
  put(d, xstrdup("grad_norm"), CKPT_F64, 1, &(int64_t){1},
      memcpy(xmalloc(sizeof r.grad_norm), &r.grad_norm, sizeof r.grad_norm));
  step.learning_rate = 0.02f;
  engine_step(e, b, &step, &r);
  put_params(d, "updated", &e->params, false);
}

static void put_detections(Dump *d, Engine *e, const Batch *b) {
  Detections found;
  engine_detections(e, b, 0.5f, &found);
  double *rows = xmalloc((size_t)found.n * 7 * sizeof *rows);
  for (int i = 0; i < found.n; i++) {
    const Detection *s = &found.items[i];
    memcpy(rows + 7 * i, (double[]){s->image, s->label, s->score, s->box[0], s->box[1], s->box[2], s->box[3]},
           7 * sizeof *rows);
    if (!s->mask.n) continue; // of a model without masks
    uint8_t *mask = xmalloc((size_t)s->mask.h * (size_t)s->mask.w);
    rle_to_bytes(&s->mask, mask);
    put(d, xasprintf("mask.%d", i), CKPT_U8, 2, (int64_t[]){s->mask.h, s->mask.w}, mask);
  }
  put(d, xstrdup("found"), CKPT_F64, 2, (int64_t[]){found.n, 7}, rows);
  detections_free(&found);
}

static void dump_inference(Dump *d, Engine *e, const Batch *b) {
  engine_infer(e, b);
  walk(d, &e->infer.network[b->canvas], false);
  put_detections(d, e, b);
}

static void save(const Dump *d, const DumpOptions *o, const ModelConfig *config) {
  CkptWriter w;
  Err err;
  if (!ckpt_begin(&w, o->out, &err)) die(EXIT_USAGE, "%s", err.msg);
  for (int i = 0; i < config_fields(); i++) {
    char key[64], value[256];
    snprintf(key, sizeof key, "config.%s", config_field_name(i));
    config_get(config, i, value, sizeof value);
    ckpt_meta(&w, key, value);
  }
  for (size_t i = 0; i < d->n; i++)
    ckpt_tensor(&w, d->items[i].name, d->items[i].type, d->items[i].ndim, d->items[i].dims);
  for (size_t i = 0; i < d->n; i++) ckpt_data(&w, d->items[i].data);
  if (!ckpt_commit(&w, &err)) die(EXIT_RUN, "%s", err.msg);
}

// A canvas of the requested size, if every image fits.
static void set_canvas(Dataset *data, const DumpOptions *o) {
  Canvas *c = &data->canvas[0];
  if ((o->height && o->height < c->h) || (o->width && o->width < c->w))
    die(EXIT_USAGE, "--height %d --width %d: the images need %d x %d", o->height, o->width, c->h, c->w);
  if (o->height) c->h = o->height;
  if (o->width) c->w = o->width;
}

static void compute(Dump *d, const DumpOptions *o, const Checkpoint *weights, const Dataset *data, const Batch *batch,
                    const ModelConfig *config, const Category *category) {
  Engine e;
  Err err;
  Compute how = {.device = o->device, .amp = amp_types[o->amp], .tf32 = o->tf32, .every_value = true};
  Shapes none = {0}, shapes = shapes_of(data, o->batch);
  if (!engine_open(&e, &how, model_of(config), config, category, o->train ? &shapes : &none, o->train ? &none : &shapes,
                   false, &err) ||
      !state_load(&e, weights, &(LoadOptions){0}, &err))
    die(EXIT_USAGE, "%s", err.msg);
  d->dev = e.dev;
  if (o->train)
    dump_training(d, &e, batch);
  else
    dump_inference(d, &e, batch);
  engine_close(&e);
}

int main(int argc, char **argv) {
  DumpOptions o = parse(argc, argv);
  Err err;
  Checkpoint c;
  ModelConfig config;
  Category *category;
  if (!state_open(&c, o.weights, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (!state_config(&c, &config, &category, &err)) die(EXIT_USAGE, "%s: %s", o.weights, err.msg);
  if (o.size) config_resize(&config, o.size);
  if (o.set && !model_set_list(&config, o.set, true, &err)) die(EXIT_USAGE, "%s", err.msg);
  Checkpoint feed;
  FileSet inputs = {0};
  file_set_add(&inputs, o.weights);
  if (o.feed) file_set_add(&inputs, o.feed);
  if (!file_set_spares(&inputs, o.out, &err)) die(EXIT_USAGE, "--out %s", err.msg);
  file_set_free(&inputs);
  if (o.feed && !ckpt_open(&feed, o.feed, &err)) die(EXIT_USAGE, "%s", err.msg);
  Dataset data;
  DatasetOptions options = {.resize = resize_of(&config), .max_canvases = 1, .keep_empty = true, .limit = o.limit};
  if (!dataset_open(&data, o.data, o.split, &options, &err)) die(EXIT_USAGE, "%s", err.msg);
  set_canvas(&data, &o);
  LoaderOptions loading = {.batch = o.batch,
                           .world = 1,
                           .seed = (uint64_t)o.seed,
                           .train = o.train,
                           .augment = {.flip = o.flip},
                           .threads = 1,
                           .prefetch = 1,
                           .masks = o.train,
                           .strict = true};
  Loader *loader = loader_open(&data, &loading, &err);
  const Batch *batch = loader ? loader_next(loader, &err) : NULL;
  if (!batch) die(EXIT_USAGE, "no batch: %s", err.msg);
  Dump d = {.feed = o.feed ? &feed : NULL, .all = o.all};
  put_batch(&d, &data, batch);
  if (o.train) put_truth(&d, batch);
  if (!o.inputs) compute(&d, &o, &c, &data, batch, &config, category);
  save(&d, &o, &config);
  for (size_t i = 0; i < d.n; i++) {
    free(d.items[i].name);
    free(d.items[i].data);
  }
  free(d.items);
  loader_close(loader);
  dataset_close(&data);
  if (o.feed) ckpt_close(&feed);
  ckpt_close(&c);
  free(category);
  stdout_close();
  return 0;
}
