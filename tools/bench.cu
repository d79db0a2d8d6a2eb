// bench conv: every convolution of the network through the rungs of the ladder and through cuDNN, one JSON object for
// each (layer, op, rung).
//
// Before it is timed, a rung's result is checked against the naive rung's. Then the rungs take turns, cuDNN among them,
// so that all see the same clocks; before each run a write larger than the L2 cache sweeps it. The figures are medians.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "cuda/common.cuh"
#include "cuda/conv/ladder.h"
#include "tools/conv_layers.h"
extern "C" {
#include "nn/cli.h"
#include "nn/latency.h"
#include "nn/record.h"
#include "nn/rng.h"
extern const char build_commit[]; // written by the Makefile
}

enum { MAX_RUNGS = 8, MAX_ROUNDS = 101, WARMUP = 2, THREADS = 256 };
static const size_t flush_bytes = (size_t)256 << 20;
static const double slow_us = 20e3; // one that takes longer runs three times only

typedef enum Precision { BENCH_BF16, BENCH_FP16, BENCH_TF32, BENCH_FP32 } Precision;
static const char *const precision_names[] = {"bf16", "fp16", "tf32", "fp32", NULL};
static const DType precision_dtypes[] = {BF16, F16, F32, F32};
static const char *const op_names[] = {"fwd", "dgrad", "wgrad"};

typedef struct Bench {
  int batch, rounds, precision;
  const char *rung_names, *layer, *out;
  const char *rungs[MAX_RUNGS];
  int num_rungs;
  Device *dev;
  FILE *file;
  void *flush;
  cudaEvent_t begin, end;
} Bench;

// One layer's tensors. An op writes to `to`; want and bound have its shape.
typedef struct Case {
  const ConvCase *layer;
  Conv conv;
  Tensor x, w, y, dw;
} Case;

// ---- data -----------------------------------------------------------------------------------------------------------

// Uniform in [-1, 1), or its absolute value; padding lanes zero.
template <class T> __global__ void fill_kernel(Tensor t, uint64_t key, bool magnitude, size_t elements) {
  size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= elements) return;
  float v = 2 * rng_uniform(key, i) - 1;
  ((T *)t.data)[i] = from_float<T>((int)(i % t.ldc) >= t.c ? 0.f : magnitude ? fabsf(v) : v);
}

// How many elements of got lie further from want than the operands' type explains, NaN among them.
template <class T>
__global__ void compare_kernel(const T *got, const T *want, const T *bound, float eps, float share, size_t elements,
                               unsigned long long *wrong) {
  size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= elements) return;
  float error = fabsf(to_float(got[i]) - to_float(want[i]));
  if (!(error <= eps * fabsf(to_float(want[i])) + share * to_float(bound[i]))) atomicAdd(wrong, 1);
}

static void fill(Bench *b, const Tensor *t, uint64_t key, bool magnitude) {
  size_t n = tensor_elements(t);
  WITH_TYPE(t->dtype, T, {
    fill_kernel<T><<<blocks_for(n, THREADS), THREADS, 0, stream_of(b->dev)>>>(*t, rng_key(RNG_TEST, key), magnitude, n);
  });
  LAUNCH_CHECK();
}

static void *allocate(Bench *b, size_t bytes) {
  void *p = device_alloc(b->dev, bytes);
  if (!p) die(EXIT_RUN, "out of memory on the GPU: use a smaller --batch");
  return p;
}
static Tensor allocated(Bench *b, Tensor t) {
  t.data = allocate(b, tensor_bytes(&t));
  return t;
}

static Case case_new(Bench *b, const ConvCase *l) {
  DType t = precision_dtypes[b->precision];
  int n = b->batch * l->per_image, h = (l->h + 2 * l->pad - l->k) / l->stride + 1,
      w = (l->w + 2 * l->pad - l->k) / l->stride + 1;
  Case c = {l, {l->stride, l->pad}};
  c.x = allocated(b, tensor(t, n, l->h, l->w, l->cin));
  c.w = allocated(b, tensor(t, l->cout, l->k, l->k, l->cin));
  c.y = allocated(b, tensor(t, n, h, w, l->cout));
  c.dw = allocated(b, tensor(F32, l->cout, l->k, l->k, l->cin));
  return c;
}
static void case_free(Bench *b, Case *c) {
  void *all[] = {c->x.data, c->w.data, c->y.data, c->dw.data};
  for (void *p : all) device_free(b->dev, p);
}

