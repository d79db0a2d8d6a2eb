// Handle: the state that callers share with the handle's thread. Callers copy images into batches (lib/submit.c), the
// thread computes them and makes results (lib/worker.c). That thread makes every call to the engine, including opening,
// closing and page-locked memory, so that the caller's current CUDA device is neither used nor changed.
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include "lib/guard.h"
#include "lib/opened.h"
#include "lib/staging.h"

// Images of one maskrcnn_submit or maskrcnn_run.
typedef struct Submission {
  struct Submission *next; // younger
  maskrcnn_results *results;
  bool in_order;    // handed out by maskrcnn_next and maskrcnn_wait
  bool cancelled;   // what is still computed of it is dropped
  int staged, done; // images that were taken, and images that have results
} Submission;

typedef struct Inspection { // of lib/inspect.h
  void (*what)(Engine *e, void *context);
  void *context;
} Inspection;

typedef struct Fetch { // of an image in the GPU's memory
  void *to;
  const void *from;
  size_t row, rows, pitch; // bytes of a row, how many, bytes from row to row
  bool done, ok;
  Err *err;
} Fetch;

struct maskrcnn {
  pid_t owner; // the process that opened it; in a child of it there is no thread, and locks may be held for good
  pthread_t thread;
  pthread_mutex_t submitting; // of who copies images; taken before `lock`
  pthread_mutex_t lock;       // of what follows
  pthread_cond_t work;        // for the thread: there is something to do, or about to be
  pthread_cond_t change;      // for callers: something was done
  bool closing;
  maskrcnn_status state; // OK; DEAD
  Err death;             // why
  Staging staging;
  bool copying;                    // a submission's pixels are on their way: the thread stays awake
  atomic_bool asked;               // something has changed that the thread looks at
  int waiting;                     // images that have a slot but no results yet
  Submission *first, *last;        // in order, oldest first, not yet handed out
  StagedBatch *grow;               // to get room, on the host and on the device, for …
  size_t grow_bytes;               // … so many bytes, or where there is no memory for them …
  size_t grow_least;               // … for these
  bool grown;                      // whether it did
  size_t room;                     // bytes of a batch that there is room for on the device
  Inspection *look;                // to be done while nothing is under way; NULL: nothing is
  Fetch *fetch;                    // to be done at once; NULL: nothing is
  size_t staged;                   // bytes of room that batches have on the host
  size_t grown_device, grown_host; // bytes that the engine has taken since it was opened, of its own
  size_t most_device, most_host;   // limits; 0: none
  int64_t counter[MAX_COUNTERS];   // sums over the batches that are done
  bool opening;                    // until the thread has opened the model, or has not
  maskrcnn_options *options;       // while opening
  Opened opened;                   // constant once it is opened, but for the engine, which is the thread's
  maskrcnn_log log;                // NULL: nothing is logged
  void *log_context;
  pthread_mutex_t logging; // one line at a time
};

bool handle_is_inherited(const maskrcnn *h); // by a child: nothing else of it may be used
// Says why a call fails, and returns the status. error may be NULL.
maskrcnn_status fail(maskrcnn_error *error, maskrcnn_status status, const char *fmt, ...) PRINTF_LIKE(3, 4);
// What nearly every call asks first: that there is a handle, that it is this process's, and that it is alive.
maskrcnn_status handle_usable(maskrcnn *h, maskrcnn_error *error);
// OK, or DEAD with why. With the lock held.
maskrcnn_status handle_alive(maskrcnn *h, maskrcnn_error *error);
// Tells the caller's log, if there is one. Not with the lock held: it is the caller's code.
void handle_log(maskrcnn *h, maskrcnn_log_level level, const char *fmt, ...) PRINTF_LIKE(3, 4);

// Tells the handle's thread to look again. With the lock held.
void handle_ask(maskrcnn *h);

// Starts the handle's thread, which opens the model, and waits until it has.
maskrcnn_status worker_start(maskrcnn *h, maskrcnn_options *options, maskrcnn_error *error);
// Ends it, with what it computes, and frees what it had.
void worker_end(maskrcnn *h);
