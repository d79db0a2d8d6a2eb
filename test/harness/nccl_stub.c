// A stand-in for NCCL, over host memory between processes: build/libnccl_stub.so, which programs take for NCCL where
// MASKRCNN_NCCL names it and their GPU is the tests' (test/harness/faulty_device.c). Ranks meet at a socket that the id
// names, of Linux' abstract names, which leave no file; sums are taken by rank 0 in the order of ranks, at once.
//
// What goes wrong on demand: NCCL_STUB_VERSION=21602 is how old it says that it is. NCCL_STUB_FAULT=CALL:N:RESULT has
// the N-th AllReduce (or GetUniqueId …) return that ncclResult_t; "async:N:RESULT" has it be found by
// CommGetAsyncError after N collectives. NCCL_STUB_TEXT is what GetLastError says of it; NCCL_STUB_RANK the one rank
// that it happens on.
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "comm/nccl.h"

struct NcclComm {
  int rank, world;
  int *peer; // sockets: on rank 0 of every other rank, on the others [0] of rank 0
};

// Of this process.
static int meeting = -1; // where the ranks of the last id meet, on the rank that made it
static int own_rank = -1;
static long collectives; // so far
static bool rank_lost;

// ---- faults ---------------------------------------------------------------------------------------------------------

typedef struct StubFault {
  char call[32];
  long nth;
  int result;
} StubFault;

static StubFault stub_fault(void) {
  StubFault f = {.result = 3};
  const char *text = getenv("NCCL_STUB_FAULT"), *rank = getenv("NCCL_STUB_RANK");
  if (!text || (rank && own_rank >= 0 && atoi(rank) != own_rank)) return (StubFault){0};
  return sscanf(text, "%31[A-Za-z]:%ld:%d", f.call, &f.nth, &f.result) >= 2 ? f : (StubFault){0};
}

// What the call returns that says so: one of these a call.
static NcclResult meets(const char *call, long *calls) {
  const StubFault f = stub_fault();
  return ++*calls == f.nth && !strcmp(f.call, call) ? (NcclResult)f.result : NCCL_SUCCESS;
}
#define MEET(call)                                                                                                     \
  static long calls;                                                                                                   \
  const NcclResult met = meets(call, &calls);                                                                          \
  if (met != NCCL_SUCCESS) return met;

// ---- sockets --------------------------------------------------------------------------------------------------------

static struct sockaddr_un address_of(const NcclId *id, socklen_t *length) {
  struct sockaddr_un a = {.sun_family = AF_UNIX};
  memcpy(a.sun_path + 1, id->internal, 32); // a first byte of 0: an abstract name
  *length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 33);
  return a;
}

static bool send_all(int to, const void *from, size_t bytes) {
  for (const char *p = from; bytes;) {
    const ssize_t n = send(to, p, bytes, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    p += n;
    bytes -= (size_t)n;
  }
  return true;
}

static bool receive_all(int from, void *to, size_t bytes) {
  for (char *p = to; bytes;) {
    const ssize_t n = recv(from, p, bytes, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    p += n;
    bytes -= (size_t)n;
  }
  return true;
}

static bool comes(int socket) {
  struct pollfd p = {.fd = socket, .events = POLLIN};
  return poll(&p, 1, 20000) == 1;
}

static bool await_peers(NcclComm *c) {
  for (int i = 1; i < c->world; i++) {
    int32_t rank;
    const int peer = comes(meeting) ? accept(meeting, NULL, NULL) : -1;
    if (peer < 0 || !receive_all(peer, &rank, sizeof rank)) return false;
    if (rank < 1 || rank >= c->world || c->peer[rank] >= 0) return false;
    c->peer[rank] = peer;
  }
  close(meeting);
  meeting = -1;
  return true;
}

static bool join_peers(NcclComm *c, const NcclId *id) {
  socklen_t length;
  const struct sockaddr_un at = address_of(id, &length);
  const int32_t rank = c->rank;
  c->peer[0] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  return connect(c->peer[0], (const struct sockaddr *)&at, length) == 0 && send_all(c->peer[0], &rank, sizeof rank);
}

// ---- the library ----------------------------------------------------------------------------------------------------

NcclResult ncclGetVersion(int *version) {
  const char *text = getenv("NCCL_STUB_VERSION");
  *version = text ? atoi(text) : 22907;
  return NCCL_SUCCESS;
}

NcclResult ncclGetUniqueId(NcclId *id) {
  MEET("GetUniqueId");
  static int ids;
  *id = (NcclId){0};
  snprintf(id->internal, sizeof id->internal, "nccl-stub-%ld-%d", (long)getpid(), ids++);
  socklen_t length;
  const struct sockaddr_un at = address_of(id, &length);
  meeting = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(meeting, (const struct sockaddr *)&at, length) != 0 || listen(meeting, 64) != 0) return NCCL_SYSTEM_ERROR;
  return NCCL_SUCCESS;
}

static void comm_free(NcclComm *c) {
  for (int i = 0; i < c->world; i++)
    if (c->peer[i] >= 0) close(c->peer[i]);
  free(c->peer);
  free(c);
}

NcclResult ncclCommInitRankConfig(NcclComm **out, int world, NcclId id, int rank, NcclConfig *config) {
  own_rank = rank;
  MEET("CommInitRankConfig");
  if (config->size != sizeof *config || config->magic != 0xcafebeef || config->version != 21701) return (NcclResult)4;
  NcclComm *c = calloc(1, sizeof *c);
  if (!c) abort();
  *c = (NcclComm){.rank = rank, .world = world, .peer = malloc((size_t)world * sizeof *c->peer)};
  if (!c->peer) abort();
  for (int i = 0; i < world; i++) c->peer[i] = -1;
  if (rank == 0 ? await_peers(c) : join_peers(c, &id)) {
    *out = c;
    return NCCL_SUCCESS;
  }
  comm_free(c);
  return NCCL_SYSTEM_ERROR;
}

NcclResult ncclCommDestroy(NcclComm *comm) {
  MEET("CommDestroy");
  comm_free(comm);
  return NCCL_SUCCESS;
}

NcclResult ncclCommGetAsyncError(NcclComm *comm, NcclResult *error) {
  (void)comm;
  MEET("CommGetAsyncError");
  const StubFault f = stub_fault();
  const bool failed = !strcmp(f.call, "async") && collectives >= f.nth;
  *error = rank_lost ? NCCL_REMOTE_ERROR : failed ? (NcclResult)f.result : NCCL_SUCCESS;
  return NCCL_SUCCESS;
}

const char *ncclGetErrorString(NcclResult result) {
  static const char *const text[] = {"no error",
                                     "unhandled cuda error",
                                     "unhandled system error",
                                     "internal error",
                                     "invalid argument",
                                     "invalid usage",
                                     "remote process exited or there was a network error"};
  return result < 7 ? text[result] : "unknown result code";
}

const char *ncclGetLastError(NcclComm *comm) {
  (void)comm;
  const char *text = getenv("NCCL_STUB_TEXT");
  return text ? text : "";
}

// ---- collectives ----------------------------------------------------------------------------------------------------

static size_t element_size(NcclType type) {
  return type == NCCL_INT8 ? 1 : type == NCCL_BFLOAT16 ? 2 : type == NCCL_FLOAT32 ? 4 : 8;
}

static double element(const void *p, size_t i, NcclType type) {
  if (type == NCCL_FLOAT64) return ((const double *)p)[i];
  if (type == NCCL_FLOAT32) return ((const float *)p)[i];
  const uint32_t bits = (uint32_t)((const uint16_t *)p)[i] << 16; // bfloat16
  float v;
  memcpy(&v, &bits, sizeof v);
  return v;
}

static void element_set(void *p, size_t i, NcclType type, double v) {
  if (type == NCCL_FLOAT64) {
    ((double *)p)[i] = v;
  } else if (type == NCCL_FLOAT32) {
    ((float *)p)[i] = (float)v;
  } else {
    const float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    ((uint16_t *)p)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16); // to nearest, ties to even
  }
}

