#include "engine/engine.h"
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/parallel.h"
#include "engine/outputs.h"
#include "nn/sync_nodes.h"

const char *const amp_names[] = {"off", "bf16", "fp16", NULL};
const DType amp_types[] = {F32, BF16, F16};

Shapes shapes_of(const Dataset *d, int images) {
  Shapes s = {.canvases = d->num_canvases,
              .images = images,
              .max_objects = d->max_objects,
              .max_bytes = d->max_bytes,
              .max_words = d->max_words,
              .max_whole = d->max_whole,
              .prefetch = PREFETCH,
              .set_images = d->num_images};
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
  p->profile = xcalloc((size_t)s->canvases, sizeof *p->profile);
  p->timeline = xcalloc((size_t)s->canvases, sizeof *p->timeline);
  p->sync = xcalloc((size_t)s->canvases, sizeof *p->sync);
  p->gradients = xcalloc((size_t)s->canvases, sizeof *p->gradients);
  p->network = xcalloc((size_t)s->canvases, sizeof *p->network); // allocated last: if it is not NULL, all arrays exist
  for (int i = 0; i < s->canvases; i++) {
    network_build(&p->network[i], e->model, &e->config, e->dev, &e->params, collective_group(e->comm), purpose,
                  s->images, s->canvas[i].h, s->canvas[i].w, s->max_objects);
    p->network[i].graph.seed = e->seed;
    p->sync[i] = sync_nodes();
    if (e->dev->waits) graph_observe(&p->network[i].graph, &p->sync[i]);
    e->arena_bytes = MAX(e->arena_bytes, p->network[i].graph.bytes);
  }
}

static int program_graphs(const Program *p) { return p->network ? p->shapes.canvases : 0; }

static size_t ring_bytes(const Program *p, int held, unsigned arrays) {
  const Shapes *s = &p->shapes;
  const BatchSize room = {.images = s->images,
                          .capacity = s->max_objects,
                          .bytes = s->images * s->max_bytes,
                          .words = arrays & BATCH_BIT(BATCH_BITS) ? s->images * s->max_words : 0};
  return s->images && s->prefetch ? loader_ring_bytes(&room, s->prefetch, held) : 0;
}

// Plans the memory of a program's inputs.
static size_t program_plan(Engine *e, Program *p, unsigned arrays) {
  const Shapes *s = &p->shapes;
  const BatchSize room = {.images = s->images,
                          .capacity = s->max_objects,
                          .bytes = s->images * s->max_bytes,
                          .words = s->images * s->max_words};
  for (int i = 0; i < program_graphs(p); i++) reduction_measure(&e->reduction, &p->network[i].graph);
  p->ring.bytes = ring_bytes(p, p == &e->infer ? BATCHES_UNDER_WAY : 1, arrays);
  return inputs_plan(&p->inputs, e->dev, &room, arrays);
}

static size_t scratch_bytes(const Shapes *s) {
  const LoaderOptions o = {.threads = s->threads};
  return s->prefetch ? loader_scratch_bytes(loader_threads(&o), MAX(s->max_bytes, s->max_whole)) : 0;
}

static void program_bind(Engine *e, Program *p, LossScale scale) {
  for (int i = 0; i < program_graphs(p); i++) {
    Network *n = &p->network[i];
    n->graph.loss_scale = scale;
    n->graph.step = e->step;
    graph_bind(&n->graph, e->arena);
    inputs_connect(&p->inputs, n);
  }
}

bool engine_make_room(Engine *e, size_t bytes) {
  Program *p = &e->infer;
  if (bytes <= engine_room(e)) return true;
  device_sync(e->dev);
  if (!e->model->outputs->make_room(e, (int64_t)(bytes / 3) / p->shapes.images)) return false;
  if (!inputs_grow(&p->inputs, e->dev, BATCH_BYTES, bytes)) return false;
  for (int i = 0; i < program_graphs(p); i++) {
    inputs_connect(&p->inputs, &p->network[i]);
    device_forget(e->dev, p->recorded[i]);
    p->recorded[i] = NULL;
  }
  return true;
}

void engine_room_costs(const Engine *e, size_t bytes, size_t *device, size_t *host) {
  const size_t room = engine_room(e);
  *device = bytes > room ? (size_t)(e->dev->gpu ? 2 : 1) * (bytes - room) : 0;
  *host = bytes > room ? e->model->outputs->room_bytes(e, (int64_t)(bytes / 3) / e->infer.shapes.images) : 0;
}

