// soak: runs convolutions on one rung for as long as requested, in random order and as fast as possible: all layers of
// the network, forward and backward, and random problems. Every result is read back: a bit that differs from the first
// run, or was not written at all, is a mistake. The first run's result is compared with the naive rung's.
//
// Operands are kept; all problems write to the same memory, which is filled with NaN after each result is read.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "base/clock.h"
#include "base/output.h"
#include "cuda/conv/ladder.h"
#include "lab/bench_case.cuh"
extern "C" {
#include "base/cli.h"
#include "base/machine.h"
#include "base/record.h"
}

enum {
  DRAWN = 200,             // problems
  MAX_JOBS = 1024,         // ops of problems
  TAIL_WAVES = 2,          // problems whose last wave of tiles is a partial one
  IN_FLIGHT = 64,          // runs that are queued before they are waited for
  MOST_ELEMENTS = 1 << 22, // of a tensor of a drawn problem
  REPORT_SECONDS = 10,
};

typedef struct SoakJob {
  BenchCase *problem;
  ConvOp op;
  int cut;   // images in the first of two pyramid levels stored as a pair; 0: all are one tensor
  bool told; // whether a mistake was reported
} SoakJob;

// One entry per job, on the device.
typedef struct Ledger {
  unsigned long long bits[MAX_JOBS]; // hash of the first result
  int mistakes[MAX_JOBS];
  unsigned long long sum; // hash of the result that is being read
  int all;                // number of mistakes
} Ledger;

// clang-format off
#define SOAK_OPTIONS(X)                                                                                                \
  X(INT, seconds, 600, 1, 1000000, "SECONDS", "how long to run")                                                       \
  X(STRING, rung, NULL, "NAME", "convolution kernels", .usual = "the fastest for each problem")                        \
  X(CHOICE, dtype, 0, precision_names, "type of the operands")                                                         \
  X(INT, batch, 4, 1, 64, "N", "images per batch")                                                                     \
  X(INT, rois, 512, MASKS_OF, 4096, "N", "RoIs sampled in an image, a quarter of them objects")                        \
  X(INT64, seed, 1, 0, 0, "N", "seed of the problems and their order")                                                 \
  X(STRING, out, NULL, "FILE", "append a record to this file")
// clang-format on

typedef struct Soak {
  OPTION_FIELDS(SOAK_OPTIONS)
  const Rung *chosen; // of --rung; NULL: the fastest of each problem
  FILE *file;         // of out
  Device *dev;
  BenchCase problems[DRAWN + COUNT(conv_cases) + TAIL_WAVES];
  ConvCase drawn[DRAWN];
  SoakJob jobs[MAX_JOBS];
  int num_problems, num_jobs;
  void *result; // of any job
  size_t result_bytes;
  Ledger *ledger;
  long runs;
  int mistakes;
} Soak;

// ---- kernels ---- ---------------------------------------------------------------------------------------------------

// Adds up a hash of every word and its index, in any order, and leaves NaN.
__global__ void read_kernel(uint4 *result, size_t vectors, Ledger *ledger) {
  unsigned long long sum = 0;
  for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += (size_t)gridDim.x * blockDim.x) {
    uint4 v = result[i];
    sum += rng_mix(rng_mix((uint64_t)v.x << 32 | v.y) ^ i) + rng_mix(rng_mix((uint64_t)v.z << 32 | v.w) ^ ~i);
    result[i] = make_uint4(~0u, ~0u, ~0u, ~0u);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) atomicAdd(&ledger->sum, sum);
}
__global__ void enter_kernel(Ledger *ledger, int job, bool first) {
  if (first) {
    ledger->bits[job] = ledger->sum;
  } else if (ledger->bits[job] != ledger->sum) {
    ledger->mistakes[job]++;
    ledger->all++;
  }
  ledger->sum = 0;
}

// ---- running --------------------------------------------------------------------------------------------------------

// The job's problem with another result tensor.
static BenchCase aimed(const SoakJob *job, void *to) {
  BenchCase c = *job->problem;
  result_of(&c, job->op, false)->data = to;
  return c;
}

