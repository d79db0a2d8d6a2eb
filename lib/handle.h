// Handle: the state that callers share with the handle's thread. Callers copy images into batches (lib/submit.c), the
// thread computes them and makes results (lib/worker.c). That thread makes every call to the engine, including opening,
// closing and page-locked memory, so that the caller's current CUDA device, OpenMP settings, locale and rounding mode
// are neither used nor changed.
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include "lib/opened.h"
#include "lib/staging.h"

// Images of one maskrcnn_submit or maskrcnn_run.
typedef struct Submission {
  struct Submission *next; // younger
  maskrcnn_results *results;
  bool in_order;    // handed out by maskrcnn_next, after those that were staged before
  int staged, done; // images that were ever given a slot, and images that have results
} Submission;

typedef struct Inspection { // of lib/inspect.h
  void (*what)(Engine *e, void *context);
  void *context;
} Inspection;

enum { MESSAGE = 2048 };

struct maskrcnn {
  pid_t owner; // the process that opened it; in a child of it there is no thread, and locks may be held for good
  pthread_t thread;
  pthread_mutex_t submitting; // of who copies images; taken before `lock`
  pthread_mutex_t lock;       // of what follows
  pthread_cond_t work;        // for the thread: there is something to do, or about to be
  pthread_cond_t change;      // for callers: something was done
  bool closing;
  maskrcnn_status state; // OK; DEAD
  char death[MESSAGE];   // why
  Staging staging;
  bool copying;                  // a submission's pixels are on their way: the thread stays awake
  atomic_bool asked;             // something has changed that the thread looks at
  int waiting;                   // images that have a slot but no results yet
  Submission *first, *last;      // in order, oldest first, not yet handed out
  StagedBatch *grow;             // to get room, on the host and on the device, for …
  size_t grow_bytes;             // … so many bytes, or where there is no memory for them …
  size_t grow_least;             // … for these
  bool grown;                    // whether it did
  size_t room;                   // bytes of a batch that there is room for on the device
  Inspection *look;              // to be done while nothing is under way; NULL: nothing is
  int64_t counter[MAX_COUNTERS]; // sums over the batches that are done
  bool opening;                  // until the thread has opened the model, or has not
  maskrcnn_options *options;     // while opening
  Opened opened;                 // constant once it is opened, but for the engine, which is the thread's
  pthread_mutex_t saying;        // of `message`; taken after `lock`
  char message[MESSAGE];
};

bool handle_is_inherited(const maskrcnn *h); // by a child: nothing else of it may be used
// Says why a call fails, and returns the status.
maskrcnn_status handle_fail(maskrcnn *h, maskrcnn_status status, const char *fmt, ...) PRINTF_LIKE(3, 4);
// OK, or DEAD with why. With the lock held.
maskrcnn_status handle_alive(maskrcnn *h);

// Tells the handle's thread to look again. With the lock held.
void handle_ask(maskrcnn *h);

// Starts the handle's thread, which opens the model, and waits until it has.
maskrcnn_status worker_start(maskrcnn *h, maskrcnn_options *options);
// Ends it, with what it computes, and frees what it had.
void worker_end(maskrcnn *h);

// Whether n images can be used.
maskrcnn_status submit_check(maskrcnn *h, const maskrcnn_image *images, int n);
// Copies n images that can be used as images `first`, `first` + 1, … of `s`. MASKRCNN_FULL, and after a failure, too:
// none of them.
maskrcnn_status submit_stage(maskrcnn *h, Submission *s, int first, const maskrcnn_image *images, int n);
