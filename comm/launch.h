// Launch: this process's rank, the number of ranks, and where they meet, from the variables that torchrun (RANK,
// WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT), srun (SLURM_*) or mpirun (OMPI_COMM_WORLD_*,
// PMI_*) set, or from this program's supervisor. None of them needs a library.
#pragma once
#include <stdbool.h>
#include "base/error.h"
#include "base/hmac.h"
#include "comm/crew.h"

typedef struct Launch {
  int rank, world;             // 0 of 1: a single rank
  int local_rank, local_world; // among the ranks on this host
  const char *by;              // "torchrun", "srun", "mpirun" or "--gpus"; NULL: a single rank
  char meet[512];              // "tcp:HOST:PORT" or "file:PATH"
  char job[128];               // the launcher's name of the job, which is no secret; "": unknown
  uint8_t key[SHA256_BYTES];   // ranks prove to each other that they know it: comm/session.h
  bool secret;                 // others cannot know the key
  int listener;                // rank 0 with a supervisor: a socket that is already listening; otherwise -1
  Crew *crew;                  // shared with the supervisor; NULL: no supervisor
} Launch;

// The key is 32 random bytes with --gpus, where it never leaves the memory of the processes. Otherwise it is the
// SHA-256 of $MASKRCNN_JOB or, if that is not set, of `job`, which keeps runs apart, but no stranger out. A rendezvous
// file adds a secret of its own (comm/meeting_file.h).
//
// Reads the environment. `rendezvous` is --rendezvous: "file:PATH", "tcp:HOST:PORT", or NULL: from the launcher's
// variables. World 1 is the same as no launcher: a single rank. False if variables contradict each other or none says
// where to meet.
bool launch_from_environment(Launch *l, const char *rendezvous, Err *err);