static Tensor *result_of(Case *c, ConvOp op) { return op == CONV_FORWARD ? &c->y : op == CONV_DGRAD ? &c->x : &c->dw; }
static const Tensor *operand_of(const Case *c, ConvOp op) { return op == CONV_DGRAD ? &c->y : &c->x; }

static void fill_operands(Bench *b, Case *c, ConvOp op, bool magnitude) {
  Tensor *all[] = {&c->x, &c->w, &c->y};
  for (int i = 0; i < COUNT(all); i++)
    if (all[i] != result_of(c, op)) fill(b, all[i], i, magnitude);
}

// ---- running --------------------------------------------------------------------------------------------------------

static void run(Bench *b, Case *c, ConvOp op, const char *rung) {
  Device *dev = b->dev;
  dev->conv = rung;
  Dest y = {c->y}, dx = {c->x};
  FilterGrad dw = {c->dw};
  if (op == CONV_FORWARD) dev->ops->conv_forward(dev, &c->conv, 1, &c->x, &c->w, &y);
  if (op == CONV_DGRAD) dev->ops->conv_dgrad(dev, &c->conv, 1, &c->y, &c->w, &dx);
  if (op == CONV_WGRAD) dev->ops->conv_wgrad(dev, &c->conv, 1, &c->x, &c->y, &dw);
}

// The terms of one element of the result, at most.
static double terms_of(const Case *c, ConvOp op) {
  const ConvCase *l = c->layer;
  double taps = (double)l->k * l->k;
  return op == CONV_FORWARD ? taps * l->cin : op == CONV_DGRAD ? taps * l->cout : (double)tensor_pixels(&c->y);
}

// The result in memory of its own, from operands or from their magnitudes.
static void *naive_result(Bench *b, Case *c, ConvOp op, bool magnitude) {
  Tensor *result = result_of(c, op);
  void *own = result->data, *copy = allocate(b, tensor_bytes(result));
  fill_operands(b, c, op, magnitude);
  result->data = copy;
  run(b, c, op, "naive");
  result->data = own;
  return copy;
}

// An error of K roundings that are as often up as down grows with √K: 8·√K·u·Σ|term| is exceeded with probability
// e^-32 (Higham, Mary, "A new approach to probabilistic rounding error analysis", 2019, theorem 2.4). u = 2^-23 is for
// tensor cores, which truncate. TF32 rounds each term by 2^-10 of itself, and these errors, too, are independent.
static unsigned long long count_wrong(Bench *b, Case *c, ConvOp op, const void *want, const void *bound) {
  const Tensor *t = result_of(c, op);
  DType operands = precision_dtypes[b->precision];
  double eps = operands == F32 ? 0x1p-23 : operands == BF16 ? 0x1p-7 : 0x1p-10; // both round their result
  double root = sqrt(terms_of(c, op)), share = 8 * (root * 0x1p-23 + (b->dev->tf32 ? 0x1p-10 / root : 0));
  unsigned long long *wrong = (unsigned long long *)allocate(b, sizeof *wrong), host;
  size_t n = tensor_elements(t);
  WITH_TYPE(t->dtype, T, {
    compare_kernel<<<blocks_for(n, THREADS), THREADS, 0, stream_of(b->dev)>>>(
        (const T *)t->data, (const T *)want, (const T *)bound, (float)eps, (float)share, n, wrong);
  });
  LAUNCH_CHECK();
  device_download(b->dev, &host, wrong, sizeof host);
  device_free(b->dev, wrong);
  return host;
}

