// bench_reduce: times the mean over ranks by size, type and CTAs; lab/scaling.py predicts from these records.
//
// Every size is checked first. A round is a number of means in a row on the side stream, recorded as a graph if the
// device can, as in a training step; times are rank 0's, medians over rounds that all ranks begin together.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/cli.h"
#include "base/clock.h"
#include "base/machine.h"
#include "base/output.h"
#include "base/threads.h"
#include "comm/job.h"

enum { MAX_REDUCE_ROUNDS = 101, MAX_CTAS = 16, FULL_ROUND = 1 << 30 }; // the last: bytes of a round of the largest

// Buffer sizes. 176 MB: the gradients of R50-FPN in fp32; 88 MB: in bf16.
static const size_t sizes[] = {64 << 10, 256 << 10, 1 << 20,   4 << 20,  16 << 20,
                               64 << 20, 88000000,  176000000, 256 << 20};
static const DType types[] = {F32, BF16};

static const char *name_of(DType t) { return t == F32 ? "fp32" : "bf16"; }

// clang-format off
#define BENCH_REDUCE_OPTIONS(X)                                                                                        \
  X(INT, gpus, 0, 1, 1024, "N", "processes on this machine", .usual = "one per GPU")                                   \
  X(STRING, device, "auto", "NAME", "cpu, cuda:N, or auto: a GPU if there is one")                                     \
  X(STRING, ctas, "0", "LIST", "thread blocks that NCCL may use, such as 0,4,8; 0: as many as it chooses")             \
  X(FLOAT, max_mb, 300, 0.0625f, 1e6, "MB", "largest size")                                                            \
  X(INT, rounds, 15, 1, MAX_REDUCE_ROUNDS, "N", "number of rounds, of which the median is taken")                      \
  X(INT, repeats, 0, 1, 10000, "N", "reductions per round", .usual = "4 to 100, by size")                              \
  X(STRING, rendezvous, NULL, "PLACE", "where processes meet: tcp:HOST:PORT or file:PATH",                             \
    .usual = "as torchrun, srun or mpirun say")                                                                        \
  X(FLOAT, timeout, 60, 1, 86400, "SECONDS", "silence after which a process counts as lost")                           \
  X(FLOAT, rendezvous_timeout, 300, 1, 86400, "SECONDS", "how long processes wait for each other at the start")
// clang-format on

typedef struct BenchReduceOptions {
  OPTION_FIELDS(BENCH_REDUCE_OPTIONS)
} BenchReduceOptions;

typedef struct ReduceCase {
  const BenchReduceOptions *o;
  Comm *comm;
  Device *dev;
  void *p; // device memory of the largest size
  DType type;
  size_t bytes; // bytes of p that are used
  int repeats;
} ReduceCase;

// ---- the sum --------------------------------------------------------------------------------------------------------

// Element i belongs to one rank, which contributes `world` times a power of two there, and all others 0: the mean is
// that power whatever the order of the sum, and anything missing or counted twice is noticed.
static float mean_of(size_t i, int world) { return (float)(1 << (i / (size_t)world % 8)); }

static float mine(size_t i, int world, int rank) {
  return i % (size_t)world == (size_t)rank ? (float)world * mean_of(i, world) : 0;
}

static size_t elements(const ReduceCase *c) { return c->bytes / dtype_size(c->type); }

// BF16 is the upper half of a float; values of `world` that do not fit are rounded down, by less than the tolerance.
static void put(const ReduceCase *c, void *host, size_t i, float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  if (c->type == F32)
    ((uint32_t *)host)[i] = bits;
  else
    ((uint16_t *)host)[i] = (uint16_t)(bits >> 16);
}

