#include "nn/params.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/rng.h"
#include "nn/ops.h"
#include "nn/rung.h"
#include "nn/update_parts.h"

void params_init(Params *p, Device *dev, DType shadow_dtype) {
  *p = (Params){.dev = dev, .shadow_dtype = shadow_dtype};
}

void params_free(Params *p) {
  for (int i = 0; i < p->n; i++) {
    free(p->list[i]->name);
    free(p->list[i]);
  }
  for (int i = 0; i < p->num_folds; i++) free(p->folds[i]);
  free(p->list);
  free(p->folds);
  free(p->order);
  device_free(p->dev, p->master);
  device_free(p->dev, p->agreed);
  device_free(p->dev, p->momentum);
  device_free(p->dev, p->second);
  device_free(p->dev, p->average);
  device_free(p->dev, p->rest);
  device_free(p->dev, p->part);
  *p = (Params){0};
}

Param *params_find(const Params *p, const char *name) {
  for (int i = 0; i < p->n; i++)
    if (!strcmp(p->list[i]->name, name)) return p->list[i];
  return NULL;
}

// ---- declaration ------------------------------------------------------------------------------------------------

static Param *declare(Params *p, const char *name, const Param *like) {
  Param *q = params_find(p, name);
  if (q) {
    CHECK(q->role == like->role && q->ndim == like->ndim && !memcmp(q->dims, like->dims, sizeof q->dims));
    q->trainable |= like->trainable && !p->order; // an inference graph may have declared it first
    return q;
  }
  CHECK(!p->order); // laid out already
  q = xmalloc(sizeof *q);
  *q = *like;
  q->name = xstrdup(name);
  q->grad = q->momentum = q->second = q->average = q->shadow = q->folded = q->master;
  p->list = xrealloc(p->list, (size_t)(p->n + 1) * sizeof *p->list);
  return p->list[p->n++] = q;
}

Param *param_filter(Params *p, const char *name, int k, int r, int s, int c, bool connected, bool trainable,
                    Init init) {
  Param q = {.role = PARAM_WEIGHT,
             .filter = true,
             .trainable = trainable,
             .init = init,
             .master = tensor(p->dev->real, k, r, s, c)};
  const int torch[4] = {k, connected ? c * r * s : c, r, s};
  q.ndim = connected ? 2 : 4;
  memcpy(q.dims, torch, (size_t)q.ndim * sizeof *torch);
  return declare(p, name, &q);
}

static Param vector(const Params *p, int n, Init init) {
  return (Param){.ndim = 1, .dims = {n}, .init = init, .master = tensor(p->dev->real, 1, 1, 1, n)};
}

Param *param_vector(Params *p, const char *name, ParamRole role, int n, bool trainable, Init init, float fan_in) {
  Param q = vector(p, n, init);
  q.role = role;
  q.trainable = trainable;
  q.fan_in = fan_in;
  return declare(p, name, &q);
}

Param *param_buffer(Params *p, const char *name, int n, Init init) {
  Param q = vector(p, n, init);
  q.buffer = true;
  return declare(p, name, &q);
}

void param_moves(Params *p, Param *buffer) {
  CHECK(buffer->buffer && (buffer->moves || !p->order));
  buffer->moves = true;
}

NormFold *param_fold(Params *p, Param *filter, Param *gamma, Param *beta, Param *mean, Param *var, float eps) {
  if (filter->fold) return filter->fold;
  NormFold *f = xcalloc(1, sizeof *f);
  *f = (NormFold){.gamma = gamma, .beta = beta, .mean = mean, .var = var, .eps = eps};
  p->folds = xrealloc(p->folds, (size_t)(p->num_folds + 1) * sizeof *p->folds);
  return p->folds[p->num_folds++] = filter->fold = f;
}

void param_pack(Params *p, Param *filter, const Conv *conv) {
  filter->packs = rungs_pack(p->dev->conv_rungs, p->dev->conv_rung);
  filter->conv = *conv;
}

void param_join(Params *p, Param *first, Param *second) {
  const Tensor *a = &first->master, *b = &second->master;
  if (first->behind == second) return;
  CHECK(!p->order && !first->behind && !first->before && !second->behind && !second->before);
  CHECK(first->dims[0] % 4 == 0); // the second's biases stand on a boundary of 16 bytes
  CHECK(first->filter == second->filter && first->trainable == second->trainable);
  CHECK(!first->filter || (a->h == b->h && a->w == b->w && a->c == b->c));
  first->behind = second;
  second->before = first;
}

