#include "comm/watch.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/interrupt.h"

enum { FRAME_BEAT = FRAMES_OF_WATCH, FRAME_STOP, FRAME_FAILED, FRAME_END, FRAME_BYE };
enum { NOBODY = -1, END_SECONDS = 6 };
static const double beat_seconds = 0.5, look_seconds = 0.2, grace_seconds = 2;

// What became of a line that die() handed over.
typedef enum Told { TOLD_NOT_YET, TOLD_SPEAK, TOLD_SILENT } Told;

typedef struct Other { // a rank at the other end of a control connection
  Wire wire;
  double heard;   // when
  long long step; // of which it last told
  bool bye;
  bool lost; // its end has been heard, which may have come while the ranks met
} Other;

struct Watch {
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
  int *handle;  // [world] pidfds of the ranks of this place, or -1
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
};

// ---- the end ------------------------------------------------------------------------------------------------------

static bool same_place(const Watch *w, int a, int b) { return !strcmp(w->peer[a].place, w->peer[b].place); }

// For a rank that is stopped, where nobody else would. A handle names a process even after another has its number.
static void kill_rank(const Watch *w, int rank) {
  if (rank >= 0 && w->handle[rank] >= 0) syscall(SYS_pidfd_send_signal, w->handle[rank], SIGKILL, NULL, 0);
}

// What this process has said so far gets out, unless a thread that hangs is at it.
static void flush_output(void) {
  if (ftrylockfile(stdout) != 0) return;
  fflush_unlocked(stdout);
  funlockfile(stdout);
}

// An end that hangs is one by SIGALRM.
static void limit_end(void) {
  signal(SIGALRM, SIG_DFL);
  alarm(END_SECONDS);
}

// That the process ends is this thread's business from here on: others that fail wait for it. False: one of them has
// begun to end it, for which look_at_dying is there.
static bool take_end(Watch *w) {
  pthread_mutex_lock(&w->lock);
  w->ending = !w->dying;
  const bool taken = w->ending;
  pthread_mutex_unlock(&w->lock);
  return taken;
}

static void save_last(Watch *w) {
  limit_end();
  pthread_mutex_lock(&w->lock);
  void (*last)(void *) = w->last;
  pthread_mutex_unlock(&w->lock);
  if (last) last(w->last_context);
}

// Whether a process is stopped, as by SIGSTOP: it ends by SIGKILL alone.
static bool process_stopped(pid_t pid) {
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  const ssize_t got = file < 0 ? 0 : read(file, text, sizeof text - 1);
  if (file >= 0) close(file);
  text[MAX(got, 0)] = '\0';
  const char *name_end = strrchr(text, ')');
  return name_end && !strncmp(name_end, ") T", 3);
}

// Ranks of this place that are stopped would be left, and so would a supervisor.
static void end_stopped(const Watch *w) {
  for (int i = 0; i < w->world; i++)
    if (w->handle[i] >= 0 && process_stopped(w->peer[i].pid)) kill_rank(w, i);
  if (!w->l->crew) return;
  const pid_t supervisor = w->l->crew->supervisor;
  if (getppid() == supervisor && process_stopped(supervisor)) kill(supervisor, SIGKILL);
}

NORETURN static void end_by_watch(Watch *w, int code) {
  save_last(w);
  end_stopped(w);
  flush_output();
  _exit(code);
}

// Of --gpus. Its handle tells that it has ended before anybody has collected it.
static bool rank_lives(const Watch *w, int rank) {
  const pid_t pid = w->l->crew->rank[rank].pid;
  if (w->handle[rank] >= 0) return poll(&(struct pollfd){.fd = w->handle[rank], .events = POLLIN}, 1, 0) == 0;
  return pid > 0 && (kill(pid, 0) == 0 || errno == EPERM);
}

