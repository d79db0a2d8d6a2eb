// Job: how a program becomes the processes of a run. Those of --gpus are forked after the data has been opened, by a
// process that remains as their supervisor; those of torchrun, srun and mpirun exist already, and meet first, so that
// later mistakes are reported once. Mistakes end the program with one line and exit code 2.
#pragma once
#include "comm/collective.h"
#include "comm/supervisor.h"
#include "nn/device.h"

typedef struct JobOptions {
  int gpus;                           // --gpus: number of ranks to fork; 0: as many as there are GPUs
  const char *device;                 // --device
  const char *rendezvous;             // --rendezvous; NULL: from the launcher's variables
  double timeout, rendezvous_timeout; // seconds
  int restarts;                       // --restarts
  DescribeKept *kept;                 // as in struct Supervision
  void *context;
} JobOptions;

typedef struct Job {
  Launch launch;
  GpuList gpus;    // GPUs of this host for the ranks; empty if not needed
  int ranks;       // of this host
  Comm *comm;      // NULL: a single rank
  char device[32]; // device of this rank
  int attempt;     // restarts before this one
  int64_t left;    // the note of job_leave in earlier attempts; 0: none
} Job;

// Call before any set-up, and before a device is opened: finds out which GPUs there are. Ranks started by a launcher
// have met when it returns.
void job_begin(Job *j, const JobOptions *o);
// Call when everything that ranks can share is set up, and before OpenMP or a device is used. With --gpus it forks the
// ranks, and returns in each of them when they have met, but not in the calling process. Every rank then has its share
// of the cores.
void job_start(Job *j, const JobOptions *o);
// Call when all ranks have agreed to end because one of them, or their supervisor, was asked to: then an exit status
// other than 0 is not a failure, and the run is not restarted.
void job_stopped(Job *j);
// Rank 0 calls it if the run failed in a way that would repeat from the same checkpoint: --restarts then does not
// apply.
void job_over(Job *j);
// Leaves a note, not 0, for a later attempt: something that it has to know and that no checkpoint holds. Rank 0 calls
// it, after a point since job_start at which all ranks have waited for each other.
void job_leave(Job *j, int64_t note);
// Disconnects from the other ranks.
void job_end(Job *j);
