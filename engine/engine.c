#include "engine/engine.h"
#include <stdlib.h>
#include <string.h>
#include "engine/step.h"

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

// ---- programs ---------------------------------------------------------------------------------------------------

static void program_build(Engine *e, Program *p, const Shapes *s, Purpose purpose) {
  *p = (Program){.shapes = *s};
  if (!s->images) return;
  p->network = xcalloc((size_t)s->canvases, sizeof *p->network);
  p->profile = xcalloc((size_t)s->canvases, sizeof *p->profile);
  for (int i = 0; i < s->canvases; i++) {
    network_build(&p->network[i], e->model, &e->config, e->dev, &e->params, purpose, s->images, s->canvas[i].h,
                  s->canvas[i].w, s->max_objects);
    e->arena_bytes = MAX(e->arena_bytes, p->network[i].graph.bytes);
  }
}

static int program_graphs(const Program *p) { return p->network ? p->shapes.canvases : 0; }

// After params_allocate. Returns the bytes of its inputs.
static size_t program_plan(Engine *e, Program *p, unsigned arrays) {
  const Shapes *s = &p->shapes;
  const BatchSize room = {.images = s->images,
                          .capacity = s->max_objects,
                          .bytes = s->images * s->max_bytes,
                          .words = s->images * s->max_words};
  for (int i = 0; i < program_graphs(p); i++) graph_measure(&p->network[i].graph);
  return inputs_plan(&p->inputs, e->dev, &room, arrays);
}

static void program_bind(Engine *e, Program *p, LossScale scale) {
  for (int i = 0; i < program_graphs(p); i++) {
    Network *n = &p->network[i];
    n->graph.loss_scale = scale;
    graph_bind(&n->graph, e->arena);
    inputs_connect(&p->inputs, n);
  }
}

static void program_free(Engine *e, Program *p) {
  for (int i = 0; i < program_graphs(p); i++) {
    profile_free(&p->profile[i], &p->network[i].graph);
    network_free(&p->network[i]);
    device_forget(e->dev, p->recorded[i]);
  }
  inputs_free(&p->inputs, e->dev);
  free(p->network);
  free(p->profile);
}

static void program_time_nodes(Program *p, bool on, Trace *trace) {
  for (int i = 0; i < program_graphs(p); i++)
    if (on)
      profile_start(&p->profile[i], &p->network[i].graph, trace);
    else
      profile_stop(&p->profile[i], &p->network[i].graph);
}

void engine_time_nodes(Engine *e, bool on, Trace *trace) {
  e->timing = on;
  program_time_nodes(&e->train, on, trace);
  program_time_nodes(&e->infer, on, trace);
}

// ---- memory -----------------------------------------------------------------------------------------------------

static void print_plans(const Program *p, const char *purpose) {
  for (int i = 0; i < program_graphs(p); i++) {
    const Canvas *c = &p->shapes.canvas[i];
    const Graph *g = &p->network[i].graph;
    printf("%s, canvas %d x %d (h x w), batch %d: ", purpose, c->h, c->w, p->shapes.images);
    arena_print(g->blocks, g->num_blocks, g->bytes, stdout);
    if (i > 0) continue; // every canvas has the same nodes
    printf("%s, %d nodes: what each reads -> writes\n", purpose, g->nodes);
    graph_print(g, stdout);
  }
}

static void print_summary(const Engine *e, size_t inputs) {
  printf("memory: parameters, gradients, momentum %.1f MB; activations %.1f MB; workspace %.1f MB; inputs %.1f MB; "
         "total %.1f MB\n",
         (double)e->params.bytes / 1e6, (double)e->arena_bytes / 1e6, (double)e->dev->workspace_bytes / 1e6,
         (double)inputs / 1e6, (double)e->total_bytes / 1e6);
}

