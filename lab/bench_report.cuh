// The state of a bench run, and its output: a line and a record for each (layer, op, rung), totals over the layers.
#pragma once
#include <math.h>
#include <stdio.h>
#include "cuda/conv/ladder.h"
#include "cuda/sweep.cuh"
#include "cudnn/cudnn.h"
#include "lab/bench_case.cuh"
#include "lab/bench_engines.cuh"
#include "lab/bench_floor.cuh"
#include "lab/bench_ladder.cuh"
extern "C" {
#include "base/cli.h"
#include "base/latency.h"
#include "base/machine.h"
#include "base/record.h"
}

enum { MAX_RUNGS = 24, MAX_CONTENDERS = 48, MIN_ROUNDS = 7, MAX_ROUNDS = 101 };

static const char *const fused_names[] = {"none", "relu", "add-relu", NULL};

// One of the implementations compared: a rung of ours, or cuDNN.
typedef struct Contender {
  const Rung *rung; // NULL: cuDNN
  CudnnPlan plan;   // cuDNN's
  const char *tile; // one of the rung's tiles; NULL: the rung chooses
  double us[MAX_ROUNDS];
  int runs;
  bool slow, wrong; // slow: runs three times only; wrong: not timed
} Contender;

// Sums over the layers of one op, each weighted by its number of occurrences.
typedef struct OpTotal {
  int layers, without_cudnn;
  double us, floor_us;
  double shared_us, cudnn_us; // for layers for which cuDNN has an engine
  double worst;               // lowest ratio
  const char *worst_layer;
} OpTotal;

// clang-format off
#define BENCH_OPTIONS(X)                                                                                               \
  X(STRING, rungs, NULL, "A,B", "rungs or lessons to time",                                                            \
    .usual = "all rungs but naive; for ladder all lessons and the rungs on tensor cores")                              \
  X(STRING, ops, NULL, "A,B", "of fwd, dgrad and wgrad", .usual = "all three")                                         \
  X(CHOICE, dtype, 0, precision_names, "type of the operands")                                                         \
  X(CHOICE, fused, 0, fused_names, "what is fused into forward: bias and ReLU, or bias, residual and ReLU")            \
  X(FLAG, any, false, "cuDNN may use engines that are not deterministic")                                              \
  X(STRING, engines, NULL, "FILE", "use the cuDNN engines that these records found fastest, for layers they know",     \
    .usual = "all engines are tried")                                                                                  \
  X(INT, rounds, 33, MIN_ROUNDS, MAX_ROUNDS, "N", "number of runs of each")                                            \
  X(STRING, out, NULL, "FILE", "append the records to this file")                                                      \
  X(HEADING, "conv and ladder")                                                                                        \
  X(STRING, layer, NULL, "A,B", "only layers with one of these in their name", .usual = "all layers")                  \
  X(INT, batch, 4, 1, 64, "N", "images per batch")                                                                     \
  X(STRING, size, NULL, "HxW", "size of the canvas", .usual = "800x1344")                                              \
  X(INT, rois, 512, MASKS_OF, 4096, "N", "RoIs sampled in an image, a quarter of them objects")                        \
  X(HEADING, "gemm: fwd is [m, n] = [m, k] x [k, n]; dgrad and wgrad are its gradients")                               \
  X(INT, m, 8192, 1, 1 << 20, "N", "rows of the product")                                                              \
  X(INT, n, 8192, 1, 1 << 16, "N", "columns of the product")                                                           \
  X(INT, k, 8192, 1, 1 << 16, "N", "terms of each sum")                                                                \
  X(HEADING, "sustained: layers of an inference, 1000 boxes, 100 masks; and a product of 8192")                        \
  X(FLOAT, seconds, 0.5f, 0.1f, 60, "SECONDS", "how long each runs")
// clang-format on

typedef struct ConvBench {
  OPTION_FIELDS(BENCH_OPTIONS)
  int height, width; // of --size
  bool gemm, ladder, sustained;
  void *meter; // the device's power meter; NULL: none
  Climb climb;
  KnownEngines known;
  const Rung *chosen[MAX_RUNGS]; // of --rungs
  int num_chosen;
  bool wanted[CONV_OPS];
  OpTotal total[CONV_OPS][MAX_RUNGS];
  Device *dev;
  FILE *file;
  void *sweep;
  uint64_t sweeps; // so far
  cudaEvent_t begin, end;
} ConvBench;

