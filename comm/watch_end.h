// What the files of the watch share: comm/watch.c hears the other ranks, comm/watch_end.c ends this one and sees to it
// that one process says why.
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include "comm/hello.h"
#include "comm/launch.h"

enum { FRAME_BEAT = FRAMES_OF_WATCH, FRAME_STOP, FRAME_FAILED, FRAME_END, FRAME_BYE };
enum { NOBODY = -1, END_SECONDS = 6 };

// What became of a line that die() handed over.
typedef enum Told { TOLD_NOT_YET, TOLD_SPEAK, TOLD_SILENT } Told;

typedef struct Other { // a rank at the other end of a control connection
  Wire wire;
  double heard;   // when
  long long step; // of which it last told
  bool bye;
  bool lost; // its end has been heard, which may have come while the ranks met
} Other;

typedef struct Watch {
  const Launch *l;
  const Peer *peer;
  int rank, world;
  double silence;
  pthread_t thread;
  int wake; // an eventfd: look at what has changed below
  atomic_llong step;
  atomic_bool stop, all_know, closing;
  pthread_mutex_t lock; // of what follows
  pthread_cond_t changed;
  void (*last)(void *context);
  void *last_context;
  bool (*check)(void *context, Err *err);
  void *check_context;
  bool ending;      // the process ends by this thread
  bool dying;       // or by another one, which has a line to say …
  bool handed_over; // … and has put it here
  Told told;
  int code;
  char line[DIE_LINE];
  // The thread's own.
  Other *other; // [world]; those without a connection have no socket
  int *handle;  // [world] pidfds of the ranks in these namespaces, or -1
  double turn, beaten, checked;
  bool stop_told;
  int gone; // a rank that vanished, of which another may speak; NOBODY
  double gone_since;
  double failed_since; // since `check` has something to say; 0: it has not
  Err failure;
  double dying_since; // since rank 0 was told of it; 0: it was not
  double parent_gone; // since when the supervisor is; 0: it is not
  long long parent_beat;
  double parent_heard;
} Watch;

// ---- the end: comm/watch_end.c --------------------------------------------------------------------------------------

// Whether two ranks share a host and its namespaces, so that their processes see each other.
bool watch_same_namespaces(const Watch *w, int a, int b);
// Kills a rank in these namespaces that is stopped; does nothing for other ranks or if that is unknown.
void watch_kill_rank(const Watch *w, int rank);
// That the process ends is this thread's business from here on: others that fail wait for it. False: one of them has
// begun to end it, for which watch_look_at_dying is there.
bool watch_take_end(Watch *w);
// Whether this process is to say why the run ends, as far as the supervisor and its ranks go.
bool watch_claim(const Watch *w, int code);
// What this watch has found out about a rank, and in parentheses what stands, as die prints it.
void watch_say(const Watch *w, int rank, long long step, const char *fmt, ...) PRINTF_LIKE(4, 5);
// "rank 2 on HOST: MESSAGE" or, where a step is under way (not -1), "rank 2 on HOST, step 7: MESSAGE".
void watch_with_rank(const Watch *w, int rank, long long step, char *line, size_t room, const char *message);
// End this process, after `last`: as one of several; as rank 0, which tells all others that somebody has said why and
// ends the rank that is `lost` (NOBODY: none); where no supervisor is left that would end ranks which are stopped.
NORETURN void watch_end(Watch *w, int code);
NORETURN void watch_end_run(Watch *w, int code, int lost);
NORETURN void watch_end_crew(Watch *w, int code);
// A thread of this process is dying: it is rank 0, or rank 0 has to know. Goes on where none is.
void watch_look_at_dying(Watch *w, double now);
bool watch_tell_line(void *watch, int *code, char *line, size_t room); // for die_tells
NORETURN void watch_answer(Watch *w, Told told, int code);             // to the thread that is dying
void watch_wake(Watch *w);                                             // its thread looks at what has changed
