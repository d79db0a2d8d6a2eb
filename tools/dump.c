// What a model computes for one batch, tensor by tensor, as a safetensors file to be held against another
// implementation (test/peers/compare_torchvision.py, test/peers/compare_torchvision_gpu.py). Activations are NHWC
// without padding lanes, rows past a count left out, in the type in which they are stored.
//
// With --feed every tensor that is also in FILE is replaced by FILE's as soon as it has been taken, so that whatever
// reads it goes on from there; "grad.V" replaces the gradient of value V before the node that made V runs backward.
#include <stdlib.h>
#include <string.h>
#include "base/cli.h"
#include "engine/engine.h"
#include "engine/state.h"

// clang-format off
#define DUMP_OPTIONS(X)                                                                                                \
  X(STRING, weights, NULL,            "FILE", "a checkpoint")                                                          \
  X(STRING, data,    NULL,            "DIR",  "a COCO data set")                                                       \
  X(STRING, split,   "val",           "NAME", "of --data")                                                             \
  X(INT,    limit,   0, 0, INT32_MAX, "N",    "only the first N images; 0 = all")                                      \
  X(INT,    batch,   2, 1, 64,        "N",    "images")                                                                \
  X(INT,    height,  0, 0, 8192,      "N",    "of the canvas; 0 = as the images ask for")                              \
  X(INT,    width,   0, 0, 8192,      "N",    "of the canvas; 0 = as the images ask for")                              \
  X(STRING, device,  "cpu64",         "NAME", "cpu64, cpu, cuda:0 …")                                                  \
  X(CHOICE_IMPLIED, amp, 0, amp_names, "bf16",                                                                         \
                                              "16-bit (GPU)")                                                          \
  X(FLAG,   tf32,    false,                   "fp32 convolutions in TF32 (GPU)")                                       \
  X(FLAG,   train,   false,                   "two steps of training, not inference")                                  \
  X(FLAG,   inputs,  false,                   "the batch alone, nothing computed")                                     \
  X(FLAG,   all,     false,                   "every activation and gradient, not only what leaves a stage")           \
  X(STRING, feed,    NULL,            "FILE", "tensors that replace ours")                                             \
  X(INT64,  seed,    1, 0, 0,         "N",    "of order, flips and sampling")                                          \
  X(FLOAT,  flip,    0, 0, 1,         "P",    "as ./train")                                                            \
  X(STRING, out,     NULL,            "FILE", "what to write")
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
  Device *dev;
  const Checkpoint *feed; // NULL: nothing is fed
  bool all;
  Item *items;
  size_t n, capacity;
} Dump;

// Takes over `data`.
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

static const CkptType stored_type[DTYPES] = {[F32] = CKPT_F32, [F64] = CKPT_F64, [BF16] = CKPT_BF16, [F16] = CKPT_F16};

// The first `rows` rows n of a tensor: bytes of a pixel without its padding lanes, and with them.
typedef struct TensorRows {
  size_t pixels, lane, pitch;
} TensorRows;

static TensorRows rows_of(const Tensor *t, int rows) {
  size_t size = dtype_size(t->dtype);
  return (TensorRows){(size_t)rows * (size_t)t->h * (size_t)t->w, size * (size_t)t->c, size * (size_t)t->ldc};
}

static void feed_tensor(const Dump *d, const char *name, const Tensor *t, int rows) {
  TensorRows r = rows_of(t, rows);
  const char *data = fed(d, name, stored_type[t->dtype], r.pixels * r.lane);
  if (!data) return;
  if (r.lane == r.pitch) {
    device_upload(d->dev, t->data, data, r.pixels * r.lane);
    return;
  }
  char *padded = xcalloc(r.pixels, r.pitch);
  for (size_t i = 0; i < r.pixels; i++) memcpy(padded + i * r.pitch, data + i * r.lane, r.lane);
  device_upload(d->dev, t->data, padded, r.pixels * r.pitch);
  free(padded);
}

