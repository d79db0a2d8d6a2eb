// Outage: files that existed cannot be read for a while because the storage is unavailable.
#pragma once
#include <pthread.h>
#include "base/error.h"

typedef struct Outage {
  double patience; // seconds; 0 = none
  pthread_mutex_t lock;
  double since; // time of the first failed read with no successful one after it: now_seconds(); 0 = no outage
  bool spent;   // a file was given up: the storage loses files, so no further file is waited for
} Outage;

void outage_open(Outage *o, double patience);
void outage_close(Outage *o);
// A file, first tried at `begin`, could not be read. Waits a moment and returns true if it should be tried again: while
// patience lasts, counted from `begin` or from the outage's beginning, whichever is earlier. Prints a message once per
// outage.
bool outage_wait(Outage *o, double begin, const Err *why);
void outage_end(Outage *o);   // a file was read successfully
bool outage_lasts(Outage *o); // and patience is over