// Nobody else is left to end ranks that are stopped: each waits for those after it.
NORETURN static void end_without_supervisor(Watch *w, int code) {
  const double deadline = now_seconds() + 5;
  Crew *crew = w->l->crew;
  save_last(w);
  end_stopped(w);
  flush_output();
  for (int i = w->rank + 1; i < w->world; i++) {
    while (rank_lives(w, i) && now_seconds() < deadline) poll(NULL, 0, 20);
    if (rank_lives(w, i)) kill(crew->rank[i].pid, SIGKILL);
  }
  _exit(code);
}

// "rank 2 on HOST: MESSAGE" or, where a step is under way, "rank 2 on HOST, step 7: MESSAGE".
static void with_rank(const Watch *w, int rank, long long step, char *line, size_t room, const char *message) {
  char at[32] = "";
  if (step >= 0) snprintf(at, sizeof at, ", step %lld", step);
  snprintf(line, room, "rank %d on %s%s: %s", rank, w->peer[rank].host, at, message);
}

// What this watch has found out about a rank, and in parentheses what stands.
PRINTF_LIKE(4, 5) static void say(const Watch *w, int rank, long long step, const char *fmt, ...) {
  char what[512], about[512], text[1100], line[DIE_LINE];
  va_list args;
  va_start(args, fmt);
  vsnprintf(what, sizeof what, fmt, args);
  va_end(args);
  die_about(about, sizeof about);
  snprintf(text, sizeof text, *about ? "%s (%s)" : "%s", what, about);
  with_rank(w, rank, step, line, sizeof line, text);
  die_print(text_clean(line));
}

// Whether this process is to say why the run ends, as far as the supervisor and its ranks go.
static bool claim(const Watch *w, int code) { return !w->l->crew || crew_claim(w->l->crew, code); }

// Rank 0 tells all others that the run ends, and waits until they have heard it: what has arrived here and is not read
// when this process ends would take it from them.
static void tell_end(Watch *w, int code, int lost) {
  const double deadline = now_seconds() + 3;
  for (int i = 1; i < w->world; i++) {
    wire_send(&w->other[i].wire, FRAME_END, code, lost, "");
    wire_shut(&w->other[i].wire);
  }
  Frame *frame = xmalloc(sizeof *frame);
  for (bool left = true; left && now_seconds() < deadline;) {
    left = false;
    for (int i = 1; i < w->world; i++) {
      Wire *wire = &w->other[i].wire;
      wire_receive(wire);
      while (wire_next(wire, frame) == WIRE_FRAME) continue;
      left |= i != lost && !wire->ended;
    }
    if (left) poll(NULL, 0, 5);
  }
  free(frame);
}

// Rank 0: the run is over, and somebody has said why.
NORETURN static void end_run(Watch *w, int code, int lost) {
  tell_end(w, code, lost);
  kill_rank(w, lost);
  end_by_watch(w, code);
}

// ---- die() --------------------------------------------------------------------------------------------------------

static void wake(Watch *w) {
  if (write(w->wake, &(uint64_t){1}, sizeof(uint64_t)) < 0) return; // it is awake
}

// Until another thread has ended this process.
NORETURN static void wait_for_exit(void) {
  for (;;) poll(NULL, 0, 1000);
}

// Without a supervisor: the watch passes the line on to rank 0, and waits for its answer.
static bool tell_watch(Watch *w, int *code, const char *line) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += 5;
  pthread_mutex_lock(&w->lock);
  if (w->told == TOLD_NOT_YET) w->code = *code;
  snprintf(w->line, sizeof w->line, "%s", line);
  w->handed_over = true;
  wake(w);
  while (w->told == TOLD_NOT_YET && pthread_cond_timedwait(&w->changed, &w->lock, &until) != ETIMEDOUT) continue;
  const bool silent = w->told == TOLD_SILENT;
  *code = w->code;
  pthread_mutex_unlock(&w->lock);
  return silent;
}

