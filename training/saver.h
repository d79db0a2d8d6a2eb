// Saver: a state of the engine is taken between two steps and written by a thread beside those that follow.
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include "engine/state.h"

typedef struct SaveOrder {
  StateFile file;
  const char *const *links; // further names that the file gets when it is saved, NULL at the end; NULL = none
  int log;                  // a file that is put on disk before the state is, which follows from it; -1 = none
  double patience;          // seconds that a lack of space or a failing disk may last before the save has failed
} SaveOrder;                // what it points to must outlive the save

typedef struct Saver { // zero-initialise; one save at a time is under way
  bool under_way;      // from saver_take to saver_end
  bool writing;        // from saver_write on
  RunState state;
  const Engine *engine;
  SaveOrder order;
  bool ok;
  Err err; // !ok
  atomic_bool done;
  bool apart; // in a thread
  pthread_t thread;
} Saver;

// Whether a failed write (errno) may succeed later (somebody makes room, a file server comes back), and when to try.
bool saver_may_pass(int reason);
enum { RETRY_MICROSECONDS = 200000 };

// Takes the state after the steps started so far; more may be started at once.
void saver_take(Saver *s, Engine *e, const RunState *state);
// Begins to write what was taken; the engine must outlive it.
void saver_write(Saver *s, const SaveOrder *order);
bool saver_ready(const Saver *s); // being written, and saver_end would not wait
bool saver_busy(const Saver *s);  // taken, and saver_end would wait
// Waits for what is being written, but not where the writer itself asks; saver_end is still to be called.
void saver_wait(const Saver *s);
// Waits until what was taken is on disk, under all its names. False when it could not be written; what stood at the
// path stands. Does nothing when no save is under way.
bool saver_end(Saver *s, Err *err);
