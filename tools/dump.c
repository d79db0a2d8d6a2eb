// What a model computes for one batch, tensor by tensor, as a safetensors file to be held against another
// implementation (test/compare_torchvision.py). Activations are NHWC without padding lanes, rows past a count left out.
#include <stdlib.h>
#include <string.h>
#include "engine/engine.h"
#include "engine/state.h"
#include "nn/cli.h"

typedef struct Options {
  const char *weights, *data, *split, *out, *device;
  int batch, limit;
  int64_t seed;
  float flip;
  bool train;
} Options;

static Options parse(int argc, char **argv) {
  Options o = {.split = "val", .device = "cpu64", .batch = 2, .seed = 1};
  Option table[] = {
      {.name = "weights", .kind = OPT_STRING, .target = &o.weights, .arg = "FILE", .help = "a checkpoint"},
      {.name = "data", .kind = OPT_STRING, .target = &o.data, .arg = "DIR", .help = "a COCO data set"},
      {.name = "split", .kind = OPT_STRING, .target = &o.split, .arg = "NAME", .help = "of --data"},
      {.name = "limit",
       .kind = OPT_INT,
       .target = &o.limit,
       .arg = "N",
       .min = 0,
       .max = INT32_MAX,
       .help = "only the first N images; 0 = all"},
      {.name = "batch", .kind = OPT_INT, .target = &o.batch, .arg = "N", .min = 1, .max = 64, .help = "images"},
      {.name = "device", .kind = OPT_STRING, .target = &o.device, .arg = "NAME", .help = "cpu64, cpu …"},
      {.name = "train", .kind = OPT_FLAG, .target = &o.train, .help = "two steps of training, not inference"},
      {.name = "seed", .kind = OPT_INT64, .target = &o.seed, .arg = "N", .help = "of order, flips and sampling"},
      {.name = "flip", .kind = OPT_FLOAT, .target = &o.flip, .arg = "P", .min = 0, .max = 1, .help = "as ./train"},
      {.name = "out", .kind = OPT_STRING, .target = &o.out, .arg = "FILE", .help = "what to write"},
  };
  Cli cli = {.usage = "--weights FILE --data DIR --out FILE [options]",
             .about = "Writes what a model computes for one batch as a safetensors file.",
             .options = table,
             .num_options = COUNT(table)};
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

static void put_ints(Dump *d, const char *name, const int *src, int n) {
  put(d, xstrdup(name), CKPT_I32, 1, &(int64_t){n}, downloaded(d, src, (size_t)n * sizeof *src));
}

// The first `rows` rows n of a tensor of real numbers, without its padding lanes.
static void put_tensor(Dump *d, char *name, const Tensor *t, int rows) {
  CHECK(t->dtype == F32 || t->dtype == F64);
  size_t size = dtype_size(t->dtype), pixels = (size_t)rows * t->h * t->w, lane = size * t->c, pitch = size * t->ldc;
  char *all = downloaded(d, t->data, pixels * pitch);
  for (size_t i = 0; i < pixels; i++) memmove(all + i * lane, all + i * pitch, lane);
  put(d, name, t->dtype == F64 ? CKPT_F64 : CKPT_F32, 4, (int64_t[]){rows, t->h, t->w, t->c}, all);
}

static int count_of(const Dump *d, const int *count) {
  int n;
  device_download(d->dev, &n, count, sizeof n);
  return n;
}

static void put_value(Dump *d, const char *name, const Value *v) {
  put_tensor(d, xstrdup(name), &v->x, v->x.count ? count_of(d, v->x.count) : v->x.n);
}

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

static void put_batch(Dump *d, const Dataset *data, const Batch *b, const MaskRcnn *m) {
  enum { FIELDS = 8 };
  int64_t *info = xmalloc((size_t)b->images * FIELDS * sizeof *info);
  for (int i = 0; i < b->images; i++) {
    const ImageInfo *s = &b->info[i];
    int64_t id = b->index[i] < 0 ? -1 : data->coco.images[data->image[b->index[i]]].id;
    memcpy(info + i * FIELDS, (int64_t[]){id, s->offset, s->h, s->w, s->rh, s->rw, s->flip, (int64_t)s->key},
           FIELDS * sizeof *info);
  }
  put(d, xstrdup("info"), CKPT_I64, 2, (int64_t[]){b->images, FIELDS}, info);
  put(d, xstrdup("bytes"), CKPT_U8, 1, &b->num_bytes, downloaded(d, m->bytes, (size_t)b->num_bytes));
  int canvas[] = {m->canvas_h, m->canvas_w};
  put_ints(d, "canvas", canvas, 2);
}

static void put_truth(Dump *d, const Batch *b, const MaskRcnn *m) {
  const Truth *t = &m->truth;
  int rows = t->images * t->capacity;
  put_tensor(d, xstrdup("truth.box"), &t->box, rows);
  put_ints(d, "truth.label", t->label, rows);
  put_ints(d, "truth.count", t->count, t->images);
  int64_t *window = xmalloc((size_t)rows * 5 * sizeof *window);
  for (int i = 0; i < rows; i++) {
    const Bitmap *s = &b->bitmap[i];
    memcpy(window + 5 * i, (int64_t[]){s->offset, s->x, s->y, s->w, s->h}, 5 * sizeof *window);
  }
  put(d, xstrdup("truth.bitmap"), CKPT_I64, 2, (int64_t[]){rows, 5}, window);
  put(d, xstrdup("truth.bits"), CKPT_U32, 1, &b->num_words,
      downloaded(d, t->bits, (size_t)b->num_words * sizeof *t->bits));
}

static void put_targets(Dump *d, const MaskRcnn *m) {
  const RpnTargets *a = &m->rpn_targets;
  put_ints(d, "rpn_targets.index", a->index, a->images * a->batch);
  put_ints(d, "rpn_targets.positives", a->positives, a->images);
  put_ints(d, "rpn_targets.count", a->count, a->images);
  put_tensor(d, xstrdup("rpn_targets.delta"), &a->delta, a->delta.n);
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
      if (v == level[k].v) return snprintf(name, 16, "%s%d", level[k].letter, l), name;
  }
  const Value *single[] = {m->image, m->class_logits, m->box_deltas, m->mask_logits, m->mask_target, m->mask_probs};
  for (int k = 0; k < COUNT(single); k++)
    if (v == single[k]) return v->name;
  return strcmp(n->kind->name, "roi_align") ? NULL : v->name;
}