// For die_tells.
static bool tell_line(void *context, int *code, char *line, size_t room) {
  Watch *w = context;
  if (pthread_equal(pthread_self(), w->thread)) return true; // by `last`: the reason has been given
  pthread_mutex_lock(&w->lock);
  const bool others = w->ending || w->dying;
  w->dying = !w->ending;
  pthread_mutex_unlock(&w->lock);
  if (others) wait_for_exit();
  limit_end();
  if (!w->all_know) {
    char *message = xstrdup(line);
    with_rank(w, w->rank, w->step, line, room, message);
    free(message);
  }
  Crew *crew = w->l->crew;
  if (!crew) return tell_watch(w, code, line);
  if (crew_claim(crew, *code)) return false;
  *code = crew_code(crew);
  return true;
}

NORETURN static void answer(Watch *w, Told told, int code) {
  pthread_mutex_lock(&w->lock);
  w->told = told;
  w->code = code;
  pthread_cond_broadcast(&w->changed);
  pthread_mutex_unlock(&w->lock);
  wait_for_exit();
}

// A thread of this process is dying: it is rank 0, or rank 0 has to know.
static void look_at_dying(Watch *w, double now) {
  pthread_mutex_lock(&w->lock);
  const bool dying = w->handed_over;
  const int code = w->code;
  pthread_mutex_unlock(&w->lock);
  if (!dying) return;
  if (w->rank == 0) {
    tell_end(w, code, NOBODY);
    answer(w, TOLD_SPEAK, code);
  }
  if (!w->dying_since) {
    w->dying_since = now;
    if (!w->all_know) wire_send(&w->other[0].wire, FRAME_FAILED, code, 0, w->line);
  }
  const bool late = now - w->dying_since > (w->all_know ? 4 : 2);
  if (late || w->other[0].wire.ended) answer(w, w->all_know ? TOLD_SILENT : TOLD_SPEAK, code);
}

// ---- others -------------------------------------------------------------------------------------------------------

static bool rank_0_has_company(const Watch *w) {
  for (int i = 1; i < w->world; i++)
    if (same_place(w, i, 0)) return true;
  return false;
}

// Whether this rank is the first of its place, rank 0 left aside.
static bool first_of_place(const Watch *w) {
  for (int i = 1; i < w->rank; i++)
    if (same_place(w, i, w->rank)) return false;
  return true;
}

// Whether it falls to this rank to say that rank 0 is lost.
static bool speaks_of_rank_0(const Watch *w) {
  return (same_place(w, 0, w->rank) || !rank_0_has_company(w)) && first_of_place(w);
}

static const char vanished[] = "it is gone without a word, as a process is that was killed";

// A connection has ended without a goodbye.
static void on_vanished(Watch *w, int rank, double now) {
  if (w->closing || w->gone != NOBODY) return;
  if (w->l->crew) {
    w->gone = rank;
    w->gone_since = now;
    return;
  }
  if (!take_end(w)) return;
  const long long step = w->other[rank].step;
  if (w->rank == 0) {
    say(w, rank, step, "%s", vanished);
    end_run(w, EXIT_RUN, NOBODY);
  }
  if (speaks_of_rank_0(w)) say(w, rank, step, "%s", vanished);
  end_by_watch(w, EXIT_RUN);
}

// Of a rank that vanished the supervisor knows more. Where it says nothing:
static void look_at_gone(Watch *w, double now) {
  if (w->gone == NOBODY || now - w->gone_since < grace_seconds || !take_end(w)) return;
  if (crew_claim(w->l->crew, EXIT_RUN)) say(w, w->gone, w->other[w->gone].step, "%s", vanished);
  end_by_watch(w, EXIT_RUN);
}

static void say_silent(const Watch *w, int rank, double now) {
  if (claim(w, EXIT_RUN))
    say(w, rank, w->other[rank].step, "it has been silent for %.0f s: the process is stopped, or its host or network",
        now - w->other[rank].heard);
}

