// Shared by the files of the watch: comm/watch.c listens to the other ranks; comm/watch_end.c ends this one, and makes
// sure that exactly one process reports why.
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include "comm/hello.h"
#include "comm/launch.h"
#include "comm/watch_news.h"

enum { NOBODY = -1, END_SECONDS = 6 };

// What to do with a line that die() handed over.
typedef enum Told { TOLD_NOT_YET, TOLD_SPEAK, TOLD_SILENT } Told;

typedef struct Other { // a rank at the other end of a control connection
  Wire wire;
  double heard;   // when the last frame was received
  long long step; // its last reported step
  bool bye;
  bool lost; // its end was noticed, possibly during the rendezvous
} Other;

typedef struct Watch {
  const Launch *l;
  const Peer *peer;
  int rank, world;
  double silence;
  pthread_t thread;
  int wake; // an eventfd: check the members below for changes
  atomic_llong step;
  atomic_bool stop, all_know, closing;
  pthread_mutex_t lock; // guards the following
  pthread_cond_t changed;
  void (*last)(void *context);
  void *last_context;
  bool (*check)(void *context, Err *err);
  void *check_context;
  bool ending;      // the watch's thread ends the process
  bool dying;       // or another thread does, which has a line to report …
  bool handed_over; // … and has handed it over
  Told told;
  int code;
  char line[DIE_LINE]; // without the rank
  // Used only by the watch's thread.
  Other *other; // [world]; those without a connection have no socket
  double turn, beaten, checked;
  bool stop_told;
  int gone; // a rank that vanished, which another process may report; NOBODY
  double gone_since;
  double failed_since; // when `check` first failed; 0: it has not
  Err failure;
  double dying_since; // when rank 0 was told that this process is dying; 0: it was not
  double parent_gone; // when the supervisor disappeared; 0: it has not
  long long parent_beat;
  double parent_heard;
} Watch;

// ---- the end: comm/watch_end.c --------------------------------------------------------------------------------------

bool watch_same_host(const Watch *w, int a, int b);
// Makes this thread the one that ends the process: others that fail wait for it. False: another thread has begun to end
// it, which watch_look_at_dying handles.
bool watch_take_end(Watch *w);
// Whether this process may report why the run ends, among the supervisor and its ranks.
bool watch_claim(const Watch *w, int code);
// Prints what this watch has found out about a rank, followed in parentheses by the existing checkpoint, as die does.
void watch_say(const Watch *w, int rank, long long step, const char *fmt, ...) PRINTF_LIKE(4, 5);
// Formats "rank 2 on HOST: MESSAGE" or, if step is not -1, "rank 2 on HOST, step 7: MESSAGE".
void watch_with_rank(const Watch *w, int rank, long long step, char *line, size_t room, const char *message);
// End this process after calling `last`: watch_end as one of several; watch_end_run as rank 0, which tells all others
// that the reason was reported, and does not wait for the rank `lost` (NOBODY: none).
NORETURN void watch_end(Watch *w, int code);
NORETURN void watch_end_run(Watch *w, int code, int lost);
// If a thread of this process is dying, ends the run on rank 0, or tells rank 0. Otherwise does nothing.
void watch_look_at_dying(Watch *w, double now);
bool watch_tell_line(void *watch, int *code, char *line, size_t room); // the function for die_tells
NORETURN void watch_answer(Watch *w, Told told, int code);             // answers the dying thread
void watch_wake(Watch *w);                                             // makes its thread check for changes
