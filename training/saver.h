// Saver: copies the engine's state between two steps and writes it in a thread while steps continue.
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include "engine/state.h"

typedef struct SaveOrder {
  StateFile file;
  const char *const *links; // further names for the finished file, NULL at the end; NULL = none
  int log; // a file that is synced to disk before the state is written, because the state depends on it; -1 = none
  double patience; // seconds to retry when the disk is full or failing before the save has failed
} SaveOrder;       // all pointers must outlive the save

typedef struct Saver { // zero-initialise; one save at a time
  bool under_way;      // from saver_take to saver_end
  bool writing;        // from saver_write on
  RunState state;
  const Engine *engine;
  SaveOrder order;
  bool ok;
  Err err; // !ok
  atomic_bool done;
  bool apart; // writes in a thread
  pthread_t thread;
} Saver;

// Whether a failed write (errno) may succeed later (space is freed, a file server returns), and when to retry.
bool saver_may_pass(int reason);
enum { RETRY_MICROSECONDS = 200000 };

// Takes the state after the steps started so far; further steps may be started at once.
void saver_take(Saver *s, Engine *e, const RunState *state);
// Starts writing the state that was taken; the engine must outlive the write.
void saver_write(Saver *s, const SaveOrder *order);
bool saver_ready(const Saver *s); // a write has finished, and saver_end would not wait
bool saver_busy(const Saver *s);  // a state was taken, and saver_end would wait
// Waits for the current write, unless called by the writer itself; saver_end must still be called.
void saver_wait(const Saver *s);
// Waits until the state is on disk, under all its names. False if it could not be written; the old file is then kept.
// Does nothing if no save is in progress.
bool saver_end(Saver *s, Err *err);
