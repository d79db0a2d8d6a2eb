#include "engine/job.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool job_parse(const char *gpus, int *ranks, Err *err) {
  char *end;
  const long n = strtol(gpus, &end, 10);
  *ranks = !strcmp(gpus, "all") ? 0 : (int)n;
  if (*ranks == 0 && !strcmp(gpus, "all")) return true;
  if (end > gpus && !*end && n >= 1 && n <= MAX_CREW) return true;
  return err_set(err, "--gpus %s: give a number from 1 to %d, or all", gpus, MAX_CREW);
}

static bool on_cpu(const JobOptions *o) { return !strncmp(o->device, "cpu", 3); }

static void meet(Job *j, const JobOptions *o) {
  Err err;
  const CommOptions options = {
      .launch = j->launch, .meeting_seconds = o->rendezvous_timeout, .silence_seconds = o->timeout};
  if (!comm_open(&j->comm, &options, &err)) die(EXIT_USAGE, "%s", err.msg);
}

void job_begin(Job *j, const JobOptions *o) {
  Err err;
  *j = (Job){0};
  snprintf(j->device, sizeof j->device, "%s", o->device);
  if (!launch_from_environment(&j->launch, o->rendezvous, &err)) die(EXIT_USAGE, "%s", err.msg);
  const Launch *l = &j->launch;
  if (l->world == 1) return;
  if (o->gpus > 1 && o->gpus != l->world)
    die(EXIT_USAGE, "--gpus %d, but %s has started %d ranks: leave --gpus out", o->gpus, l->by, l->world);
  if (o->restarts) die(EXIT_USAGE, "--restarts is for --gpus: %s starts ranks again by itself", l->by);
  meet(j, o);
}

// The GPU of a rank: the one of its place on this host, among those that are visible.
static void choose_device(Job *j, const JobOptions *o) {
  if (on_cpu(o) || !j->comm) return;
  snprintf(j->device, sizeof j->device, "cuda:%d", j->launch.local_rank);
}

void job_start(Job *j, const JobOptions *o) {
  if (j->launch.world == 1 && (o->gpus != 1 || o->restarts)) {
    const Supervision s = {.ranks = o->gpus, .restarts = o->restarts, .kept = o->kept, .context = o->context};
    supervise(&s, &j->launch, &j->attempt);
    meet(j, o);
  }
  choose_device(j, o);
}

void job_end(Job *j) {
  comm_close(j->comm);
  j->comm = NULL;
}
