// Outage: files that were there and cannot be read, because a storage is away for a moment.
#pragma once
#include <pthread.h>
#include "base/error.h"

typedef struct Outage {
  double patience; // seconds; 0 = none
  pthread_mutex_t lock;
  double since; // when the first file could not be read, with none read after it: now_seconds(); 0 = no outage
  bool spent;   // a file was given up: files do get lost here, and none is waited for any more
} Outage;

void outage_open(Outage *o, double patience);
void outage_close(Outage *o);
// A file could not be read, which was tried first at `begin`. True, after a moment, when it is to be tried again: as
// long as patience lasts from then on, or from the outage's beginning, if that is earlier. Says so once an outage.
bool outage_wait(Outage *o, double begin, const Err *why);
void outage_end(Outage *o);   // a file could be read
bool outage_lasts(Outage *o); // and patience is over
