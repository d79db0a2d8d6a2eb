// Launch: which of how many processes this one is, and where they meet: from the variables that torchrun (RANK,
// WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT), srun (SLURM_*) and mpirun (OMPI_COMM_WORLD_*,
// PMI_*) set, or from our own supervisor. Nothing is linked for any of them.
#pragma once
#include <stdbool.h>
#include "base/error.h"
#include "comm/crew.h"

typedef struct Launch {
  int rank, world;             // 0 of 1: alone
  int local_rank, local_world; // among those of this host
  const char *by;              // "torchrun", "srun", "mpirun" or "--gpus"; NULL: alone
  char meet[512];              // "tcp:HOST:PORT" or "file:PATH"
  char token[128];             // of the job: ranks of another one are turned away; "": none known
  int listener;                // rank 0 of a supervisor: a socket that listens already; else -1
  Crew *crew;                  // of a supervisor; NULL: none of ours
} Launch;

// From the environment. `rendezvous` is --rendezvous: "file:PATH", "tcp:HOST:PORT", or NULL: what the starter says.
// World 1 is as good as no starter: alone. False when variables contradict each other or nothing says where to meet.
bool launch_from_environment(Launch *l, const char *rendezvous, Err *err);
