// Snapshot: a host copy of parameters and optimizer state after a step, from which a checkpoint is written. It is
// copied while the following steps run.
#pragma once
#include "base/error.h"
#include "nn/params.h"

typedef struct Snapshot {
  const Params *params;
  size_t masters, momentum, second; // bytes; second: Adam's second moments and its state
  size_t staged_bytes, host_bytes;  // of the next two
  void *staged;  // GPUs only: a device copy made between two steps, from which the host's copy is made while they run
  char *host;    // pinned: masters, momentum, second, then
  float *values; // one parameter, as files have it
} Snapshot;

// The room for snapshots of parameters that are laid out; nothing is allocated.
void snapshot_plan(Snapshot *s, const Params *p);
bool snapshot_allocate(Snapshot *s, Err *err); // does nothing where none is planned
void snapshot_free(Snapshot *s);

// Copies the parameters as all that has been queued leaves them; what is queued from here on may change them.
void snapshot_take(Snapshot *s);
// Waits until the copy is on the host; for any thread. False when the device has failed.
bool snapshot_wait(const Snapshot *s);
// A parameter of it, or one of its moments, in torch's shape and order; valid until the next call.
typedef enum SnapshotPart { SNAPSHOT_MASTER, SNAPSHOT_MOMENTUM, SNAPSHOT_SECOND } SnapshotPart;
const float *snapshot_values(const Snapshot *s, const Param *q, SnapshotPart part);
// Adam's state, real [ADAM_STATE]; false where the optimiser is another.
bool snapshot_adam(const Snapshot *s, double state[ADAM_STATE]);
