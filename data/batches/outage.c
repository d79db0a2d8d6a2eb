#include "data/batches/outage.h"
#include <stdio.h>
#include <unistd.h>
#include "base/clock.h"

enum { RETRY_EVERY = 100000 }; // microseconds

void outage_open(Outage *o, double patience) {
  *o = (Outage){.patience = patience};
  pthread_mutex_init(&o->lock, NULL);
}

void outage_close(Outage *o) { pthread_mutex_destroy(&o->lock); }

bool outage_wait(Outage *o, double begin, const Err *why) {
  if (o->patience <= 0) return false;
  const double now = now_seconds();
  pthread_mutex_lock(&o->lock);
  const bool first = o->since == 0;
  if (first) o->since = now;
  const bool again = !o->spent && now - MIN(o->since, begin) < o->patience;
  o->spent = !again;
  pthread_mutex_unlock(&o->lock);
  if (first && again) fprintf(stderr, "%s; retrying for up to %g s\n", why->msg, o->patience);
  if (again) usleep(RETRY_EVERY);
  return again;
}

void outage_end(Outage *o) {
  pthread_mutex_lock(&o->lock);
  o->since = 0;
  pthread_mutex_unlock(&o->lock);
}

bool outage_lasts(Outage *o) {
  pthread_mutex_lock(&o->lock);
  const bool lasts = o->since > 0 && o->spent;
  pthread_mutex_unlock(&o->lock);
  return lasts;
}