static const char *name_of(const Contender *who) { return who->rung ? who->rung->name : "cudnn"; }

// ---- figures --------------------------------------------------------------------------------------------------------

typedef struct Measurement {
  Latency us;
  double cudnn_us, ratio, floor_us; // ratio: the median over rounds of cuDNN's time over ours
} Measurement;

static Measurement figures_of(ConvBench *b, BenchCase *c, ConvOp op, const Contender *who, const Contender *peer) {
  double ours[MAX_ROUNDS], theirs[MAX_ROUNDS], ratio[MAX_ROUNDS];
  int both = peer ? MIN(who->runs, peer->runs) : 0;
  for (int i = 0; i < both; i++) ratio[i] = peer->us[i] / who->us[i];
  memcpy(ours, who->us, sizeof ours);
  if (peer) memcpy(theirs, peer->us, sizeof theirs);
  return {latency_summary(ours, who->runs), latency_summary(theirs, peer ? peer->runs : 0).median,
          latency_summary(ratio, both).median, floor_us(b->dev, (Precision)b->dtype, c, op)};
}

static int count_of(const BenchCase *c, ConvOp op) {
  return c->layer->count - (op == CONV_FORWARD ? 0 : c->layer->frozen);
}

static const char *bench_name(const ConvBench *b) {
  return b->sustained ? "sustained" : b->ladder ? "ladder" : b->gemm ? "gemm" : "conv";
}

// Writes the problem and the implementation.
static void record_case(Record *j, const ConvBench *b, const BenchCase *c, ConvOp op, const Contender *who) {
  const ConvCase *l = c->layer;
  record_str(j, "bench", bench_name(b));
  record_str(j, "gpu", b->dev->description);
  record_str(j, "rung", name_of(who));
  record_str(j, "op", op_names[op]);
  record_str(j, "layer", l->name);
  record_int(j, "n", c->x.n);
  record_int(j, "h", c->x.h);
  record_int(j, "w", c->x.w);
  record_int(j, "cin", l->cin);
  record_int(j, "cout", l->cout);
  record_int(j, "k", l->k);
  record_int(j, "stride", l->stride);
  record_int(j, "count", count_of(c, op));
  record_str(j, "dtype", precision_names[b->dtype]);
  record_str(j, "fused", fused_names[b->fused]);
  record_int(j, "batch", b->batch);
}

static void write_record(ConvBench *b, BenchCase *c, ConvOp op, const Contender *who, const Contender *peer,
                         const Measurement *f) {
  Record j = {};
  record_begin(&j);
  record_case(&j, b, c, op, who);
  record_int(&j, "runs", f->us.n);
  record_num(&j, "us", f->us.median);
  record_num(&j, "us_min", f->us.min);
  record_num(&j, "us_max", f->us.max);
  record_num(&j, "tflops", flop_of(c) / f->us.median / 1e6);
  record_num(&j, "floor_us", f->floor_us);
  record_num(&j, "cudnn_us", f->cudnn_us);
  record_num(&j, "ratio", f->ratio);
  record_int(&j, "cudnn_version", cudnn_version(b->dev));
  record_bool(&j, "cudnn_any", b->any);
  if (peer) {
    record_int(&j, "cudnn_engine", peer->plan.engine.index);
    record_int(&j, "cudnn_tried", peer->plan.tried);
    record_bool(&j, "cudnn_deterministic", peer->plan.engine.deterministic);
    record_int(&j, "cudnn_fused_tried", peer->plan.fused_tried);
    record_bool(&j, "cudnn_fused", b->fused && !peer->plan.finish);
  } else
    record_raw(&j, "cudnn_engine", "null"); // no engine, or version 0: cuDNN is not there
  device_origin(b->dev, &j);
  fprintf(b->file, "%s\n", record_end(&j));
  fflush(b->file);
  record_free(&j);
}