static void on_silent(Watch *w, int rank, double now) {
  if (w->rank == 0) {
    if (!take_end(w)) return;
    say_silent(w, rank, now);
    end_run(w, EXIT_RUN, rank);
  }
  const bool here = same_place(w, 0, w->rank);
  // Who speaks of it ends it; then its connection ends, too. Who came before would have it look killed.
  const bool others = rank_0_has_company(w) && !speaks_of_rank_0(w);
  if (!w->l->crew && others && now - w->other[0].heard < w->silence + grace_seconds) return;
  if (!take_end(w)) return;
  if (w->l->crew || (here ? speaks_of_rank_0(w) : first_of_place(w))) say_silent(w, 0, now);
  wire_send(&w->other[0].wire, FRAME_FAILED, EXIT_RUN, 0, ""); // for when it moves again: all is said
  if (here) kill_rank(w, 0);
  end_by_watch(w, EXIT_RUN);
}

static void on_frame(Watch *w, int rank, Frame *f) {
  text_clean(f->text);
  if (f->type == FRAME_BEAT) w->other[rank].step = f->number;
  if (f->type == FRAME_STOP) w->stop = true;
  if (f->type == FRAME_BYE) w->other[rank].bye = true;
  if (f->type == FRAME_FAILED && w->rank == 0) {
    if (!take_end(w)) return;
    if (*f->text && claim(w, f->code)) die_print(f->text);
    end_run(w, f->code, NOBODY);
  }
  if (f->type == FRAME_END && w->rank) {
    wire_shut(&w->other[0].wire);
    if (f->number > 0 && f->number < w->world && f->number != w->rank) kill_rank(w, (int)f->number);
    if (!take_end(w)) answer(w, TOLD_SILENT, f->code);
    end_by_watch(w, f->code);
  }
}

static void hear(Watch *w, int rank, double now, Frame *frame) {
  Other *o = &w->other[rank];
  if (o->wire.fd < 0 || o->lost) return;
  wire_receive(&o->wire);
  WireFound found;
  while ((found = wire_next(&o->wire, frame)) == WIRE_FRAME) {
    o->heard = now;
    on_frame(w, rank, frame);
  }
  if (found == WIRE_STRANGER || found == WIRE_OTHER_VERSION) o->wire.ended = true;
  o->lost = o->wire.ended;
  if (o->lost && !o->bye) on_vanished(w, rank, now);
}

static void look_for_silence(Watch *w, double now) {
  if (w->closing) return;
  for (int i = 0; i < w->world; i++) {
    const Other *o = &w->other[i];
    if (o->wire.fd >= 0 && !o->wire.ended && !o->bye && now - o->heard > w->silence) on_silent(w, i, now);
  }
}

// ---- this rank ----------------------------------------------------------------------------------------------------

static void send_to_others(Watch *w, int type, long long number) {
  for (int i = 0; i < w->world; i++) {
    Wire *wire = &w->other[i].wire;
    if (type == FRAME_BEAT && wire->out_bytes) continue; // nobody listens: it need not know how long
    wire_send(wire, type, 0, number, "");
  }
}

static void beat(Watch *w, double now) {
  for (int i = 0; i < w->world; i++) wire_flush(&w->other[i].wire);
  if (now - w->beaten < beat_seconds) return;
  w->beaten = now;
  send_to_others(w, FRAME_BEAT, w->step);
}

static void spread_stop(Watch *w) {
  const Crew *crew = w->l->crew;
  if (interrupted() || (crew && crew->stop)) w->stop = true;
  if (!w->stop || w->stop_told) return;
  w->stop_told = true;
  send_to_others(w, FRAME_STOP, 0);
}

static void report_failure(Watch *w, double now) {
  char line[DIE_LINE];
  with_rank(w, w->rank, w->step, line, sizeof line, w->failure.msg);
  if (!w->l->crew && w->rank) {
    wire_send(&w->other[0].wire, FRAME_FAILED, EXIT_RUN, 0, line);
    w->failed_since = now + END_SECONDS; // rank 0 says it, and that the run ends
    return;
  }
  if (!take_end(w)) return;
  if (claim(w, EXIT_RUN)) die_print(line);
  if (w->rank == 0) end_run(w, EXIT_RUN, NOBODY);
  end_by_watch(w, EXIT_RUN);
}

