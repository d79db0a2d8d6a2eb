#include "comm/job.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/interrupt.h"
#include "comm/cores.h"
#include "comm/ranks.h"

static void meet(Job *j, const JobOptions *o) {
  Err err;
  const CommOptions options = {
      .launch = j->launch, .meeting_seconds = o->rendezvous_timeout, .silence_seconds = o->timeout};
  // A request to stop is not a failure.
  if (!comm_open(&j->comm, &options, &err)) die(interrupted() ? EXIT_RUN : EXIT_USAGE, "%s", err.msg);
}

void job_begin(Job *j, const JobOptions *o) {
  Err err;
  *j = (Job){0};
  snprintf(j->device, sizeof j->device, "%s", o->device);
  if (!launch_from_environment(&j->launch, o->rendezvous, &err)) die(EXIT_USAGE, "%s", err.msg);
  const Launch *l = &j->launch;
  j->ranks = l->local_world;
  if (l->world == 1 && !ranks_count(o->gpus, o->device, &j->gpus, &j->ranks, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (l->world == 1) return;
  if (o->gpus > 1 && o->gpus != l->world)
    die(EXIT_USAGE, "--gpus %d, but %s has already started %d ranks: leave --gpus out", o->gpus, l->by, l->world);
  if (o->restarts)
    die(EXIT_USAGE, "--restarts works with --gpus only; %s restarts its ranks itself: leave --restarts out", l->by);
  ranks_locate(o->device, &j->gpus);
  meet(j, o);
}

// False for srun and mpirun, which divide the cores themselves.
static bool shares_cores(const Job *j) {
  const char *by = j->launch.by;
  return j->comm && by && (!strcmp(by, "--gpus") || !strcmp(by, "torchrun"));
}

static void take_cores(const Job *j) {
  const char *bus_id[MAX_LOCATED];
  const Launch *l = &j->launch;
  for (int i = 0; i < j->gpus.count; i++) bus_id[i] = j->gpus.bus_id[i];
  cores_take(j->gpus.count >= l->local_world ? bus_id : NULL, l->local_world, l->local_rank);
}

void job_start(Job *j, const JobOptions *o) {
  if (j->launch.world == 1 && (j->ranks != 1 || o->restarts)) {
    const Supervision s = {.ranks = j->ranks, .restarts = o->restarts, .kept = o->kept, .context = o->context};
    supervise(&s, &j->launch, &j->attempt);
    j->left = atomic_load(&j->launch.crew->note);
    meet(j, o);
  }
  if (!j->comm) return;
  ranks_device(j->device, sizeof j->device, o->device, &j->gpus, j->launch.local_rank);
  if (shares_cores(j)) take_cores(j);
}

void job_stopped(Job *j) {
  if (j->launch.crew) atomic_store(&j->launch.crew->stop, 1);
}

void job_over(Job *j) {
  if (j->launch.crew) atomic_store(&j->launch.crew->over, 1);
}

void job_leave(Job *j, int64_t note) {
  if (j->launch.crew) atomic_store(&j->launch.crew->note, note);
}

void job_end(Job *j) {
  comm_close(j->comm);
  j->comm = NULL;
}