static void add_total(OpTotal *t, const Measurement *f, const char *layer, int count) {
  t->layers++;
  t->us += count * f->us.median;
  t->floor_us += count * f->floor_us;
  if (isnan(f->ratio)) {
    t->without_cudnn++;
    return;
  }
  t->shared_us += count * f->us.median;
  t->cudnn_us += count * f->cudnn_us;
  if (!t->worst_layer || f->ratio < t->worst) {
    t->worst = f->ratio;
    t->worst_layer = layer;
  }
}

static const char *fusion_of(const ConvBench *b, const CudnnPlan *plan) {
  if (!b->fused) return "";
  if (!plan->finish) return ", one fused graph";
  return plan->fused_tried ? ", not fused, which is faster here" : ", not fused: it has no graph for this";
}

static void report(ConvBench *b, BenchCase *c, ConvOp op, const Contender *who, const Contender *peer) {
  Measurement f = figures_of(b, c, op, who, peer);
  if (b->ladder)
    climb_add(&b->climb, c->layer->name, name_of(who), flop_of(c) / f.us.median / 1e6, f.ratio,
              f.floor_us / f.us.median);
  printf("%-16s %-6s %-16s %10.1f us %7.1f TFLOP/s %5.1f x its floor", c->layer->name, op_names[op], name_of(who),
         f.us.median, flop_of(c) / f.us.median / 1e6, f.us.median / f.floor_us);
  if (!who->rung)
    printf("  engine %d of %d%s%s\n", who->plan.engine.index, who->plan.tried,
           who->plan.engine.deterministic ? "" : ", not deterministic", fusion_of(b, &who->plan));
  else
    printf(peer ? "  %.2f of cuDNN's speed\n" : "  (no engine of cuDNN's)\n", f.ratio);
  fflush(stdout);
  for (int i = 0; i < b->num_chosen; i++)
    if (b->chosen[i] == who->rung) add_total(&b->total[op][i], &f, c->layer->name, count_of(c, op));
  if (b->file) write_record(b, c, op, who, peer, &f);
}

// A bottleneck in one kernel; cudnn_us: the sum of its convolutions' times, each with what is fused into it.
static void report_block(const ConvBench *b, const char *name, int count, const Tensor *y, double us, double cudnn_us,
                         double ratio) {
  printf("%-16s %-6s %10.1f us  %.2f of the speed of cuDNN's convolutions\n", name, "fwd", us, ratio);
  if (!b->file) return;
  Record j = {};
  record_begin(&j);
  record_str(&j, "bench", "block");
  record_str(&j, "gpu", b->dev->description);
  record_str(&j, "layer", name);
  record_int(&j, "count", count);
  record_int(&j, "n", y->n);
  record_int(&j, "h", y->h);
  record_int(&j, "w", y->w);
  record_str(&j, "dtype", precision_names[b->dtype]);
  record_int(&j, "batch", b->batch);
  record_num(&j, "us", us);
  record_num(&j, "cudnn_us", cudnn_us);
  record_num(&j, "ratio", ratio);
  device_origin(b->dev, &j);
  fprintf(b->file, "%s\n", record_end(&j));
  fflush(b->file);
  record_free(&j);
}

static void print_totals(const ConvBench *b) {
  printf("\n%-6s %-16s %6s %10s %10s %10s %8s  %s\n", "op", "rung", "layers", "ms", "floor ms", "cuDNN ms", "speed",
         "worst");
  for (int op = 0; op < CONV_OPS; op++)
    for (int i = 0; i < b->num_chosen; i++) {
      const OpTotal *t = &b->total[op][i];
      if (!t->layers) continue;
      printf("%-6s %-16s %6d %10.3f %10.3f %10.3f %8.2f  ", op_names[op], b->chosen[i]->name, t->layers, t->us / 1e3,
             t->floor_us / 1e3, t->cudnn_us / 1e3, t->shared_us > 0 ? t->cudnn_us / t->shared_us : NAN);
      if (t->worst_layer) printf("%s (%.2f)", t->worst_layer, t->worst);
      printf(t->without_cudnn ? "; %d layers without cuDNN\n" : "\n", t->without_cudnn);
    }
}