static void put_tensor(Dump *d, char *name, const Tensor *t, int rows) {
  TensorRows r = rows_of(t, rows);
  char *all = downloaded(d, t->data, r.pixels * r.pitch);
  if (r.lane != r.pitch)
    for (size_t i = 0; i < r.pixels; i++) memmove(all + i * r.lane, all + i * r.pitch, r.lane);
  put(d, name, stored_type[t->dtype], 4, (int64_t[]){rows, t->h, t->w, t->c}, all);
  feed_tensor(d, name, t, rows);
}

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
  char *index = xasprintf("%s.index", name), *count = xasprintf("%s.count", name);
  put_ints(d, index, b->index, rows);
  put_ints(d, count, b->count, b->groups);
  free(index);
  free(count);
}

static void put_params(Dump *d, const char *prefix, const Params *p, bool gradients) {
  for (int i = 0; i < p->n; i++) {
    const Param *q = p->list[i];
    if (gradients && !q->trainable) continue;
    put_tensor(d, xasprintf("%s.%s", prefix, q->name), gradients ? &q->grad : &q->master, q->master.n);
  }
}

// ---- what is collected ------------------------------------------------------------------------------------------

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

static void put_rpn_targets(Dump *d, const MaskRcnn *m) {
  const RpnTargets *a = &m->rpn_targets;
  put_ints(d, "rpn_targets.index", a->index, a->images * a->batch);
  put_ints(d, "rpn_targets.positives", a->positives, a->images);
  put_ints(d, "rpn_targets.count", a->count, a->images);
  put_tensor(d, xstrdup("rpn_targets.delta"), &a->delta, a->delta.n);
}

static void put_roi_targets(Dump *d, const MaskRcnn *m) {
  const RoiTargets *r = &m->roi_targets;
  int rois = count_of(d, r->rois.count), objects = count_of(d, r->objects.count);
  put_tensor(d, xstrdup("rois.box"), &r->rois.box, rois);
  put_tensor(d, xstrdup("rois.delta"), &r->delta, rois);
  put_ints(d, "rois.image", r->rois.image, rois);
  put_ints(d, "rois.label", r->label, rois);
  put_tensor(d, xstrdup("objects.box"), &r->objects.box, objects);
  put_ints(d, "objects.image", r->objects.image, objects);
  put_ints(d, "objects.label", r->object_label, objects);
  put_ints(d, "objects.truth", r->object_truth, objects);
}

// The name under which an activation is written; NULL = it is not.
static const char *label(const MaskRcnn *m, const Node *n, const Value *v, char name[16]) {
  for (int l = 0; l < MAX_LEVELS; l++) {
    const struct {
      const char *letter;
      const Value *v;
    } level[] = {
        {"c", l < COUNT(m->c) ? m->c[l] : NULL}, {"p", m->p[l]}, {"logits", m->logits[l]}, {"deltas", m->deltas[l]}};
    for (int k = 0; k < COUNT(level); k++)
      if (v == level[k].v) {
        snprintf(name, 16, "%s%d", level[k].letter, l);
        return name;
      }
  }
  const Value *single[] = {m->image, m->class_logits, m->box_deltas, m->mask_logits, m->mask_target, m->mask_probs};
  for (int k = 0; k < COUNT(single); k++)
    if (v == single[k]) return v->name;
  return strcmp(n->kind->name, "roi_align") ? NULL : v->name;
}

// With --all no activation is without a name.
static const char *name_of(const Dump *d, const MaskRcnn *m, const Node *n, const Value *v, char buffer[16]) {
  const char *name = label(m, n, v, buffer);
  return name || !d->all ? name : v->name;
}

static bool is(const Node *n, const char *name) { return !strcmp(n->name, name); }

// Suppression and merging once more, each on what was fed for the step before.
static void put_merged(Dump *d, const Nms *p, int per, const Boxes steps[3], const char *const names[3]) {
  const Ops *ops = d->dev->ops;
  put_boxes(d, names[0], &steps[0]);
  ops->nms(d->dev, p, &steps[0], &steps[1]);
  put_boxes(d, names[1], &steps[1]);
  ops->boxes_merge(d->dev, per, &steps[1], &steps[2]);
  put_boxes(d, names[2], &steps[2]);
}

