// NCCL, NVIDIA's collectives between GPUs, of version 2.17 or newer: opened when a run has several ranks, by dlopen, so
// that nothing is linked and no header of it is needed. What is used of it is declared here, under its own names
// without their nccl.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "base/error.h"

enum { NCCL_OLDEST = 21700 }; // 2.17.0, the first with a communicator's limits of CTAs

typedef struct NcclComm NcclComm; // ncclComm_t is a pointer to it

typedef struct NcclId { // ncclUniqueId: one rank makes it, all begin a communicator with it
  char internal[128];
} NcclId;

// ncclConfig_t as of 2.17.1. Later versions append to it, and go by `size` and `version`.
typedef struct NcclConfig {
  size_t size;
  unsigned magic, version;
  int blocking, cga_cluster_size, min_ctas, max_ctas; // INT_MIN: NCCL's choice
  const char *net_name;
} NcclConfig;

typedef enum NcclResult { // ncclResult_t; those that are told apart
  NCCL_SUCCESS = 0,
  NCCL_SYSTEM_ERROR = 2,
  NCCL_INVALID_USAGE = 5,
  NCCL_REMOTE_ERROR = 6,
  NCCL_IN_PROGRESS = 7
} NcclResult;
typedef enum NcclOp { NCCL_SUM = 0, NCCL_AVG = 4 } NcclOp; // ncclRedOp_t
typedef enum NcclType {
  NCCL_INT8 = 0,
  NCCL_FLOAT32 = 7,
  NCCL_FLOAT64 = 8,
  NCCL_BFLOAT16 = 9
} NcclType; // ncclDataType_t

// Every function that is used: X(result, name, parameters).
// clang-format off
#define EACH_NCCL_CALL(X)                                                                                              \
  X(NcclResult, GetVersion, (int *version))                                                                            \
  X(NcclResult, GetUniqueId, (NcclId *id))                                                                             \
  X(NcclResult, CommInitRankConfig, (NcclComm **comm, int world, NcclId id, int rank, NcclConfig *config))             \
  X(NcclResult, CommDestroy, (NcclComm *comm))                                                                         \
  X(NcclResult, CommGetAsyncError, (NcclComm *comm, NcclResult *error))                                                \
  X(const char *, GetErrorString, (NcclResult result))                                                                 \
  X(const char *, GetLastError, (NcclComm *comm))                                                                      \
  X(NcclResult, AllReduce, (const void *from, void *to, size_t n, NcclType type, NcclOp op, NcclComm *comm,            \
                            void *stream))                                                                             \
  X(NcclResult, AllGather, (const void *mine, void *all, size_t n, NcclType type, NcclComm *comm, void *stream))       \
  X(NcclResult, Broadcast, (const void *from, void *to, size_t n, NcclType type, int root, NcclComm *comm,             \
                            void *stream))
// clang-format on

typedef struct Nccl {
  void *library;
  char name[256]; // under which it was found
  int version;    // 22809: 2.28.9
  NcclComm *comm; // NULL until nccl_begin
  int async_seen; // how often in a row nccl_async_error found one
#define NCCL_MEMBER(result, name, parameters) result(*name) parameters;
  EACH_NCCL_CALL(NCCL_MEMBER)
#undef NCCL_MEMBER
} Nccl;

// Opens the library: $MASKRCNN_NCCL where that is set, else libnccl.so.2, else libnccl.so. False with one line that
// says what was tried or found, and which package has what is needed.
bool nccl_load(Nccl *nccl, Err *err);

// On rank 0: the id with which all begin.
bool nccl_id(Nccl *nccl, NcclId *id, Err *err);
// Begins the communicator on the current device; returns when all ranks did. `ctas`: its thread blocks, each of which
// takes a multiprocessor; 0: NCCL's choice.
bool nccl_begin(Nccl *nccl, const NcclId *id, int rank, int world, int ctas, Err *err);
// Ends it, where it was begun. Nothing may be queued. The library stays open: its threads may outlive it.
void nccl_end(Nccl *nccl);

// Ends the program unless the call, named for the message, was one that NCCL took.
void nccl_check(Nccl *nccl, NcclResult result, const char *call);
// For comm_check: false, with a message, if the communicator failed asynchronously. One that was just found is held
// back for two calls more: where a rank ended, that rank's end is what is to be said, and ends this one, too.
bool nccl_async_ok(Nccl *nccl, Err *err);