// What `check` finds is often that another rank is gone, of which that rank's end tells more: it waits a little.
static void look_at_check(Watch *w, double now) {
  if (w->failed_since && now - w->failed_since > 1.5) report_failure(w, now);
  if (now - w->checked < 1 || w->failed_since || w->closing) return;
  w->checked = now;
  pthread_mutex_lock(&w->lock);
  bool (*check)(void *, Err *) = w->check;
  void *context = w->check_context;
  pthread_mutex_unlock(&w->lock);
  if (check && !check(context, &w->failure)) w->failed_since = now;
}

// Whether the supervisor lives and moves.
static bool supervised(Watch *w, double now) {
  Crew *crew = w->l->crew;
  if (getppid() != crew->supervisor) return false;
  if (crew->beat != w->parent_beat) {
    w->parent_beat = crew->beat;
    w->parent_heard = now;
  }
  return now - w->parent_heard <= w->silence;
}

static void look_at_crew(Watch *w, double now) {
  Crew *crew = w->l->crew;
  if (!crew || w->closing) return;
  crew->rank[w->rank].step = w->step;
  const bool parent = supervised(w, now);
  if (crew_code(crew)) {
    if (!take_end(w)) return;
    if (!parent) end_without_supervisor(w, crew_code(crew));
    end_by_watch(w, crew_code(crew));
  }
  if (parent) return;
  if (!w->parent_gone) w->parent_gone = now;
  if (w->rank && now - w->parent_gone < 1) return; // rank 0 says it, if it lives
  if (!take_end(w)) return;
  const bool gone = getppid() != crew->supervisor;
  if (crew_claim(crew, EXIT_RUN))
    say(w, w->rank, w->step, "the supervisor, process %ld, %s", (long)crew->supervisor,
        gone ? "is gone, and the run ends with it" : "is silent: it is stopped, and the run ends");
  if (!gone) kill(crew->supervisor, SIGKILL); // stopped: it would be left
  end_without_supervisor(w, EXIT_RUN);
}

// ---- the thread ---------------------------------------------------------------------------------------------------

// After a time in which this process was stopped, what others have not said meanwhile means nothing.
static void notice_pause(Watch *w, double now) {
  const bool paused = now - w->turn > w->silence / 2;
  w->turn = now;
  if (!paused) return;
  for (int i = 0; i < w->world; i++) w->other[i].heard = now;
  w->parent_heard = now;
}

static bool all_gone(const Watch *w) {
  for (int i = 0; i < w->world; i++)
    if (w->other[i].wire.fd >= 0 && !w->other[i].wire.ended) return false;
  return true;
}

static void wait_for_news(Watch *w, struct pollfd *p) {
  int n = 0;
  p[n++] = (struct pollfd){.fd = w->wake, .events = POLLIN};
  for (int i = 0; i < w->world; i++)
    if (w->other[i].wire.fd >= 0 && !w->other[i].wire.ended)
      p[n++] = (struct pollfd){.fd = w->other[i].wire.fd, .events = POLLIN};
  poll(p, (nfds_t)n, (int)(1e3 * look_seconds));
  uint64_t woken;
  if (p[0].revents && read(w->wake, &woken, sizeof woken) < 0) return; // another turn
}

// Goodbye, until the others have said it as well.
static void leave_others(Watch *w, struct pollfd *p, Frame *frame) {
  const double deadline = now_seconds() + grace_seconds;
  send_to_others(w, FRAME_BYE, 0);
  for (int i = 0; i < w->world; i++) wire_shut(&w->other[i].wire);
  while (!all_gone(w) && now_seconds() < deadline) {
    wait_for_news(w, p);
    for (int i = 0; i < w->world; i++) hear(w, i, now_seconds(), frame);
  }
}