// Images first … end of t.
static Tensor images(Tensor t, int first, int end) {
  if (t.data) t.data = (char *)t.data + (size_t)first * t.h * t.w * t.ldc * dtype_size(t.dtype);
  t.n = end - first;
  return t;
}

static void run(Soak *s, const Rung *rung, const SoakJob *job, void *to) {
  Device *dev = s->dev;
  BenchCase c = aimed(job, to), part[2] = {c, c};
  int pairs = job->cut ? 2 : 1;
  Tensor x[2], y[2];
  Dest out[2];
  for (int i = 0; i < pairs; i++) {
    int first = i ? job->cut : 0, end = i + 1 < pairs ? job->cut : c.x.n;
    x[i] = part[i].x = images(c.x, first, end);
    y[i] = part[i].y = images(c.y, first, end);
    part[i].addend = images(c.addend, first, end);
    out[i] = dest_of(&part[i], job->op);
  }
  FilterGrad dw = {c.dw};
  dev->conv_rung = rung;
  if (job->op == CONV_FORWARD) dev->ops->conv_forward(dev, &c.conv, pairs, x, &c.w, out);
  if (job->op == CONV_DGRAD) dev->ops->conv_dgrad(dev, &c.conv, pairs, y, &c.w, out);
  if (job->op == CONV_WGRAD) dev->ops->conv_wgrad(dev, &c.conv, pairs, x, y, &dw);
}

// Records the hash of the job's result, and leaves NaN.
static void read_result(Soak *s, int index, bool first) {
  const SoakJob *job = &s->jobs[index];
  size_t bytes = tensor_bytes(result_of(job->problem, job->op, false));
  cudaStream_t stream = stream_of(s->dev);
  read_kernel<<<1056, 256, 0, stream>>>((uint4 *)s->result, bytes / sizeof(uint4), s->ledger);
  LAUNCH_CHECK();
  enter_kernel<<<1, 1, 0, stream>>>(s->ledger, index, first);
  LAUNCH_CHECK();
  s->runs++;
}

// Prints one line for every wrong job, the first time only.
static void report_mistakes(Soak *s) {
  Ledger now;
  device_download(s->dev, &now, s->ledger, sizeof now);
  s->mistakes = now.all;
  for (int i = 0; i < s->num_jobs; i++) {
    const BenchCase *c = s->jobs[i].problem;
    if (!now.mistakes[i] || s->jobs[i].told) continue;
    s->jobs[i].told = true;
    fprintf(stderr, "soak: %s of %s (x %d x %d x %d x %d): other bits than the first time, before run %ld\n",
            op_names[s->jobs[i].op], c->layer->name, c->x.n, c->x.h, c->x.w, c->x.c, s->runs);
  }
}

// ---- problems -------------------------------------------------------------------------------------------------------

static void add_problem(Soak *s, const ConvCase *l, Fused fused, int n, int h, int w) {
  BenchCase *c = &s->problems[s->num_problems++];
  *c = case_new(s->dev, precision_dtypes[s->dtype], fused, l, n, h, w);
  for (int op = 0; op < CONV_OPS; op++) {
    const Tensor *w = op == CONV_WGRAD ? &c->dw : &c->w;
    if (s->chosen && !s->chosen->supports(s->dev, (ConvOp)op, &c->conv, operand_of(c, (ConvOp)op), w)) continue;
    CHECK(s->num_jobs < MAX_JOBS);
    int cut = (s->num_problems + op) % 2 && n > 1 ? 1 + s->num_jobs % (n - 1) : 0;
    s->jobs[s->num_jobs++] = {c, (ConvOp)op, cut};
    s->result_bytes = MAX(s->result_bytes, tensor_bytes(result_of(c, (ConvOp)op, false)));
  }
}

static void add_layers(Soak *s) {
  for (const ConvCase &l : conv_cases) {
    int side = l.on == ON_MAP ? 0 : l.size, n = l.on == ON_MAP ? s->batch : s->batch * s->rois;
    if (l.on == ON_MASKS) n /= MASKS_OF;
    Fused fused = l.k == 3 ? BIAS_RELU : l.cout == 4 * l.cin ? BIAS_ADD_RELU : PLAIN; // roughly as in the network
    add_problem(s, &l, fused, n, side ? side : blocks_for(800, l.size), side ? side : blocks_for(1344, l.size));
  }
}

