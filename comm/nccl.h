// NCCL, NVIDIA's library of collectives between GPUs, version 2.17 or newer. It is opened with dlopen when a run has
// several ranks, so that neither linking nor its header is needed. The parts that are used are declared here, under
// NCCL's names without the prefix nccl.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "base/error.h"

enum { NCCL_OLDEST = 21700 }; // 2.17.0, the first version with limits on a communicator's CTAs

typedef struct NcclComm NcclComm; // ncclComm_t is a pointer to this

typedef struct NcclId { // ncclUniqueId: made by one rank, used by all to create a communicator
  char internal[128];
} NcclId;

// ncclConfig_t as of 2.17.1. Later versions append members, and check `size` and `version`.
typedef struct NcclConfig {
  size_t size;
  unsigned magic, version;
  int blocking, cga_cluster_size, min_ctas, max_ctas; // INT_MIN: NCCL's default
  const char *net_name;
} NcclConfig;

typedef enum NcclResult { // ncclResult_t; only values that are distinguished
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
  char name[256]; // file name of the library
  int version;    // 22809: 2.28.9
  NcclComm *comm; // NULL until nccl_begin
  int async_seen; // consecutive calls of nccl_async_ok that saw an error
#define NCCL_MEMBER(result, name, parameters) result(*name) parameters;
  EACH_NCCL_CALL(NCCL_MEMBER)
#undef NCCL_MEMBER
} Nccl;

// Opens the library: $MASKRCNN_NCCL if that is set, otherwise libnccl.so.2 or libnccl.so. False with a line that says
// what was tried or found, and which package to install.
bool nccl_load(Nccl *nccl, Err *err);

// On rank 0: makes the id that all ranks need for nccl_begin.
bool nccl_id(Nccl *nccl, NcclId *id, Err *err);
// Creates the communicator on the current device; returns when all ranks have. `ctas`: its thread blocks, each of which
// occupies a multiprocessor; 0: NCCL's default.
bool nccl_begin(Nccl *nccl, const NcclId *id, int rank, int world, int ctas, Err *err);
// Destroys the communicator, if there is one. Nothing may be queued. The library stays open, because its threads may
// outlive the communicator.
void nccl_end(Nccl *nccl);

// Ends the program if the call, named for the message, failed.
void nccl_check(Nccl *nccl, NcclResult result, const char *call);
// For comm_check: false, with a message, if the communicator failed asynchronously. A new error is held back for two
// more calls: if it was caused by the end of a rank, that end should be reported, and will end this process too.
bool nccl_async_ok(Nccl *nccl, Err *err);