static bool allocate(Engine *e, Err *err) {
  size_t real = dtype_size(e->dev->real), rest = e->total_bytes - e->params.bytes, available = device_available(e->dev);
  if (available && rest > available)
    return err_set(err,
                   "out of memory: %.1f MB asked for, %.1f MB free on %s; a smaller --batch, --size or --max-size "
                   "shrinks it",
                   (double)rest / 1e6, (double)available / 1e6, e->dev->description);
  e->arena = device_alloc(e->dev, e->arena_bytes);
  e->hyper = device_alloc(e->dev, 5 * real);
  e->scale = device_alloc(e->dev, 3 * real);
  e->stats = device_alloc(e->dev, 2 * real);
  return (e->arena && e->hyper && e->scale && e->stats && device_reserve_workspace(e->dev, err) &&
          inputs_allocate(&e->train.inputs, e->dev) && inputs_allocate(&e->infer.inputs, e->dev) &&
          slots_allocate(e)) ||
         err_set(err, "out of memory: %.1f MB asked for; a smaller --batch, --size or --max-size shrinks it",
                 (double)e->total_bytes / 1e6);
}

// ---- opening and closing ----------------------------------------------------------------------------------------

static bool open_device(Engine *e, const Compute *compute, Err *err) {
  if (!(e->dev = device_open(compute->device, err))) return false;
  params_init(&e->params, e->dev, compute->amp ? compute->amp : e->dev->real);
  if ((compute->amp || compute->tf32 || compute->conv) && !e->dev->gpu)
    return err_set(err, "--%s needs a GPU, and this runs on the CPU",
                   compute->amp    ? "amp"
                   : compute->tf32 ? "tf32"
                                   : "conv");
  e->dev->tf32 = compute->tf32;
  if (!device_choose_rung(e->dev, compute->conv, err)) return false;
  return true;
}

bool engine_open(Engine *e, const Compute *compute, const Model *model, const ModelConfig *config,
                 const Category *category, const Shapes *train, const Shapes *infer, bool print_plan, Err *err) {
  *e = (Engine){.model = model, .config = *config};
  int images = MAX(train->images, infer->images);
  if (!config_check(config, err) || (model->check && !model->check(config, images, err))) return false;
  if (!open_device(e, compute, err)) return false;
  size_t names = (size_t)(config->classes - 1) * sizeof *category;
  e->category = memcpy(xmalloc(names), category, names);
  program_build(e, &e->train, train, FOR_TRAINING);
  program_build(e, &e->infer, infer, FOR_INFERENCE);
  if (!params_allocate(&e->params, err)) return false;
  size_t inputs = program_plan(e, &e->train, e->model->inputs | e->model->targets);
  inputs += program_plan(e, &e->infer, e->model->inputs);
  measure_update(e);
  e->total_bytes = e->params.bytes + e->arena_bytes + e->dev->workspace_bytes + inputs;
  if (print_plan) {
    print_plans(&e->train, "training");
    print_plans(&e->infer, "inference");
    print_summary(e, inputs);
  }
  if (!allocate(e, err)) return false;
  engine_set_scale(e, (double[]){compute->amp == F16 ? 65536 : 1, 0, 0});
  program_bind(e, &e->train, e->scale);
  program_bind(e, &e->infer, NULL);
  return true;
}

void engine_close(Engine *e) {
  free(e->category);
  if (e->dev) {
    program_free(e, &e->train);
    program_free(e, &e->infer);
    device_free(e->dev, e->arena);
    device_free(e->dev, e->hyper);
    device_free(e->dev, e->scale);
    device_free(e->dev, e->stats);
    slots_free(e);
    params_free(&e->params);
    device_close(e->dev);
  }
  *e = (Engine){0};
}

static void *host_alloc(void *dev, size_t bytes) { return device_host_alloc(dev, bytes); }
static void host_free(void *dev, void *p) { device_host_free(dev, p); }
HostMemory engine_host_memory(Engine *e) { return (HostMemory){host_alloc, host_free, e->dev}; }
