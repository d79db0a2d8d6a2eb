// Launch: this process's rank, the number of ranks, and where they meet, from the variables that torchrun (RANK,
// WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT), srun (SLURM_*) or mpirun (OMPI_COMM_WORLD_*,
// PMI_*) set, or from this program's supervisor. None of them needs a library.
#pragma once
#include <stdbool.h>
#include "base/error.h"
#include "comm/crew.h"

typedef struct Launch {
  int rank, world;             // 0 of 1: a single rank
  int local_rank, local_world; // among the ranks on this host
  const char *by;              // "torchrun", "srun", "mpirun" or "--gpus"; NULL: a single rank
  char meet[512];              // "tcp:HOST:PORT" or "file:PATH"
  char token[128];             // identifies the job: ranks of another job are refused; "": unknown
  int listener;                // rank 0 with a supervisor: a socket that is already listening; otherwise -1
  Crew *crew;                  // shared with the supervisor; NULL: no supervisor
} Launch;

// Reads the environment. `rendezvous` is --rendezvous: "file:PATH", "tcp:HOST:PORT", or NULL: from the launcher's
// variables. World 1 is the same as no launcher: a single rank. False if variables contradict each other or none says
// where to meet.
bool launch_from_environment(Launch *l, const char *rendezvous, Err *err);
