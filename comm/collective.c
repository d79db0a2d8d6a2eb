// Each collective has two implementations, TCP and NCCL, and a function that chooses one.
#include "comm/collective.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/record.h"
#include "comm/links.h"
#include "comm/nccl.h"

// A Comm's state for collectives on GPUs.
typedef struct Collectives {
  Nccl nccl;
  Device *dev;
  int ctas;
} Collectives;

static Nccl *nccl_of(const Comm *c) {
  CHECK(c->nccl); // collective_open was called
  return &((Collectives *)c->nccl)->nccl;
}

static void *stream_for(const Device *dev, CommQueue queue) {
  return queue == COMM_SIDE_STREAM ? dev->side_stream : dev->stream;
}

static NcclType nccl_type(DType dtype) {
  CHECK(dtype != F16);
  return dtype == F32 ? NCCL_FLOAT32 : dtype == F64 ? NCCL_FLOAT64 : NCCL_BFLOAT16;
}

// ---- the mean -------------------------------------------------------------------------------------------------------

// The piece of a buffer that rank 0 holds at a time: the sum over ranks, and the next rank's values.
enum { PIECE_BYTES = 1 << 18, PIECE_ELEMENTS = PIECE_BYTES / 2 };
typedef struct Piece {
  union { // sums of bfloat16 are floats
    float f32[PIECE_ELEMENTS];
    double f64[PIECE_BYTES / sizeof(double)];
  } sum;
  union {
    float f32[PIECE_BYTES / sizeof(float)];
    double f64[PIECE_BYTES / sizeof(double)];
    uint16_t bf16[PIECE_ELEMENTS];
  } other;
} Piece;

static float widened(uint16_t bf16) {
  const uint32_t bits = (uint32_t)bf16 << 16;
  float v;
  memcpy(&v, &bits, sizeof v);
  return v;
}