size_t engine_room(const Engine *e) { return e->infer.inputs.array[BATCH_BYTES].room; }

static void program_free(Engine *e, Program *p) {
  for (int i = 0; i < program_graphs(p); i++) {
    gradient_watch_free(&p->gradients[i]);
    profile_free(&p->profile[i], &p->network[i].graph);
    timeline_free(&p->timeline[i], &p->network[i].graph);
    network_free(&p->network[i]);
    device_forget(e->dev, p->recorded[i]);
  }
  inputs_free(&p->inputs, e->dev);
  ring_free(&p->ring, e->dev);
  free(p->network);
  free(p->profile);
  free(p->timeline);
  free(p->sync);
  free(p->gradients);
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
  program_time_nodes(&e->validate, on, trace);
}

void engine_stamp_steps(Engine *e, bool on) {
  Program *p = &e->train;
  device_sync(e->dev);
  e->stamping = on;
  for (int i = 0; i < program_graphs(p); i++) {
    if (on)
      timeline_start(&p->timeline[i], &p->network[i].graph);
    else
      timeline_stop(&p->timeline[i], &p->network[i].graph);
    device_forget(e->dev, p->recorded[i]);
    p->recorded[i] = NULL;
  }
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

static const char *smaller_images(const Engine *e) {
  const bool detects = e->config.detections > USUAL_DETECTIONS,
             samples = e->train.shapes.images > 0 && e->config.roi_batch > USUAL_ROIS;
  return detects && samples ? "--batch, --size, --max-size, --detections or --set roi_batch"
         : detects          ? "--batch, --size, --max-size or --detections"
         : samples          ? "--batch, --size, --max-size or --set roi_batch"
                            : "--batch, --size or --max-size";
}

// Of the arena, what steps that run beside others cost.
static size_t beside_bytes(const Engine *e) {
  size_t bytes = 0;
  for (int i = 0; i < program_graphs(&e->train); i++) {
    const Graph *g = &e->train.network[i].graph;
    if (g->bytes == e->arena_bytes) bytes = g->beside_bytes;
  }
  return bytes;
}

// Lists all memory, in the order in which it is allocated.
static void plan_memory(Engine *e) {
  MemoryPlan *m = &e->memory;
  const bool trains = e->train.shapes.images > 0;
  params_lay_out(&e->params);
  size_t inputs = program_plan(e, &e->train, e->model->inputs | e->model->targets);
  inputs += program_plan(e, &e->infer, e->model->inputs);
  inputs += program_plan(e, &e->validate, e->model->inputs | e->model->targets);
  e->infer.ring.bytes = MAX(e->infer.ring.bytes, e->validate.ring.bytes); // one loader at a time
  e->validate.ring.bytes = 0;
  memory_add(m, "parameters, gradients, momentum", ON_DEVICE, e->params.bytes, "--model");
  if (trains) memory_add(m, "gradients being exchanged", ON_DEVICE, reduction_bytes(&e->reduction), "--model");
  const size_t beside = beside_bytes(e);
  memory_add(m, "activations", ON_DEVICE, e->arena_bytes - beside, smaller_images(e));
  memory_add_beside(m, "activations of nodes that run beside others", beside, smaller_images(e));
  memory_add(m, "workspace", ON_DEVICE, e->dev->workspace_bytes, smaller_images(e));
  memory_add_beside(m, "workspace of nodes that run beside others", e->dev->queue_bytes[QUEUE_BESIDE],
                    smaller_images(e));
  memory_add_beside(m, "workspace of the gradients of parameters", e->dev->queue_bytes[QUEUE_GRADIENTS],
                    smaller_images(e));
  memory_add(m, e->dev->gpu ? "inputs, two batches" : "inputs, one batch", ON_DEVICE, inputs, "--batch");
  memory_add(m, "loader's batches in training", ON_HOST_LOCKED, e->train.ring.bytes, "--batch");
  memory_add(m, "loader's batches in inference", ON_HOST_LOCKED, e->infer.ring.bytes, "--batch");
  memory_add(m, "results of in-flight steps", ON_HOST_LOCKED, slots_bytes(e->dev), NULL);
  if (trains && !e->train.shapes.measured && comm_rank(e->comm) == 0) snapshot_plan(&e->snapshot, &e->params);
  memory_add(m, "checkpoint, copied between steps", ON_DEVICE, e->snapshot.staged_bytes, "--model");
  memory_add(m, "checkpoint, written in the background", ON_HOST_LOCKED, e->snapshot.host_bytes, "--model");
  if (e->infer.shapes.images) e->model->outputs->plan(e);
  memory_add(m, "decoder threads in training", ON_HOST_LATER, scratch_bytes(&e->train.shapes), "--threads");
  memory_add(m, "decoder threads in inference", ON_HOST_LATER, scratch_bytes(&e->infer.shapes), "--threads");
  if (e->infer.shapes.images)
    memory_add(m, "results of evaluation", ON_HOST_LATER,
               e->model->outputs->result_bytes(&e->config, e->infer.shapes.set_images),
               trains ? "--val-limit" : "--limit");
}

static bool allocate_rest(Engine *e, Err *err) {
  const size_t real = dtype_size(e->dev->real), hyper = 5 * real, scale = 3 * real, stats = 2 * real;
  e->hyper = device_alloc(e->dev, hyper);
  e->scale = device_alloc(e->dev, scale);
  e->stats = device_alloc(e->dev, stats);
  e->towards = device_alloc(e->dev, real);
  e->step = device_alloc(e->dev, sizeof(uint64_t));
  return (e->hyper && e->scale && e->stats && e->towards && e->step) ||
         err_memory(err, hyper + scale + stats + real + sizeof(uint64_t), "the state of the update", NULL);
}

static bool allocate_ring(Engine *e, Program *p, const char *what, Err *err) {
  const size_t bytes = p->ring.bytes;
  return ring_allocate(&p->ring, e->dev, bytes) || err_memory(err, bytes, what, "--batch");
}

static bool allocate(Engine *e, Err *err) {
  if (!params_allocate(&e->params, err)) return false;
  if (!(e->arena = device_alloc(e->dev, e->arena_bytes)))
    return err_memory(err, e->arena_bytes, "the activations", smaller_images(e));
  return device_reserve_workspace(e->dev, err) && inputs_allocate(&e->train.inputs, e->dev, err) &&
         inputs_allocate(&e->infer.inputs, e->dev, err) && inputs_allocate(&e->validate.inputs, e->dev, err) &&
         allocate_rest(e, err) && (!e->train.network || reduction_allocate(&e->reduction, err)) &&
         slots_allocate(e->slot, e->dev, e->train.shapes.images, err) &&
         allocate_ring(e, &e->train, "the loader's batches in training", err) &&
         allocate_ring(e, &e->infer, "the loader's batches in inference", err) &&
         snapshot_allocate(&e->snapshot, err) && (!e->infer.shapes.images || e->model->outputs->allocate(e, err));
}

// ---- loss scale -------------------------------------------------------------------------------------------------

void engine_get_scale(Engine *e, double scale[3]) { fetch_reals(e->dev, scale, e->scale, 3); }

void engine_set_scale(Engine *e, const double scale[3]) {
  send_reals(e->dev, device_upload, e->scale, (float[]){(float)scale[0], (float)scale[1], (float)scale[2]}, 3);
  send_reals(e->dev, device_upload, e->hyper, (float[]){0, 0, 0, 0, (float)(1 / scale[0])}, 5);
}

// ---- ranks ------------------------------------------------------------------------------------------------------

void engine_share_state(Engine *e) {
  if (!e->comm) return;
  const Params *p = &e->params;
  const size_t real = dtype_size(e->dev->real);
  double scale[3];
  collective_broadcast(e->comm, e->dev, COMM_WITH_OPS, p->master, p->elements * real);
  collective_broadcast(e->comm, e->dev, COMM_WITH_OPS, p->momentum, p->trainable * real);
  if (p->adam) collective_broadcast(e->comm, e->dev, COMM_WITH_OPS, p->second, params_second_bytes(p));
  if (p->averages) collective_broadcast(e->comm, e->dev, COMM_WITH_OPS, p->average, params_average_bytes(p));
  engine_get_scale(e, scale);
  comm_broadcast_bytes(e->comm, scale, sizeof scale);
  comm_broadcast_bytes(e->comm, &e->batches, sizeof e->batches);
  engine_set_scale(e, scale);
  params_refresh(&e->params);
}

// ---- opening and closing ----------------------------------------------------------------------------------------

// Starts OpenMP's threads, which belong to this thread as long as it lives, as many as can be started: OpenMP ends the
// program if it cannot start one.
static void start_team(void) {
  const int usual = omp_get_max_threads(), startable = parallel_startable(usual);
  int there = 0;
  if (startable != usual) omp_set_num_threads(startable);
  if (startable == 1) return; // OpenMP would start no thread
#pragma omp parallel
#pragma omp atomic
  there++;
}

static bool open_device(Engine *e, const Compute *compute, Err *err) {
  e->dev = (compute->sync_nodes ? device_open_waiting : device_open)(compute->device, err);
  if (!e->dev) return false;
  params_init(&e->params, e->dev, compute->amp ? compute->amp : e->dev->real);
  e->params.adam = compute->optimizer.type != OPTIMIZER_SGD;
  e->params.averages = compute->optimizer.ema > 0;
  if ((compute->amp || compute->tf32) && !e->dev->gpu)
    return err_set(err, "--%s needs a GPU, but this run uses the CPU", compute->amp ? "amp" : "tf32");
  e->dev->tf32 = compute->tf32;
  e->dev->every_value = compute->every_value;
  if (!device_choose_rung(e->dev, compute->conv, err)) return false;
  if (compute->team && !e->dev->gpu) start_team();
  return true;
}

// Opens collectives for training; results of inference are gathered on the host.
static bool open_ranks(Engine *e, const ReductionOptions *ranks, bool trains, Err *err) {
  e->comm = ranks->comm;
  reduction_init(&e->reduction, ranks, e->dev, &e->params);
  return !trains || collective_open(e->comm, e->dev, ranks->ctas, err);
}

bool engine_open(Engine *e, const Compute *compute, const Model *model, const ModelConfig *config,
                 const Category *category, const Shapes *train, const Shapes *infer, bool print_plan, Err *err) {
  *e = (Engine){.model = model,
                .config = *config,
                .seed = compute->seed,
                .optimizer = compute->optimizer,
                .mask_threshold = compute->mask_threshold ? *compute->mask_threshold : MASK_THRESHOLD};
  int images = MAX(train->images, infer->images);
  if (!config_check(config, err) || (model->check && !model->check(config, images, err))) return false;
  if (!open_device(e, compute, err) || !open_ranks(e, &compute->ranks, train->images > 0, err)) return false;
  size_t names = (size_t)model_names(config) * sizeof *category;
  e->category = memcpy(xmalloc(names), category, names);
  program_build(e, &e->train, train, FOR_TRAINING);
  program_build(e, &e->infer, infer, FOR_INFERENCE);
  program_build(e, &e->validate, infer->losses ? infer : &(Shapes){0}, FOR_VALIDATION);
  plan_memory(e);
  e->memory.most_device = compute->most_device;
  e->memory.most_host = compute->most_host;
  e->memory.ranks = e->comm ? comm_launch(e->comm)->local_world : compute->ranks_here;
  if (print_plan) {
    print_plans(&e->train, "training");
    print_plans(&e->infer, "inference");
    print_plans(&e->validate, "validation");
    memory_print(&e->memory, e->dev, stdout);
  }
  if (!memory_fits(&e->memory, e->dev, err)) return false;
  comm_barrier(e->comm); // wait until all ranks have compared their plan with the free memory
  if (print_plan || compute->plan_only) return true;
  if (!allocate(e, err)) return false;
  engine_set_scale(e, (double[]){compute->amp == F16 ? 65536 : 1, 0, 0});
  program_bind(e, &e->train, e->scale);
  program_bind(e, &e->infer, NULL);
  program_bind(e, &e->validate, NULL);
  if (program_graphs(&e->train) == 1) reduction_sum_in_wgrad(&e->reduction, &e->train.network[0].graph);
  for (int i = 0; i < program_graphs(&e->train); i++)
    reduction_watch(&e->reduction, &e->train.gradients[i], &e->train.network[i]);
  return true;
}

void engine_close(Engine *e) {
  free(e->category);
  if (e->dev) {
    program_free(e, &e->train);
    program_free(e, &e->infer);
    program_free(e, &e->validate);
    device_free(e->dev, e->arena);
    device_free(e->dev, e->hyper);
    device_free(e->dev, e->scale);
    device_free(e->dev, e->stats);
    device_free(e->dev, e->towards);
    device_free(e->dev, e->step);
    slots_free(e->slot, e->dev);
    reduction_free(&e->reduction);
    e->model->outputs->close(e);
    snapshot_free(&e->snapshot);
    params_free(&e->params);
    if (e->comm) collective_close(e->comm);
    device_close(e->dev);
  }
  *e = (Engine){0};
}