static float get(const ReduceCase *c, const void *host, size_t i) {
  const uint32_t bits = c->type == F32 ? ((const uint32_t *)host)[i] : (uint32_t)((const uint16_t *)host)[i] << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static void verify(const ReduceCase *c) {
  const int world = comm_world(c->comm), rank = comm_rank(c->comm);
  // Exact if division by the world size is.
  const float tolerance = (world & (world - 1)) == 0 ? 0 : c->type == F32 ? 0x1p-21f : 0x1p-6f;
  void *host = xmalloc(c->bytes);
  for (size_t i = 0; i < elements(c); i++) put(c, host, i, mine(i, world, rank));
  device_upload(c->dev, c->p, host, c->bytes);
  device_fork(c->dev);
  collective_mean(c->comm, c->dev, COMM_SIDE_STREAM, c->p, elements(c), c->type);
  device_join(c->dev);
  device_download(c->dev, host, c->p, c->bytes);
  for (size_t i = 0; i < elements(c); i++) {
    const float is = get(c, host, i), wanted = mean_of(i, world);
    if (!(fabsf(is - wanted) <= tolerance * wanted))
      die(EXIT_RUN, "the mean of %zu bytes of %s is wrong: element %zu is %g instead of %g", c->bytes, name_of(c->type),
          i, (double)is, (double)wanted);
  }
  free(host);
}

// ---- timing ---- ----------------------------------------------------------------------------------------------------

static void queue_round(const ReduceCase *c) {
  device_fork(c->dev);
  for (int i = 0; i < c->repeats; i++) collective_mean(c->comm, c->dev, COMM_SIDE_STREAM, c->p, elements(c), c->type);
  device_join(c->dev);
}

// The time of one mean. program NULL: the round is queued each time instead of replayed.
static double time_round(const ReduceCase *c, void *program) {
  device_sync(c->dev);
  comm_barrier(c->comm);
  const double start = now_seconds();
  if (program)
    device_replay(c->dev, program);
  else
    queue_round(c);
  device_sync(c->dev);
  return (now_seconds() - start) / c->repeats;
}

static int ascending(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void time_rounds(const ReduceCase *c, double *seconds) {
  void *program = NULL;
  if (device_record(c->dev)) {
    queue_round(c);
    program = device_record_end(c->dev);
  }
  time_round(c, program); // warm-up
  for (int r = 0; r < c->o->rounds; r++) seconds[r] = time_round(c, program);
  if (program) device_forget(c->dev, program);
  qsort(seconds, (size_t)c->o->rounds, sizeof *seconds, ascending);
}

static void print_record(const ReduceCase *c, const double *seconds) {
  const int rounds = c->o->rounds;
  CollectiveFacts facts;
  Record j = {0};
  collective_facts(c->comm, &facts);
  record_begin(&j);
  record_str(&j, "bench", "reduce");
  record_str(&j, "gpu", c->dev->description);
  record_int(&j, "world", comm_world(c->comm));
  record_int(&j, "local_world", comm_launch(c->comm)->local_world);
  record_int(&j, "bytes", (int64_t)c->bytes);
  record_str(&j, "dtype", name_of(c->type));
  record_int(&j, "ctas", facts.ctas);
  record_str(&j, "transport", facts.transport);
  record_int(&j, "nccl", facts.nccl_version);
  record_raw(&j, "variables", facts.variables);
  record_int(&j, "rounds", rounds);
  record_int(&j, "repeats", c->repeats);
  record_num(&j, "us", 1e6 * seconds[rounds / 2]);
  record_num(&j, "us_min", 1e6 * seconds[0]);
  record_num(&j, "us_max", 1e6 * seconds[rounds - 1]);
  record_num(&j, "gb_s", 1e-9 * (double)c->bytes / seconds[rounds / 2]);
  device_origin(c->dev, &j);
  puts(record_end(&j));
  record_free(&j);
  free(facts.variables);
}

// ---- all sizes ---- -------------------------------------------------------------------------------------------------

static int repeats_of(const BenchReduceOptions *o, size_t bytes) {
  const size_t by_size = FULL_ROUND / bytes;
  return o->repeats ? o->repeats : by_size < 4 ? 4 : by_size > 100 ? 100 : (int)by_size;
}

static bool wanted(const BenchReduceOptions *o, size_t bytes) { return (double)bytes <= 1e6 * (double)o->max_mb; }

static size_t largest(const BenchReduceOptions *o) {
  size_t most = 0;
  for (int i = 0; i < COUNT(sizes); i++)
    if (wanted(o, sizes[i])) most = sizes[i];
  return most;
}

static void run_sizes(ReduceCase c) {
  double seconds[MAX_REDUCE_ROUNDS];
  for (int t = 0; t < COUNT(types); t++)
    for (int i = 0; i < COUNT(sizes); i++) {
      if (!wanted(c.o, sizes[i])) continue;
      c.type = types[t];
      c.bytes = sizes[i];
      c.repeats = repeats_of(c.o, c.bytes);
      verify(&c);
      time_rounds(&c, seconds);
      if (comm_rank(c.comm) == 0) print_record(&c, seconds);
    }
}

// Parses the numbers of "0,4,8".
static int parse_ctas(const char *list, int *ctas) {
  int n = 0;
  for (const char *at = list;;) {
    char *end;
    const long value = strtol(at, &end, 10);
    if (end == at || value < 0 || value > 32 || (*end && *end != ',') || n == MAX_CTAS)
      die(EXIT_USAGE, "--ctas %s: up to %d numbers from 0 to 32 with commas between them are wanted", list, MAX_CTAS);
    ctas[n++] = (int)value;
    if (!*end) return n;
    at = end + 1;
  }
}

static void run(const BenchReduceOptions *o, const Job *job, const int *ctas, int n) {
  Err err;
  Device *dev = device_open(job->device, &err);
  if (!dev) die(EXIT_USAGE, "%s", err.msg);
  ReduceCase c = {.o = o, .comm = job->comm, .dev = dev, .p = device_alloc(dev, largest(o))};
  if (!c.p) die(EXIT_RUN, "no room for %zu bytes on the device: --max-mb takes less", largest(o));
  if (comm_rank(c.comm) == 0) commit_warn();
  for (int i = 0; i < n; i++) {
    if (!collective_open(c.comm, dev, ctas[i], &err)) die(EXIT_USAGE, "%s", err.msg);
    run_sizes(c);
    comm_barrier(c.comm);
    collective_close(c.comm);
  }
  device_free(dev, c.p);
  device_close(dev);
}

static BenchReduceOptions bench_reduce_options(int argc, char **argv) {
  BenchReduceOptions o = {OPTION_DEFAULTS(BENCH_REDUCE_OPTIONS)};
  OPTION_TABLE(table, BenchReduceOptions, BENCH_REDUCE_OPTIONS);
  Cli cli = {.usage = "[options]",
             .about = "Times the mean over ranks; a record for every size, type and number of CTAs.",
             .options = table,
             .num_options = COUNT(table),
             .values = &o};
  cli_parse_or_exit(&cli, argc, argv);
  return o;
}

int main(int argc, char **argv) {
  threads_wait_briefly(argv);
  const BenchReduceOptions o = bench_reduce_options(argc, argv);
  int ctas[MAX_CTAS];
  const int n = parse_ctas(o.ctas, ctas);
  const JobOptions options = {.gpus = o.gpus,
                              .device = o.device,
                              .rendezvous = o.rendezvous,
                              .timeout = (double)o.timeout,
                              .rendezvous_timeout = (double)o.rendezvous_timeout};
  Job job;
  job_begin(&job, &options);
  job_start(&job, &options);
  if (!job.comm) die(EXIT_USAGE, "one rank has nothing to reduce: give --gpus 2 or more");
  run(&o, &job, ctas, n);
  job_end(&job);
  stdout_close();
  return 0;
}