// Walks the list itself, because activations share memory: each is taken as soon as it is there.
static void walk(Dump *d, MaskRcnn *m) {
  for (int i = 0; i < m->graph.nodes; i++) {
    Node *n = m->graph.node[i];
    n->kind->forward(&m->graph, n);
    for (int j = 0; j < n->outs; j++) {
      char buffer[16];
      const char *name = label(m, n, n->out[j], buffer);
      if (name) put_value(d, name, n->out[j]);
    }
  }
  put_boxes(d, "rpn_top", &m->rpn_top);
  put_boxes(d, "rpn_kept", &m->rpn_kept);
  put_boxes(d, "proposals", &m->proposals);
}

// Two steps on one batch: the first without a learning rate, so that gradients and activations are of the same weights;
// the second with the momentum that the first has left.
static void dump_training(Dump *d, Engine *e, const Dataset *data, const Batch *b) {
  MaskRcnn *m = &e->train[b->canvas];
  StepOptions step = {.momentum = 0.9f, .weight_decay = 1e-4f, .clip = 1};
  StepResult r;
  engine_step(e, b, &step, &r);
  put_batch(d, data, b, m);
  put_truth(d, b, m);
  put_params(d, "grad", &e->params, true);
  put_tensor(d, xstrdup("losses"), &m->loss, 1);
  put(d, xstrdup("grad_norm"), CKPT_F64, 1, &(int64_t){1},
      memcpy(xmalloc(sizeof r.grad_norm), &r.grad_norm, sizeof r.grad_norm));
  walk(d, m);
  put_targets(d, m);
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

static void dump_inference(Dump *d, Engine *e, const Dataset *data, const Batch *b) {
  MaskRcnn *m = &e->infer[b->canvas];
  engine_infer(e, b);
  put_batch(d, data, b, m);
  walk(d, m);
  put_boxes(d, "class_top", &m->class_top);
  put_boxes(d, "class_kept", &m->class_kept);
  put_boxes(d, "detections", &m->detections);
  put_detections(d, e, b);
}

static void save(const Dump *d, const Options *o, const ModelConfig *config) {
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

int main(int argc, char **argv) {
  Options o = parse(argc, argv);
  Err err;
  Checkpoint c;
  ModelConfig config;
  Category *category;
  if (!ckpt_open(&c, o.weights, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (!state_config(&c, &config, &category, &err)) die(EXIT_USAGE, "%s: %s", o.weights, err.msg);
  Dataset data;
  DatasetOptions options = {.resize = resize_of(&config), .max_canvases = 1, .keep_empty = true, .limit = o.limit};
  if (!dataset_open(&data, o.data, o.split, &options, &err)) die(EXIT_USAGE, "%s", err.msg);
  Engine e;
  Shapes none = {0}, shapes = shapes_of(&data, o.batch);
  if (!engine_open(&e, &(Compute){.device = o.device}, &config, category, o.train ? &shapes : &none,
                   o.train ? &none : &shapes, false, &err) ||
      !state_load(&e, &c, &(LoadOptions){0}, &err))
    die(EXIT_USAGE, "%s", err.msg);
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
  Dump d = {.dev = e.dev};
  if (o.train)
    dump_training(&d, &e, &data, batch);
  else
    dump_inference(&d, &e, &data, batch);
  save(&d, &o, &config);
  for (size_t i = 0; i < d.n; i++) {
    free(d.items[i].name);
    free(d.items[i].data);
  }
  free(d.items);
  loader_close(loader);
  engine_close(&e);
  dataset_close(&data);
  ckpt_close(&c);
  free(category);
  return 0;
}