// On an H200 at batch 4, 144 tiles of 128 × 256 or twice as many: rung 05 launches the last, partial wave separately,
// forward and in dgrad. Twice, so that each op is once split into pairs and once not.
static void add_tail_waves(Soak *s) {
  static const ConvCase l = {"tail wave", ON_BOXES, 3, 256, 512, 3, 1, 1, 1, 0};
  for (int i = 0; i < TAIL_WAVES; i++) add_problem(s, &l, BIAS_RELU, s->batch * s->rois, l.size, l.size);
}

// Sizes of every order of magnitude are equally likely.
static void add_drawn(Soak *s) {
  uint64_t key = rng_key((uint64_t)s->seed, RNG_SHAPES), i = 0;
  auto below = [&](int limit) { return (int)(rng_u32(key, i++) % (uint32_t)limit); };
  auto size = [&](int bits) { return (1 << below(bits)) + below(1 << below(bits)); };
  static const int taps[] = {1, 1, 1, 2, 3, 3, 3, 5, 7};
  for (ConvCase &l : s->drawn) {
    static char names[DRAWN][24];
    char *name = names[&l - s->drawn];
    int k = taps[below(COUNT(taps))], n, h, w;
    do {
      l = {name, ON_MAP, 1, size(11), size(11), k, 1 + below(3), below(k / 2 + 1), 1, 0};
      n = size(9);
      h = k + size(6);
      w = k + size(6);
    } while ((int64_t)n * h * w * MAX(l.cin, l.cout) > MOST_ELEMENTS || l.cin * l.cout * k * k > MOST_ELEMENTS);
    snprintf(name, sizeof names[0], "%d -> %d by %d / %d", l.cin, l.cout, k, l.stride);
    add_problem(s, &l, (Fused)below(3), n, h, w);
  }
}

// Requests workspace for all jobs, including the naive rung.
static void reserve(Soak *s) {
  s->dev->measuring = true;
  for (int i = 0; i < s->num_jobs; i++) {
    run(s, s->chosen, &s->jobs[i], s->result);
    run(s, &rung_naive, &s->jobs[i], NULL);
  }
  s->dev->measuring = false;
  Err err;
  if (!device_reserve_workspace(s->dev, &err)) die(EXIT_RUN, "%s", err.msg);
}

// The first run of every job, whose hash becomes the reference; false, with a line, if one is wrong.
static bool verify(Soak *s) {
  void *want = allocate(s->dev, s->result_bytes), *bound = allocate(s->dev, s->result_bytes);
  bool ok = true;
  for (int i = 0; i < s->num_jobs; i++) {
    SoakJob *job = &s->jobs[i];
    fill_operands(s->dev, job->problem, job->op, true);
    run(s, &rung_naive, job, bound);
    fill_operands(s->dev, job->problem, job->op, false);
    run(s, &rung_naive, job, want);
    run(s, s->chosen, job, s->result);
    BenchCase c = aimed(job, s->result);
    unsigned long long wrong = count_wrong(s->dev, &c, job->op, false, false, want, bound);
    if (wrong)
      fprintf(stderr, "soak: %s of %s (x %d x %d x %d x %d): %llu elements differ from the naive rung's\n",
              op_names[job->op], c.layer->name, c.x.n, c.x.h, c.x.w, c.x.c, wrong);
    ok &= !wrong;
    read_result(s, i, true); // of the same run that was compared
  }
  device_free(s->dev, want);
  device_free(s->dev, bound);
  return ok;
}

// ---- the soak -------------------------------------------------------------------------------------------------------