// What a node leaves beside its outputs.
static void put_results(Dump *d, const MaskRcnn *m, const Node *n) {
  if (is(n, "proposals"))
    put_merged(d, &(Nms){m->config.rpn_nms, m->config.box_extra}, MAX_LEVELS,
               (Boxes[]){m->rpn_top, m->rpn_kept, m->proposals},
               (const char *const[]){"rpn_top", "rpn_kept", "proposals"});
  if (is(n, "detect")) {
    put_merged(d, &(Nms){m->config.nms, m->config.box_extra}, m->config.classes - 1,
               (Boxes[]){m->class_top, m->class_kept, m->detections},
               (const char *const[]){"class_top", "class_kept", "detections"});
    d->dev->ops->rois_compact(d->dev, &m->detections, &m->mask_rois);
  }
  if (is(n, "rpn_loss")) put_rpn_targets(d, m);
  if (is(n, "roi_sample")) put_roi_targets(d, m);
}

// Walks the list itself, because activations share memory: each is taken as soon as it is there.
static void walk_forward(Dump *d, MaskRcnn *m) {
  for (int i = 0; i < m->graph.nodes; i++) {
    Node *n = m->graph.node[i];
    n->kind->forward(&m->graph, n);
    for (int j = 0; j < n->outs; j++) {
      char buffer[16];
      const char *name = name_of(d, m, n, n->out[j], buffer);
      if (name) put_tensor(d, xstrdup(name), &n->out[j]->x, rows_in(d, n->out[j]));
    }
    put_results(d, m, n);
  }
}

// The gradient of input V, as far as it has come when node N has added to it, is "grad.V@N".
static void walk_backward(Dump *d, MaskRcnn *m) {
  char buffer[16];
  for (int i = m->graph.nodes - 1; i >= 0; i--) {
    Node *n = m->graph.node[i];
    if (!n->runs_backward) continue;
    for (int j = 0; j < n->outs && !n->kind->source; j++) {
      char *name = xasprintf("grad.%s", name_of(d, m, n, n->out[j], buffer));
      feed_tensor(d, name, &n->out[j]->dx, rows_in(d, n->out[j]));
      free(name);
    }
    node_backward(&m->graph, n);
    for (int j = 0; j < n->ins; j++) {
      const Value *v = n->in[j].v;
      if (n->in[j].wanted)
        put_tensor(d, xasprintf("grad.%s@%s", name_of(d, m, n, v, buffer), n->name), &v->dx, rows_in(d, v));
    }
  }
}

// Two steps on one batch: the first without a learning rate, so that gradients and activations are of the same weights;
// the second with the momentum that the first has left.
static void dump_training(Dump *d, Engine *e, const Batch *b) {
  MaskRcnn *m = &e->train[b->canvas];
  StepOptions step = {.momentum = 0.9f, .weight_decay = 1e-4f, .clip = 1};
  StepResult r;
  engine_step(e, b, &step, &r);
  walk_forward(d, m);
  put_tensor(d, xstrdup("losses"), &m->loss, 1);
  if (d->all) walk_backward(d, m);
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
    uint8_t *mask = xmalloc((size_t)s->mask.h * (size_t)s->mask.w);
    rle_to_bytes(&s->mask, mask);
    put(d, xasprintf("mask.%d", i), CKPT_U8, 2, (int64_t[]){s->mask.h, s->mask.w}, mask);
  }
  put(d, xstrdup("found"), CKPT_F64, 2, (int64_t[]){found.n, 7}, rows);
  detections_free(&found);
}

static void dump_inference(Dump *d, Engine *e, const Batch *b) {
  MaskRcnn *m = &e->infer[b->canvas];
  engine_infer(e, b);
  walk_forward(d, m);
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

// A canvas of the user's choice, if every image fits.
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
  Compute how = {.device = o->device, .amp = amp_types[o->amp], .tf32 = o->tf32};
  Shapes none = {0}, shapes = shapes_of(data, o->batch);
  if (!engine_open(&e, &how, config, category, o->train ? &shapes : &none, o->train ? &none : &shapes, false, &err) ||
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
  Checkpoint feed;
  if (o.feed && !ckpt_open(&feed, o.feed, &err)) die(EXIT_USAGE, "%s", err.msg);
  Dataset data;
  DatasetOptions options = {.resize = resize_of(&config), .max_canvases = 1, .keep_empty = true, .limit = o.limit};
  if (!dataset_open(&data, o.data, o.split, &options, &err)) die(EXIT_USAGE, "%s", err.msg);
  set_canvas(&data, &o);
  LoaderOptions loading = {.batch = o.batch,
                           .world = 1,
                           .seed = (uint64_t)o.seed,
                           .train = o.train,
                           .flip = o.flip,
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
  return 0;
}
