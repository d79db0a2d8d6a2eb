// Snapshot: a host copy of parameters and optimizer state after a step, from which a checkpoint is written. It is
// copied while later steps run.
#pragma once
#include "base/error.h"
#include "nn/params.h"

typedef struct Snapshot {
  const Params *params;
  size_t masters, momentum, second; // bytes; second: Adam's second moments and its state
  size_t average;                   // bytes of the moving averages
  size_t staged_bytes, host_bytes;  // sizes of the next two
  void *staged; // GPUs only: a device copy made between two steps, from which the host's copy is made while they run
  char *host;   // pinned: masters, momentum, second, average, then `values`
  const void *untrained; // CPU: in place of the parameters that are not trained; NULL: those themselves
  float *values;         // one parameter in the form of files
} Snapshot;

// Computes the memory for snapshots of parameters, which must be laid out; allocates nothing.
void snapshot_plan(Snapshot *s, const Params *p);
bool snapshot_allocate(Snapshot *s, Err *err); // does nothing if none is planned
void snapshot_free(Snapshot *s);

// Copies the parameters as they are after everything queued so far; work queued later may change them.
void snapshot_take(Snapshot *s);
// Waits until the copy is on the host; may be called from any thread. False if the device has failed.
bool snapshot_wait(const Snapshot *s);
// A parameter of the snapshot, one of its moments, or its average, in torch's shape and order; valid until the next
// call.
typedef enum SnapshotPart { SNAPSHOT_MASTER, SNAPSHOT_MOMENTUM, SNAPSHOT_SECOND, SNAPSHOT_AVERAGE } SnapshotPart;
const float *snapshot_values(const Snapshot *s, const Param *q, SnapshotPart part);
// Adam's state, real [ADAM_STATE]; false for another optimiser.
bool snapshot_adam(const Snapshot *s, double state[ADAM_STATE]);
