// Job: how a program becomes the processes of a run. Those of --gpus are forked after the data has been set up, from
// a process that stays and owns them; those of torchrun, srun and mpirun are there already, and meet first, so that a
// mistake in what follows is told once. What is wrong ends the program by one line and exit code 2.
#pragma once
#include "comm/collective.h"
#include "comm/supervisor.h"
#include "nn/device.h"

typedef struct JobOptions {
  int gpus;                           // --gpus: how many ranks of this program's own; 0: as many as there are GPUs
  const char *device;                 // --device
  const char *rendezvous;             // --rendezvous; NULL: as the starter says
  double timeout, rendezvous_timeout; // seconds
  int restarts;                       // --restarts
  DescribeKept *kept;                 // as struct Supervision has it
  void *context;
} JobOptions;

typedef struct Job {
  Launch launch;
  GpuList gpus;    // of this host that ranks may take; none where nobody had to know
  int ranks;       // of this host
  Comm *comm;      // NULL: alone
  char device[32]; // of this rank
  int attempt;     // restarts before this one
  int64_t left;    // job_leave's of the attempts before; 0: none
} Job;

// Before anything is set up, and before a device wakes up: looks which GPUs there are. Ranks of another starter have
// met when it returns.
void job_begin(Job *j, const JobOptions *o);
// When everything is set up that ranks may share, and before OpenMP or a device wakes up: in each of the ranks of
// --gpus it returns when they have met; the process that called it does not. Every rank has its share of the cores.
void job_start(Job *j, const JobOptions *o);
// All ranks have agreed to end because one of them, or their supervisor, was asked to: a status other than 0 is then no
// failure, and nothing is started again.
void job_stopped(Job *j);
// The run has failed as it would fail again from the same checkpoint: --restarts does not apply. By the first rank.
void job_over(Job *j);
// What an attempt that follows this one has to know and no checkpoint tells it; not 0. By the first rank, after
// something on which all ranks have waited for each other since job_start.
void job_leave(Job *j, int64_t note);
// Says goodbye.
void job_end(Job *j);
