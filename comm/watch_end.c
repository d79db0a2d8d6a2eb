// How a watch ends its rank, and which process reports why: the rules are in comm/watch.h.
#include "comm/watch_end.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"

// ---- the end ------------------------------------------------------------------------------------------------------

bool watch_same_host(const Watch *w, int a, int b) { return !strcmp(w->peer[a].host, w->peer[b].host); }

// Flushes stdout, unless a hanging thread holds its lock.
static void flush_output(void) {
  if (ftrylockfile(stdout) != 0) return;
  fflush_unlocked(stdout);
  funlockfile(stdout);
}

// If ending hangs, SIGALRM ends the process.
static void limit_end(void) {
  signal(SIGALRM, SIG_DFL);
  alarm(END_SECONDS);
}

bool watch_take_end(Watch *w) {
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

// Whether a process is stopped, as by SIGSTOP: only SIGKILL ends it.
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

// A supervisor that is stopped would be left behind: it goes on, and ends, as it does when a rank has failed. It is
// this process's parent, so the PID is still its own.
static void continue_supervisor(const Watch *w) {
  if (!w->l->crew) return;
  const pid_t supervisor = w->l->crew->supervisor;
  if (getppid() == supervisor && process_stopped(supervisor)) kill(supervisor, SIGCONT);
}

NORETURN void watch_end(Watch *w, int code) {
  save_last(w);
  continue_supervisor(w);
  flush_output();
  _exit(code);
}

void watch_with_rank(const Watch *w, int rank, long long step, char *line, size_t room, const char *message) {
  char at[32] = "";
  if (step >= 0) snprintf(at, sizeof at, ", step %lld", step);
  snprintf(line, room, "rank %d on %s%s: %s", rank, w->peer[rank].host, at, message);
}

void watch_say(const Watch *w, int rank, long long step, const char *fmt, ...) {
  char what[512], about[512], text[1100], line[DIE_LINE];
  va_list args;
  va_start(args, fmt);
  vsnprintf(what, sizeof what, fmt, args);
  va_end(args);
  die_about(about, sizeof about);
  snprintf(text, sizeof text, *about ? "%s (%s)" : "%s", what, about);
  watch_with_rank(w, rank, step, line, sizeof line, text);
  die_print(text_clean(line));
}

bool watch_claim(const Watch *w, int code) { return !w->l->crew || crew_claim(w->l->crew, code); }

// Rank 0 tells all others that the run ends, and waits until they have received it: if data were left unread here when
// this process ends, TCP would reset the connections and discard the message.
static void tell_end(Watch *w, int code, int lost) {
  const double deadline = now_seconds() + 3;
  for (int i = 1; i < w->world; i++) {
    wire_send(&w->other[i].wire, FRAME_END, code, 0, "");
    wire_shut(&w->other[i].wire);
  }
  Frame *frame = xmalloc(sizeof *frame);
  for (bool left = true; left && now_seconds() < deadline;) {
    left = false;
    for (int i = 1; i < w->world; i++) {
      Wire *wire = &w->other[i].wire;
      WireResult found;
      do wire_receive(wire);
      while ((found = wire_next(wire, frame)) == WIRE_FRAME);
      left |= i != lost && !wire->ended && found == WIRE_NOTHING;
    }
    if (left) poll(NULL, 0, 5);
  }
  free(frame);
}

NORETURN void watch_end_run(Watch *w, int code, int lost) {
  tell_end(w, code, lost);
  watch_end(w, code);
}

// ---- die() --------------------------------------------------------------------------------------------------------

void watch_wake(Watch *w) {
  if (write(w->wake, &(uint64_t){1}, sizeof(uint64_t)) < 0) return; // it is awake anyway
}

// Waits until another thread has ended this process.
NORETURN static void wait_for_exit(void) {
  for (;;) poll(NULL, 0, 1000);
}

// Without a supervisor: hands the line to the watch, which sends it to rank 0, and waits for the answer.
static bool tell_watch(Watch *w, int *code, const char *message) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += 5;
  pthread_mutex_lock(&w->lock);
  if (w->told == TOLD_NOT_YET) w->code = *code;
  snprintf(w->line, sizeof w->line, "%s", message);
  w->handed_over = true;
  watch_wake(w);
  while (w->told == TOLD_NOT_YET && pthread_cond_timedwait(&w->changed, &w->lock, &until) != ETIMEDOUT) continue;
  const bool silent = w->told == TOLD_SILENT;
  *code = w->code;
  pthread_mutex_unlock(&w->lock);
  return silent;
}

bool watch_tell_line(void *context, int *code, char *line, size_t room) {
  Watch *w = context;
  if (pthread_equal(pthread_self(), w->thread)) return true; // called by `last`: the reason has been reported
  pthread_mutex_lock(&w->lock);
  const bool others = w->ending || w->dying;
  w->dying = !w->ending;
  pthread_mutex_unlock(&w->lock);
  if (others) wait_for_exit();
  limit_end();
  Crew *crew = w->l->crew;
  char *message = xstrdup(line);
  if (!w->all_know) watch_with_rank(w, w->rank, w->step, line, room, message);
  const bool silent = !crew && tell_watch(w, code, message);
  free(message);
  if (!crew) return silent;
  if (crew_claim(crew, *code)) return false;
  *code = crew_code(crew);
  return true;
}

NORETURN void watch_answer(Watch *w, Told told, int code) {
  pthread_mutex_lock(&w->lock);
  w->told = told;
  w->code = code;
  pthread_cond_broadcast(&w->changed);
  pthread_mutex_unlock(&w->lock);
  wait_for_exit();
}

void watch_look_at_dying(Watch *w, double now) {
  pthread_mutex_lock(&w->lock);
  const bool dying = w->handed_over;
  const int code = w->code;
  pthread_mutex_unlock(&w->lock);
  if (!dying) return;
  if (w->rank == 0) {
    tell_end(w, code, NOBODY);
    watch_answer(w, TOLD_SPEAK, code);
  }
  if (!w->dying_since) {
    w->dying_since = now;
    if (!w->all_know) wire_send(&w->other[0].wire, FRAME_FAILED, code, w->step, w->line);
  }
  const bool late = now - w->dying_since > (w->all_know ? 4 : 2);
  if (late || w->other[0].wire.ended) watch_answer(w, w->all_know ? TOLD_SILENT : TOLD_SPEAK, code);
}