static void soak(Soak *s) {
  uint64_t key = rng_key((uint64_t)s->seed, RNG_ORDER), i = 0;
  double begin = now_seconds(), next = begin + REPORT_SECONDS;
  while (now_seconds() < begin + s->seconds) {
    for (int j = 0; j < IN_FLIGHT; j++) {
      int index = (int)(rng_u32(key, i++) % (uint32_t)s->num_jobs);
      run(s, s->chosen, &s->jobs[index], s->result);
      read_result(s, index, false);
    }
    cudaError_t error = cudaStreamSynchronize(stream_of(s->dev));
    if (error != cudaSuccess)
      die(EXIT_RUN, "%s in one of the runs %ld to %ld; CUDA_LAUNCH_BLOCKING=1 with --seed %lld says in which",
          cudaGetErrorString(error), s->runs - IN_FLIGHT, s->runs, (long long)s->seed);
    report_mistakes(s);
    if (now_seconds() < next) continue;
    next += REPORT_SECONDS;
    printf("%6.0f s  %ld runs, %d mistakes\n", now_seconds() - begin, s->runs, s->mistakes);
    fflush(stdout);
  }
}

static void write_record(const Soak *s) {
  Record r = {};
  record_begin(&r);
  record_str(&r, "bench", "soak");
  record_str(&r, "gpu", s->dev->description);
  record_str(&r, "rung", s->chosen ? s->chosen->name : "auto");
  record_str(&r, "dtype", precision_names[s->dtype]);
  record_int(&r, "batch", s->batch);
  record_int(&r, "seed", s->seed);
  record_int(&r, "problems", s->num_jobs);
  record_int(&r, "seconds", s->seconds);
  record_int(&r, "runs", s->runs);
  record_int(&r, "mistakes", s->mistakes);
  device_origin(s->dev, &r);
  bool written = fprintf(s->file, "%s\n", record_end(&r)) > 0;
  if (fclose(s->file) || !written) die(EXIT_RUN, "--out %s: the record was not written: %s", s->out, strerror(errno));
  record_free(&r);
}

static void parse(Soak *s, int argc, char **argv) {
  OPTION_TABLE(table, Soak, SOAK_OPTIONS);
  Cli cli = {.usage = "[--seconds 600] [options]",
             .about = "Computes convolutions for a long time and looks for a bit that differs.",
             .options = table,
             .num_options = COUNT(table),
             .values = s};
  cli_parse_or_exit(&cli, argc, argv);
  char known[256] = "";
  rung_names(conv_rungs, NULL, known, sizeof known);
  if (s->rung && !(s->chosen = rung_find(conv_rungs, s->rung)))
    die(EXIT_USAGE, "--rung %s: choose from %s", s->rung, known);
  if (s->out && !(s->file = fopen(s->out, "a"))) // opened now, because a soak may take hours
    die(EXIT_USAGE, "--out %s: %s; give a file that can be written", s->out, strerror(errno));
}

int main(int argc, char **argv) {
  static Soak s = {OPTION_DEFAULTS(SOAK_OPTIONS)};
  parse(&s, argc, argv);
  Err err;
  if (!(s.dev = device_open("cuda", &err))) die(EXIT_USAGE, "%s", err.msg);
  if (s.file) commit_warn();
  s.dev->tf32 = s.dtype == BENCH_TF32;
  add_layers(&s);
  add_tail_waves(&s);
  add_drawn(&s);
  if (!s.num_jobs) die(EXIT_USAGE, "--rung %s computes nothing in %s", s.rung, precision_names[s.dtype]);
  s.result = allocate(s.dev, s.result_bytes);
  CUDA_CHECK(cudaMemsetAsync(s.result, 0xFF, s.result_bytes, stream_of(s.dev))); // NaN
  s.ledger = (Ledger *)allocate(s.dev, sizeof *s.ledger);
  reserve(&s);
  bool ok = verify(&s);
  printf("%d problems through %s in %s on %s\n", s.num_jobs, s.chosen ? s.chosen->name : "the fastest rung of each",
         precision_names[s.dtype], s.dev->description);
  soak(&s);
  printf("%d s: %ld runs, %d of them with other bits than the first time\n", s.seconds, s.runs, s.mistakes);
  if (s.file) write_record(&s);
  for (int i = 0; i < s.num_problems; i++) case_free(s.dev, &s.problems[i]);
  device_close(s.dev);
  stdout_close();
  return ok && !s.mistakes ? 0 : EXIT_RUN;
}