// ---- layout -----------------------------------------------------------------------------------------------------

// Keeps every parameter 128-byte aligned in 16 bits too.
static size_t span(size_t elements) { return (elements + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN; }

// From its first element to that of what stands behind it.
static size_t stride_of(const Param *q) {
  const size_t before = q->before ? param_extent(q->before) : 0;
  return q->behind ? param_extent(q) : span(before + param_extent(q)) - before;
}

// The shadow is the master itself when nothing separates them.
static bool own_shadow(const Params *p, const Param *q) {
  return q->filter && q->plain && p->shadow_dtype != p->dev->real;
}

static size_t shadow_bytes(const Params *p, const Param *q) { return stride_of(q) * dtype_size(p->shadow_dtype); }

static size_t packed_bytes(const Params *p, const Param *q) {
  const size_t bytes = p->dev->ops->filter_packed_bytes(p->dev, &q->conv, &q->master);
  return span(bytes);
}

static void *take(char **at, size_t bytes) {
  void *r = *at;
  *at += bytes;
  return r;
}

// Puts the joined ones behind those that they belong to.
static void place_joined(const Params *p, int *order) {
  int *placed = xmalloc((size_t)p->n * sizeof *placed), n = 0;
  for (int i = 0; i < p->n; i++) {
    const Param *q = p->list[order[i]];
    if (q->before) continue;
    placed[n++] = order[i];
    for (int j = 0; q->behind && j < p->n; j++)
      if (p->list[j] == q->behind) placed[n++] = j;
  }
  CHECK(n == p->n);
  memcpy(order, placed, (size_t)n * sizeof *placed);
  free(placed);
}

// Stable insertion by the step that completes the gradient; behind them the buffers that move, so that an average over
// ranks takes contiguous memory, too; then what stays as it is. Returns how many are trained.
static int sort_by_use(const Params *p, int *order) {
  int n = 0;
  for (int i = 0; i < p->n; i++)
    if (p->list[i]->trainable) {
      int at = n++;
      for (; at > 0 && p->list[order[at - 1]]->last_use > p->list[i]->last_use; at--) order[at] = order[at - 1];
      order[at] = i;
    }
  int trained = n;
  for (int moves = 1; moves >= 0; moves--)
    for (int i = 0; i < p->n; i++)
      if (!p->list[i]->trainable && p->list[i]->moves == moves) order[n++] = i;
  place_joined(p, order);
  return trained;
}

// Assigns every parameter its offsets in the flat buffers.
static void assign_buffers(Params *p, char *master, char *grad, char *momentum, char *second, char *average, char *at) {
  const size_t real = dtype_size(p->dev->real);
  for (int i = 0; i < p->n; i++) {
    Param *q = p->list[p->order[i]];
    size_t bytes = stride_of(q) * real;
    q->master.data = take(&master, bytes);
    q->grad.data = q->trainable ? take(&grad, bytes) : NULL;
    q->momentum.data = q->trainable ? take(&momentum, bytes) : NULL;
    q->second.data = q->trainable && p->adam ? take(&second, bytes) : NULL;
    q->average.data = q->trainable && p->averages ? take(&average, bytes) : NULL;
    q->shadow.data = own_shadow(p, q) ? take(&at, shadow_bytes(p, q)) : q->master.data;
    q->folded.data = q->fold ? take(&at, shadow_bytes(p, q)) : q->master.data;
    q->packed.data = q->packs ? take(&at, packed_bytes(p, q)) : NULL;
    if (q->fold) {
      q->fold->scale = take(&at, span((size_t)q->master.n) * real);
      q->fold->shift = take(&at, span((size_t)q->master.n) * real);
    }
  }
}

int grad_parts(const Params *p) { return (int)((p->trainable + GRAD_PART - 1) / GRAD_PART); }

size_t params_second_bytes(const Params *p) {
  return p->adam ? (p->trainable + PARAM_ALIGN) * dtype_size(p->dev->real) : 0;
}

size_t params_average_bytes(const Params *p) { return p->averages ? p->trainable * dtype_size(p->dev->real) : 0; }

void params_lay_out(Params *p) {
  const size_t real = dtype_size(p->dev->real);
  p->order = xmalloc((size_t)p->n * sizeof *p->order);
  const int trained = sort_by_use(p, p->order);
  for (int i = 0; i < p->n; i++) {
    Param *q = p->list[p->order[i]];
    p->elements += stride_of(q);
    if (i + 1 == trained) p->trainable = p->elements;
    if (q->moves) p->moving += stride_of(q);
    if (own_shadow(p, q)) p->rest_bytes += shadow_bytes(p, q);
    if (q->fold) p->rest_bytes += shadow_bytes(p, q) + 2 * span((size_t)q->master.n) * real;
    if (q->packs) p->rest_bytes += packed_bytes(p, q);
    q->shadow = q->folded = q->packed = q->master;
    q->packed.dtype = PACKED;
    q->folded.dtype = p->shadow_dtype;
    if (own_shadow(p, q)) q->shadow.dtype = p->shadow_dtype;
  }
  p->bytes = p->elements * real + (PARAM_ALIGN + 2 * p->trainable) * real + p->rest_bytes;
  p->bytes += params_second_bytes(p) + params_average_bytes(p);
  char *const nowhere = (char *)(uintptr_t)4096;
  assign_buffers(p, nowhere, nowhere, nowhere, nowhere, nowhere, nowhere);
  p->parts = update_parts(p, NULL);
  p->bytes += (size_t)p->parts * sizeof *p->part;
}

static void upload_parts(Params *p) {
  const size_t bytes = (size_t)p->parts * sizeof *p->part;
  UpdatePart *part = xmalloc(bytes);
  update_parts(p, part);
  device_upload(p->dev, p->part, part, bytes);
  free(part);
}

bool params_allocate(Params *p, Err *err) {
  const size_t real = dtype_size(p->dev->real);
  if (!p->order) params_lay_out(p);
  p->master = device_alloc(p->dev, p->elements * real);
  p->agreed = device_alloc(p->dev, (PARAM_ALIGN + p->trainable) * real);
  p->momentum = device_alloc(p->dev, p->trainable * real);
  if (p->adam) p->second = device_alloc(p->dev, params_second_bytes(p));
  if (p->averages) p->average = device_alloc(p->dev, params_average_bytes(p));
  p->rest = device_alloc(p->dev, p->rest_bytes);
  p->part = device_alloc(p->dev, (size_t)p->parts * sizeof *p->part);
  if (!p->master || !p->agreed || !p->momentum || (p->adam && !p->second) || (p->averages && !p->average) || !p->rest ||
      !p->part)
    return err_memory(err, p->bytes, "the parameters", "--model");
  p->grad = (char *)p->agreed + PARAM_ALIGN * real;
  if (p->adam) p->adam_state = (char *)p->second + p->trainable * real;
  assign_buffers(p, p->master, p->grad, p->momentum, p->second, p->average, p->rest);
  upload_parts(p);
  return true;
}

static void refresh_shadows(Params *p) {
  for (int i = 0; i < p->n; i++) {
    const Param *q = p->list[i];
    if (own_shadow(p, q)) p->dev->ops->filter_shadow(p->dev, &q->master, NULL, &q->shadow);
    if (q->fold) p->dev->ops->filter_shadow(p->dev, &q->master, q->fold->scale, &q->folded);
    if (q->packs) p->dev->ops->filter_pack(p->dev, &q->conv, q->fold ? &q->folded : &q->shadow, q->packed.data);
  }
}

void params_refresh(Params *p) {
  for (int i = 0; i < p->n; i++) {
    const NormFold *f = p->list[i]->fold;
    if (f)
      p->dev->ops->norm_fold(p->dev, f->gamma->dims[0], f->eps, f->gamma->master.data, f->beta->master.data,
                             f->mean->master.data, f->var->master.data, f->scale, f->shift);
  }
  refresh_shadows(p);
}

void params_begin_averages(Params *p) {
  if (p->averages) device_copy(p->dev, p->average, p->master, params_average_bytes(p));
}

// By way of the gradients, which are as large and needed within a step only.
void params_exchange_averages(Params *p) {
  const size_t bytes = params_average_bytes(p);
  if (!bytes) return;
  device_copy(p->dev, p->grad, p->master, bytes);
  device_copy(p->dev, p->master, p->average, bytes);
  device_copy(p->dev, p->average, p->grad, bytes);
  device_zero(p->dev, p->grad, bytes); // elements without a gradient stay zero
  params_refresh(p);
}

// ---- values -----------------------------------------------------------------------------------------------------

size_t param_elements(const Param *q) {
  size_t n = 1;
  for (int i = 0; i < q->ndim; i++) n *= (size_t)q->dims[i];
  return n;
}

// A parameter as filters, of as many values each.
typedef struct Filters {
  size_t count, values, pitch; // pitch: of a filter in ours
  size_t *offset;              // of the values of torch's [c, r, s] within ours [r, s, ldc]
} Filters;

static Filters filters_of(const Param *q, const Tensor *t) {
  const size_t area = (size_t)t->h * (size_t)t->w, values = (size_t)t->c * area;
  Filters f = {.count = param_elements(q) / values,
               .values = values,
               .pitch = area * (size_t)t->ldc,
               .offset = xmalloc(values * sizeof *f.offset)};
  for (size_t c = 0; c < (size_t)t->c; c++)
    for (size_t i = 0; i < area; i++) f.offset[c * area + i] = i * (size_t)t->ldc + c;
  return f;
}

void param_to_torch(const Param *q, const Tensor *host, float *torch_order) {
  Filters f = filters_of(q, host);
  for (size_t k = 0; k < f.count; k++)
    for (size_t i = 0; i < f.values; i++) {
      const size_t at = k * f.pitch + f.offset[i];
      *torch_order++ = host->dtype == F64 ? (float)((double *)host->data)[at] : ((float *)host->data)[at];
    }
  free(f.offset);
}

void param_export(const Params *p, const Param *q, const Tensor *what, float *torch_order) {
  Tensor host = *what;
  host.data = xmalloc(tensor_bytes(what));
  device_download(p->dev, host.data, what->data, tensor_bytes(what));
  param_to_torch(q, &host, torch_order);
  free(host.data);
}

void param_import(Params *p, Param *q, const Tensor *what, const float *torch_order) {
  void *host = xcalloc(1, tensor_bytes(what)); // the padding channels are zero and stay zero
  Filters f = filters_of(q, what);
  for (size_t k = 0; k < f.count; k++)
    for (size_t i = 0; i < f.values; i++) {
      const size_t at = k * f.pitch + f.offset[i];
      if (what->dtype == F64)
        ((double *)host)[at] = *torch_order++;
      else
        ((float *)host)[at] = *torch_order++;
    }
  free(f.offset);
  device_upload(p->dev, what->data, host, param_extent(q) * dtype_size(what->dtype));
  free(host);
}

static double uniform(uint64_t key, uint64_t i) { return ((double)rng_u32(key, i) + 0.5) * 0x1p-32; }

// Box and Muller, "A note on the generation of random normal deviates", 1958.
static double normal(uint64_t key, uint64_t i) {
  return sqrt(-2 * log(uniform(key, 2 * i))) * cos(6.283185307179586 * uniform(key, 2 * i + 1));
}

static float draw(const Param *q, uint64_t key, uint64_t i) {
  double area = q->ndim == 4 ? (double)q->dims[2] * q->dims[3] : 1;
  double fan_in = q->ndim > 1 ? q->dims[1] * area : q->fan_in, fan_out = q->dims[0] * area;
  switch (q->init) {
  case INIT_ZERO: return 0;
  case INIT_ONE: return 1;
  case INIT_NORMAL_001: return (float)(0.01 * normal(key, i));
  case INIT_KAIMING_NORMAL: return (float)(sqrt(2 / fan_out) * normal(key, i));
  case INIT_KAIMING_FAN_IN: return (float)(sqrt(2 / fan_in) * normal(key, i));
  case INIT_KAIMING_UNIFORM: return (float)(sqrt(3 / fan_in) * (2 * uniform(key, i) - 1));
  case INIT_LINEAR: return (float)(sqrt(1 / fan_in) * (2 * uniform(key, i) - 1));
  }
  CHECK(!"unknown init");
  return 0;
}

// An element depends only on its parameter's name and its index, so threads can divide the work.
static void draw_values(const Param *q, uint64_t key, size_t n, float *values) {
#pragma omp parallel for schedule(static)
  for (size_t j = 0; j < n; j++) values[j] = draw(q, key, j);
}

void params_randomise(Params *p, uint64_t seed) {
  for (int i = 0; i < p->n; i++) {
    Param *q = p->list[i];
    uint64_t key = rng_key(rng_key(seed, RNG_INIT), 0);
    for (const char *s = q->name; *s; s++) key = rng_key(key, (uint64_t)*s);
    size_t n = param_elements(q);
    float *values = xmalloc(n * sizeof *values);
    draw_values(q, key, n, values);
    param_import(p, q, &q->master, values);
    free(values);
  }
  params_begin_averages(p);
  params_refresh(p);
}