// All rungs that are to be timed; false, with a line, when one is wrong.
static bool verify(Bench *b, Case *c, ConvOp op, const char *const *rungs, int num_rungs) {
  void *bound = naive_result(b, c, op, true), *want = naive_result(b, c, op, false);
  bool ok = true;
  for (int i = 0; i < num_rungs; i++) {
    Tensor *t = result_of(c, op);
    CUDA_CHECK(cudaMemsetAsync(t->data, 0xFF, tensor_bytes(t), stream_of(b->dev))); // NaN: what is not written shows
    run(b, c, op, rungs[i]);
    unsigned long long wrong = count_wrong(b, c, op, want, bound);
    if (wrong)
      fprintf(stderr, "bench: %s %s of %s: %llu of %zu elements differ from the naive rung\n", rungs[i], op_names[op],
              c->layer->name, wrong, tensor_elements(t));
    ok &= !wrong;
  }
  device_free(b->dev, bound);
  device_free(b->dev, want);
  return ok;
}

static double time_once(Bench *b, Case *c, ConvOp op, const char *rung) {
  cudaStream_t stream = stream_of(b->dev);
  CUDA_CHECK(cudaMemsetAsync(b->flush, 0, flush_bytes, stream)); // hides the launches, too
  CUDA_CHECK(cudaEventRecord(b->begin, stream));
  run(b, c, op, rung);
  CUDA_CHECK(cudaEventRecord(b->end, stream));
  CUDA_CHECK(cudaEventSynchronize(b->end));
  float ms;
  CUDA_CHECK(cudaEventElapsedTime(&ms, b->begin, b->end));
  return 1e3 * ms;
}

static void print_record(Bench *b, const Case *c, ConvOp op, const char *rung, Latency us, double cudnn_us) {
  const ConvCase *l = c->layer;
  double flop = 2.0 * tensor_pixels(&c->y) * l->cout * l->k * l->k * l->cin;
  printf("%-16s %-6s %-7s %10.1f us %7.1f TFLOP/s", l->name, op_names[op], rung, us.median, flop / us.median / 1e6);
  printf(isnan(cudnn_us) ? "\n" : "  %.2f of cuDNN's speed\n", cudnn_us / us.median);
  fflush(stdout);
  if (!b->file) return;
  Record j = {};
  record_begin(&j);
  record_str(&j, "bench", "conv");
  record_str(&j, "gpu", b->dev->description);
  record_str(&j, "commit", build_commit);
  record_str(&j, "rung", rung);
  record_str(&j, "op", op_names[op]);
  record_str(&j, "layer", l->name);
  record_int(&j, "n", c->x.n);
  record_int(&j, "h", l->h);
  record_int(&j, "w", l->w);
  record_int(&j, "cin", l->cin);
  record_int(&j, "cout", l->cout);
  record_int(&j, "k", l->k);
  record_int(&j, "stride", l->stride);
  record_int(&j, "count", op == CONV_FORWARD ? l->count : l->count - l->frozen);
  record_str(&j, "dtype", precision_names[b->precision]);
  record_int(&j, "runs", us.n);
  record_num(&j, "us", us.median);
  record_num(&j, "us_min", us.min);
  record_num(&j, "us_max", us.max);
  record_num(&j, "tflops", flop / us.median / 1e6);
  record_num(&j, "cudnn_us", cudnn_us);
  fprintf(b->file, "%s\n", record_end(&j));
  fflush(b->file);
  record_free(&j);
}

// Asks every rung for its scratch, the naive one included.
static void reserve(Bench *b, Case *c, ConvOp op, const char *const *rungs, int num_rungs) {
  b->dev->scratch_bytes = 0;
  b->dev->measuring = true;
  for (int i = 0; i < num_rungs; i++) run(b, c, op, rungs[i]);
  b->dev->measuring = false;
  Err err;
  if (!device_reserve_scratch(b->dev, &err)) die(EXIT_RUN, "%s", err.msg);
}