// sum += p, rounded as the type's own arithmetic is: bfloat16's in float.
static void add(double *sum, const void *p, size_t n, NcclType type) {
  for (size_t i = 0; i < n; i++) {
    const double v = sum[i] + element(p, i, type);
    sum[i] = type == NCCL_FLOAT64 ? v : (float)v;
  }
}

static NcclResult lost(void) {
  rank_lost = true;
  return NCCL_REMOTE_ERROR;
}

// On rank 0: everything by rank, p its own; the result.
static bool reduce(NcclComm *c, const void *own, void *to, size_t n, NcclType type, NcclOp op) {
  const size_t bytes = n * element_size(type);
  double *sum = calloc(n + 1, sizeof *sum);
  void *theirs = malloc(bytes + 1);
  if (!sum || !theirs) abort();
  for (size_t i = 0; i < n; i++) sum[i] = element(own, i, type);
  bool ok = true;
  for (int r = 1; ok && r < c->world; r++) {
    ok = receive_all(c->peer[r], theirs, bytes);
    if (ok) add(sum, theirs, n, type);
  }
  for (size_t i = 0; i < n; i++) element_set(to, i, type, op == NCCL_AVG ? sum[i] / c->world : sum[i]);
  free(sum);
  free(theirs);
  return ok;
}

static bool spread(NcclComm *c, void *p, size_t bytes) {
  if (c->rank != 0) return receive_all(c->peer[0], p, bytes);
  bool ok = true;
  for (int r = 1; ok && r < c->world; r++) ok = send_all(c->peer[r], p, bytes);
  return ok;
}

NcclResult ncclAllReduce(const void *from, void *to, size_t n, NcclType type, NcclOp op, NcclComm *comm, void *stream) {
  (void)stream;
  MEET("AllReduce");
  collectives++;
  const size_t bytes = n * element_size(type);
  const bool met_all = comm->rank == 0 ? reduce(comm, from, to, n, type, op) : send_all(comm->peer[0], from, bytes);
  return met_all && spread(comm, to, bytes) ? NCCL_SUCCESS : lost();
}

NcclResult ncclAllGather(const void *mine, void *all, size_t n, NcclType type, NcclComm *comm, void *stream) {
  (void)stream;
  MEET("AllGather");
  collectives++;
  const size_t bytes = n * element_size(type);
  bool ok = true;
  if (comm->rank != 0) {
    ok = send_all(comm->peer[0], mine, bytes);
  } else {
    memmove(all, mine, bytes);
    for (int r = 1; ok && r < comm->world; r++) ok = receive_all(comm->peer[r], (char *)all + (size_t)r * bytes, bytes);
  }
  return ok && spread(comm, all, bytes * (size_t)comm->world) ? NCCL_SUCCESS : lost();
}

NcclResult ncclBroadcast(const void *from, void *to, size_t n, NcclType type, int root, NcclComm *comm, void *stream) {
  (void)stream;
  MEET("Broadcast");
  collectives++;
  if (root != 0) return (NcclResult)4; // of no use here
  const size_t bytes = n * element_size(type);
  if (comm->rank == 0 && to != from) memmove(to, from, bytes);
  return spread(comm, to, bytes) ? NCCL_SUCCESS : lost();
}