static void *watch_run(void *context) {
  Watch *w = context;
  struct pollfd *p = xcalloc((size_t)w->world + 1, sizeof *p);
  Frame *frame = xmalloc(sizeof *frame);
  while (!w->closing) {
    wait_for_news(w, p);
    const double now = now_seconds();
    notice_pause(w, now);
    for (int i = 0; i < w->world; i++) hear(w, i, now, frame);
    look_at_dying(w, now);
    spread_stop(w);
    beat(w, now);
    look_at_crew(w, now);
    look_at_gone(w, now);
    look_for_silence(w, now);
    look_at_check(w, now);
  }
  leave_others(w, p, frame);
  free(frame);
  free(p);
  return NULL;
}

// Signals are the other threads', so that their calls are interrupted; but for the one that ends an end.
static void start_thread(Watch *w) {
  sigset_t all, before;
  sigfillset(&all);
  sigdelset(&all, SIGALRM);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failed = pthread_create(&w->thread, NULL, watch_run, w);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (failed) die(EXIT_RUN, "cannot start a thread: %s", strerror(failed));
}

Watch *watch_open(const Launch *l, const Peer *peer, Wire *control, double silence) {
  Watch *w = xcalloc(1, sizeof *w);
  *w = (Watch){.l = l, .peer = peer, .rank = l->rank, .world = l->world, .silence = silence, .gone = NOBODY};
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&w->changed, &monotonic);
  pthread_condattr_destroy(&monotonic);
  pthread_mutex_init(&w->lock, NULL);
  w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  CHECK(w->wake >= 0);
  w->step = -1;
  w->turn = w->parent_heard = now_seconds();
  w->other = xcalloc((size_t)w->world, sizeof *w->other);
  w->handle = xcalloc((size_t)w->world, sizeof *w->handle);
  for (int i = 0; i < w->world; i++) {
    w->other[i] = (Other){.wire = control[i], .heard = w->turn, .step = -1};
    control[i] = (Wire){.fd = -1};
    const bool here = i != w->rank && same_place(w, i, w->rank);
    w->handle[i] = here ? (int)syscall(SYS_pidfd_open, w->peer[i].pid, 0) : -1;
  }
  start_thread(w);
  die_tells(tell_line, w);
  return w;
}

void watch_close(Watch *w) {
  w->closing = true;
  wake(w);
  pthread_join(w->thread, NULL);
  die_tells(NULL, NULL);
  for (int i = 0; i < w->world; i++) {
    wire_close(&w->other[i].wire);
    if (w->handle[i] >= 0) close(w->handle[i]);
  }
  close(w->wake);
  pthread_cond_destroy(&w->changed);
  pthread_mutex_destroy(&w->lock);
  free(w->other);
  free(w->handle);
  free(w);
}

// -------------------------------------------------------------------------------------------------------------------

void watch_at(Watch *w, int64_t step) { w->step = step; }
bool watch_stop_asked(const Watch *w) { return w->stop; }
void watch_all_know(Watch *w) { w->all_know = true; }

void watch_last(Watch *w, void (*last)(void *context), void *context) {
  pthread_mutex_lock(&w->lock);
  w->last = last;
  w->last_context = context;
  pthread_mutex_unlock(&w->lock);
}

void watch_check(Watch *w, bool (*check)(void *context, Err *err), void *context) {
  pthread_mutex_lock(&w->lock);
  w->check = check;
  w->check_context = context;
  pthread_mutex_unlock(&w->lock);
}

void watch_wait_for_end(Watch *w, int rank) {
  const double deadline = now_seconds() + w->silence + 10;
  while (now_seconds() < deadline) poll(NULL, 0, 200);
  die(EXIT_RUN, "the connection for data with rank %d on %s has ended, and no reason came", rank, w->peer[rank].host);
}