static bool bench_op(Bench *b, Case *c, ConvOp op) {
  const char *rungs[MAX_RUNGS];
  int num_rungs = 0;
  for (int i = 0; i < b->num_rungs; i++)
    if (conv_rung(b->rungs[i])->supports(b->dev, op, &c->conv, operand_of(c, op), op == CONV_WGRAD ? &c->dw : &c->w))
      rungs[num_rungs++] = b->rungs[i];
  reserve(b, c, op, rungs, num_rungs);
  if (!verify(b, c, op, rungs, num_rungs)) return false;
  static double us[MAX_RUNGS][MAX_ROUNDS];
  int runs[MAX_RUNGS] = {};
  for (int round = -WARMUP; round < b->rounds; round++)
    for (int i = 0; i < num_rungs; i++) {
      if (runs[i] >= 3 && us[i][0] > slow_us) continue;
      double t = time_once(b, c, op, rungs[i]);
      if (round >= 0) us[i][runs[i]++] = t;
    }
  Latency latency[MAX_RUNGS];
  double cudnn_us = NAN;
  for (int i = 0; i < num_rungs; i++) {
    latency[i] = latency_summary(us[i], runs[i]);
    if (!strcmp(rungs[i], "cudnn")) cudnn_us = latency[i].median;
  }
  for (int i = 0; i < num_rungs; i++) print_record(b, c, op, rungs[i], latency[i], cudnn_us);
  return true;
}

// ---- the command line -----------------------------------------------------------------------------------------------

static void parse(Bench *b, int argc, char **argv) {
  Option table[] = {
      {.name = "batch", .kind = OPT_INT, .target = &b->batch, .arg = "N", .help = "images", .min = 1, .max = 64},
      {.name = "rungs",
       .kind = OPT_STRING,
       .target = &b->rung_names,
       .arg = "A,B",
       .help = "naive, im2col, wmma, wgmma, cudnn"},
      {.name = "dtype", .kind = OPT_CHOICE, .target = &b->precision, .help = "operands", .choices = precision_names},
      {.name = "layer",
       .kind = OPT_STRING,
       .target = &b->layer,
       .arg = "TEXT",
       .help = "only layers with this in their name"},
      {.name = "rounds",
       .kind = OPT_INT,
       .target = &b->rounds,
       .arg = "N",
       .help = "runs of each",
       .min = 3,
       .max = MAX_ROUNDS},
      {.name = "out", .kind = OPT_STRING, .target = &b->out, .arg = "FILE", .help = "append the records to this"},
  };
  Cli cli = {.usage = "conv [options]",
             .about = "Times the convolutions of Mask R-CNN R50-FPN on the GPU, forward, dgrad and wgrad.",
             .options = table,
             .num_options = COUNT(table),
             .positional = "conv"};
  cli_parse_or_exit(&cli, argc, argv);
  if (cli.num_args != 1 || strcmp(cli.args[0], "conv")) die(EXIT_USAGE, "what to bench: conv");
  static char names[256];
  snprintf(names, sizeof names, "%s", b->rung_names);
  for (char *name = strtok(names, ","); name; name = strtok(NULL, ",")) {
    if (!conv_rung(name)) die(EXIT_USAGE, "--rungs %s: choose from naive, im2col, wmma, wgmma and cudnn", name);
    if (b->num_rungs == MAX_RUNGS) die(EXIT_USAGE, "--rungs: at most %d", MAX_RUNGS);
    b->rungs[b->num_rungs++] = conv_rung(name)->name;
  }
}

int main(int argc, char **argv) {
  Bench b = {.batch = 4, .rounds = 9, .rung_names = "im2col,wmma,cudnn"};
  parse(&b, argc, argv);
  Err err;
  if (!(b.dev = device_open("cuda", &err))) die(EXIT_USAGE, "%s", err.msg);
  b.dev->tf32 = b.precision == BENCH_TF32;
  if (b.out && !(b.file = fopen(b.out, "a"))) die(EXIT_USAGE, "--out %s: cannot be written", b.out);
  b.flush = allocate(&b, flush_bytes);
  CUDA_CHECK(cudaEventCreate(&b.begin));
  CUDA_CHECK(cudaEventCreate(&b.end));
  bool ok = true;
  for (const ConvCase &layer : conv_cases) {
    if (b.layer && !strstr(layer.name, b.layer)) continue;
    Case c = case_new(&b, &layer);
    for (int op = 0; op < CONV_OPS; op++)
      if (op == CONV_FORWARD || layer.frozen < layer.count) ok &= bench_op(&b, &c, (ConvOp)op);
    case_free(&b, &c);
  }
  device_close(b.dev);
  return ok ? 0 : EXIT_RUN;
}