// Rounds to nearest, ties to even. NaNs of sums have no low bits that could carry, so they stay NaN.
static uint16_t narrowed(float v) {
  uint32_t bits;
  memcpy(&bits, &v, sizeof bits);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void sum_begin(Piece *piece, const void *first, size_t n, DType dtype) {
  if (dtype != BF16) {
    memcpy(&piece->sum, first, n * dtype_size(dtype));
    return;
  }
  for (size_t i = 0; i < n; i++) piece->sum.f32[i] = widened(((const uint16_t *)first)[i]);
}

static void sum_add_other(Piece *piece, size_t n, DType dtype) {
  if (dtype == F64)
    for (size_t i = 0; i < n; i++) piece->sum.f64[i] += piece->other.f64[i];
  else if (dtype == F32)
    for (size_t i = 0; i < n; i++) piece->sum.f32[i] += piece->other.f32[i];
  else
    for (size_t i = 0; i < n; i++) piece->sum.f32[i] += widened(piece->other.bf16[i]);
}

static void sum_divide(const Piece *piece, void *mean, size_t n, int world, DType dtype) {
  if (dtype == F64)
    for (size_t i = 0; i < n; i++) ((double *)mean)[i] = piece->sum.f64[i] / world;
  else if (dtype == F32)
    for (size_t i = 0; i < n; i++) ((float *)mean)[i] = piece->sum.f32[i] / (float)world;
  else
    for (size_t i = 0; i < n; i++) ((uint16_t *)mean)[i] = narrowed(piece->sum.f32[i] / (float)world);
}

// Replaces p [n], a piece, by the mean over ranks, on all ranks.
static void mean_piece(Comm *c, Piece *piece, void *p, size_t n, DType dtype) {
  const size_t bytes = n * dtype_size(dtype);
  if (c->rank != 0) {
    comm_send(c, 0, p, bytes);
    comm_recv(c, 0, p, bytes);
    return;
  }
  sum_begin(piece, p, n, dtype);
  for (int r = 1; r < c->world; r++) {
    comm_recv(c, r, &piece->other, bytes);
    sum_add_other(piece, n, dtype);
  }
  sum_divide(piece, p, n, c->world, dtype);
  for (int r = 1; r < c->world; r++) comm_send(c, r, p, bytes);
}

// ((r0 + r1) + r2 + …) / world in the type's arithmetic; for bfloat16 in float, rounded once at the end. The division
// is exact if world is a power of two.
static void mean_over_tcp(Comm *c, void *p, size_t n, DType dtype) {
  const size_t size = dtype_size(dtype), most = PIECE_BYTES / size;
  Piece *piece = c->rank == 0 ? xmalloc(sizeof *piece) : NULL;
  for (size_t at = 0; at < n; at += most) mean_piece(c, piece, (char *)p + at * size, MIN(most, n - at), dtype);
  free(piece);
}

// ncclAvg multiplies each rank's values by 1 / world before adding them, which is exact if world is a power of two,
// cannot overflow if the mean does not, and needs no separate pass.
static void mean_over_nccl(Comm *c, Device *dev, CommQueue queue, void *p, size_t n, DType dtype) {
  Nccl *nccl = nccl_of(c);
  nccl_check(nccl, nccl->AllReduce(p, p, n, nccl_type(dtype), NCCL_AVG, nccl->comm, stream_for(dev, queue)),
             "AllReduce");
}

void collective_mean(Comm *c, Device *dev, CommQueue queue, void *p, size_t n, DType dtype) {
  if (comm_alone(c) || dev->measuring || n == 0) return;
  CHECK(dtype != F16);
  if (dev->gpu)
    mean_over_nccl(c, dev, queue, p, n, dtype);
  else
    mean_over_tcp(c, p, n, dtype);
}

// ---- all-gather -----------------------------------------------------------------------------------------------------

static void gather_over_tcp(Comm *c, const void *mine, char *all, size_t bytes) {
  const size_t whole = bytes * (size_t)c->world;
  if (c->rank != 0) {
    comm_send(c, 0, mine, bytes);
    comm_recv(c, 0, all, whole);
    return;
  }
  memmove(all, mine, bytes);
  for (int r = 1; r < c->world; r++) comm_recv(c, r, all + (size_t)r * bytes, bytes);
  for (int r = 1; r < c->world; r++) comm_send(c, r, all, whole);
}

static void gather_over_nccl(Comm *c, Device *dev, CommQueue queue, const void *mine, void *all, size_t n,
                             DType dtype) {
  Nccl *nccl = nccl_of(c);
  nccl_check(nccl, nccl->AllGather(mine, all, n, nccl_type(dtype), nccl->comm, stream_for(dev, queue)), "AllGather");
}

void collective_all_gather(Comm *c, Device *dev, CommQueue queue, const void *mine, void *all, size_t n, DType dtype) {
  if (dev->measuring || n == 0) return;
  const size_t bytes = n * dtype_size(dtype);
  if (comm_alone(c)) {
    if (mine != all) device_copy(dev, all, mine, bytes);
  } else if (dev->gpu) {
    gather_over_nccl(c, dev, queue, mine, all, n, dtype);
  } else {
    gather_over_tcp(c, mine, all, bytes);
  }
}

static void group_all_gather(const RankGroup *group, Device *dev, const void *mine, void *all, size_t n, DType dtype) {
  collective_all_gather((Comm *)group, dev, COMM_WITH_OPS, mine, all, n, dtype);
}

const RankGroup *collective_group(Comm *c) {
  if (comm_alone(c)) return NULL;
  c->group = (RankGroup){c->rank, c->world, group_all_gather};
  return &c->group;
}

// ---- broadcast ------------------------------------------------------------------------------------------------------

static void broadcast_over_tcp(Comm *c, void *p, size_t bytes) { comm_broadcast_bytes(c, p, bytes); }

static void broadcast_over_nccl(Comm *c, Device *dev, CommQueue queue, void *p, size_t bytes) {
  Nccl *nccl = nccl_of(c);
  nccl_check(nccl, nccl->Broadcast(p, p, bytes, NCCL_INT8, 0, nccl->comm, stream_for(dev, queue)), "Broadcast");
}

void collective_broadcast(Comm *c, Device *dev, CommQueue queue, void *p, size_t bytes) {
  if (comm_alone(c) || dev->measuring || bytes == 0) return;
  if (dev->gpu)
    broadcast_over_nccl(c, dev, queue, p, bytes);
  else
    broadcast_over_tcp(c, p, bytes);
}

// ---- opening --------------------------------------------------------------------------------------------------------

static bool nccl_lives(void *context, Err *err) { return nccl_async_ok(context, err); }

static bool meet_over_nccl(Comm *c, Nccl *nccl, int ctas, Err *err) {
  NcclId id = {0};
  if (!nccl_load(nccl, err) || (c->rank == 0 && !nccl_id(nccl, &id, err))) return false;
  comm_broadcast_bytes(c, &id, sizeof id);
  return nccl_begin(nccl, &id, c->rank, c->world, ctas, err);
}

bool collective_open(Comm *c, Device *dev, int ctas, Err *err) {
  if (comm_alone(c) || !dev->gpu) return true;
  CHECK(!c->nccl);
  Collectives *of = xcalloc(1, sizeof *of);
  of->dev = dev;
  of->ctas = ctas;
  c->nccl = of;
  if (!meet_over_nccl(c, &of->nccl, ctas, err)) {
    free(of);
    c->nccl = NULL;
    return false;
  }
  comm_check(c, nccl_lives, &of->nccl);
  return true;
}

void collective_close(Comm *c) {
  if (comm_alone(c) || !c->nccl) return;
  Collectives *of = c->nccl;
  comm_check(c, NULL, NULL);
  device_sync(of->dev);
  nccl_end(&of->nccl);
  free(of);
  c->nccl = NULL;
}

// ---- for the log ----------------------------------------------------------------------------------------------------

extern char **environ;

static int compare_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

// The variables NCCL_… as {"NCCL_ALGO": "Ring", …}, sorted by name; malloc'ed.
static char *nccl_variables(void) {
  size_t n = 0;
  for (char **v = environ; *v; v++) n += !strncmp(*v, "NCCL_", 5);
  char **sorted = xcalloc(n, sizeof *sorted);
  n = 0;
  for (char **v = environ; *v; v++)
    if (!strncmp(*v, "NCCL_", 5)) sorted[n++] = *v;
  qsort(sorted, n, sizeof *sorted, compare_text);
  Record r = {0};
  record_begin(&r);
  for (size_t i = 0; i < n; i++) {
    const size_t length = strcspn(sorted[i], "=");
    char *name = xasprintf("%.*s", (int)length, sorted[i]);
    record_str(&r, name, sorted[i][length] ? sorted[i] + length + 1 : "");
    free(name);
  }
  char *text = xstrdup(record_end(&r));
  record_free(&r);
  free(sorted);
  return text;
}

void collective_facts(const Comm *c, CollectiveFacts *out) {
  const Collectives *of = comm_alone(c) ? NULL : c->nccl;
  *out = (CollectiveFacts){.transport = comm_alone(c) ? NULL
                                        : of          ? "nccl"
                                                      : "tcp",
                           .nccl_version = of ? of->nccl.version : 0,
                           .ctas = of ? of->ctas : 0,
                           .variables = nccl_variables()};
}
