#include "comm/watch.h"
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "comm/watch_end.h"

enum { AT_A_TIME = 64 }; // frames of one rank, before others are heard
static const double beat_seconds = 0.5, look_seconds = 0.2, grace_seconds = 2;

// ---- others -------------------------------------------------------------------------------------------------------

static bool rank_0_has_company(const Watch *w) {
  for (int i = 1; i < w->world; i++)
    if (watch_same_host(w, i, 0)) return true;
  return false;
}

// Whether this rank is the lowest on its host, apart from rank 0.
static bool first_on_host(const Watch *w) {
  for (int i = 1; i < w->rank; i++)
    if (watch_same_host(w, i, w->rank)) return false;
  return true;
}

// Whether this rank is the one to report that rank 0 has vanished.
static bool speaks_of_rank_0(const Watch *w) {
  return (watch_same_host(w, 0, w->rank) || !rank_0_has_company(w)) && first_on_host(w);
}

static const char vanished[] = "it exited without a message; it was probably killed";

// Called when a connection has ended without FRAME_BYE.
static void on_vanished(Watch *w, int rank, double now) {
  if (w->closing || w->gone != NOBODY) return;
  if (w->l->crew) {
    w->gone = rank;
    w->gone_since = now;
    return;
  }
  if (!watch_take_end(w)) return;
  const long long step = w->other[rank].step;
  if (w->rank == 0) {
    watch_say(w, rank, step, "%s", vanished);
    watch_end_run(w, EXIT_RUN, NOBODY);
  }
  if (speaks_of_rank_0(w)) watch_say(w, rank, step, "%s", vanished);
  watch_end(w, EXIT_RUN);
}

// The supervisor knows more about a rank that vanished. If it says nothing:
static void look_at_gone(Watch *w, double now) {
  if (w->gone == NOBODY || now - w->gone_since < grace_seconds || !watch_take_end(w)) return;
  if (crew_claim(w->l->crew, EXIT_RUN)) watch_say(w, w->gone, w->other[w->gone].step, "%s", vanished);
  watch_end(w, EXIT_RUN);
}

static void say_silent(const Watch *w, int rank, double now) {
  if (watch_claim(w, EXIT_RUN))
    watch_say(w, rank, w->other[rank].step,
              "no heartbeat for %.0f s: the process is stopped, or its host or network is down",
              now - w->other[rank].heard);
}

static void on_silent(Watch *w, int rank, double now) {
  if (w->rank == 0) {
    if (!watch_take_end(w)) return;
    say_silent(w, rank, now);
    watch_end_run(w, EXIT_RUN, rank);
  }
  if (!watch_take_end(w)) return;
  if (w->l->crew || first_on_host(w)) say_silent(w, 0, now);
  wire_send(&w->other[0].wire, FRAME_FAILED, EXIT_RUN, w->step, "rank 0 sent no heartbeat"); // if it goes on
  watch_end(w, EXIT_RUN);
}

static void on_failed(Watch *w, int rank, const Frame *f) {
  char line[DIE_LINE];
  if (!watch_take_end(w)) return;
  watch_with_rank(w, rank, f->number, line, sizeof line, f->text);
  if (watch_claim(w, f->code)) die_print(text_clean(line)); // which may have cut the text in a character
  watch_end_run(w, f->code, NOBODY);
}

// What no rank sends.
static void on_nonsense(Watch *w, int rank) {
  if (!watch_take_end(w)) return;
  if (watch_claim(w, EXIT_RUN))
    watch_say(w, rank, w->other[rank].step, "it sent a message that is not of this run's protocol");
  if (w->rank == 0) watch_end_run(w, EXIT_RUN, NOBODY);
  watch_end(w, EXIT_RUN);
}

static void on_end(Watch *w, int code) {
  wire_shut(&w->other[0].wire);
  if (!watch_take_end(w)) watch_answer(w, TOLD_SILENT, code);
  watch_end(w, code);
}

static void on_frame(Watch *w, int rank, Frame *f) {
  switch (watch_news(f, w->rank == 0)) {
  case NEWS_STEP: w->other[rank].step = f->number; break;
  case NEWS_STOP: w->stop = true; break;
  case NEWS_FAILED: on_failed(w, rank, f); break;
  case NEWS_END: on_end(w, f->code); break;
  case NEWS_BYE: w->other[rank].bye = true; break;
  case NEWS_NONSENSE: on_nonsense(w, rank); break;
  }
}

static void hear(Watch *w, int rank, double now, Frame *frame) {
  Other *o = &w->other[rank];
  if (o->wire.fd < 0 || o->lost) return;
  WireResult found = WIRE_FRAME;
  for (int i = 0; i < AT_A_TIME && found == WIRE_FRAME; i++) {
    wire_receive(&o->wire);
    found = wire_next(&o->wire, frame);
    if (found != WIRE_FRAME) break;
    o->heard = now;
    on_frame(w, rank, frame);
  }
  if (found == WIRE_FRAME) return; // there may be more
  o->lost = o->wire.ended || found != WIRE_NOTHING;
  if (found != WIRE_NOTHING) on_nonsense(w, rank);
  if (o->lost && !o->bye) on_vanished(w, rank, now);
}

static void look_for_silence(Watch *w, double now) {
  if (w->closing) return;
  for (int i = 0; i < w->world; i++) {
    const Other *o = &w->other[i];
    if (o->wire.fd >= 0 && (!o->lost || o->bye) && now - o->heard > w->silence) on_silent(w, i, now);
  }
}

// ---- this rank ----------------------------------------------------------------------------------------------------

static void send_to_others(Watch *w, int type, long long number) {
  for (int i = 0; i < w->world; i++) {
    Wire *wire = &w->other[i].wire;
    // The other end does not read: no need to queue more heartbeats.
    if (type == FRAME_BEAT && wire->out_bytes) continue;
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
  watch_with_rank(w, w->rank, w->step, line, sizeof line, w->failure.msg);
  if (!w->l->crew && w->rank) {
    wire_send(&w->other[0].wire, FRAME_FAILED, EXIT_RUN, w->step, w->failure.msg);
    w->failed_since = now + END_SECONDS; // rank 0 prints the line and ends the run
    return;
  }
  if (!watch_take_end(w)) return;
  if (watch_claim(w, EXIT_RUN)) die_print(line);
  if (w->rank == 0) watch_end_run(w, EXIT_RUN, NOBODY);
  watch_end(w, EXIT_RUN);
}

// An error that `check` reports is often caused by the end of another rank, which is a better message: waits for it a
// little.
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

// Whether the supervisor is alive and not stopped.
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
    if (!watch_take_end(w)) return;
    watch_end(w, crew_code(crew));
  }
  if (parent) return;
  if (!w->parent_gone) w->parent_gone = now;
  if (w->rank && now - w->parent_gone < 1) return; // rank 0 reports it, if it is alive
  if (!watch_take_end(w)) return;
  const bool gone = getppid() != crew->supervisor;
  if (crew_claim(crew, EXIT_RUN))
    watch_say(w, w->rank, w->step, "the supervisor, process %ld, %s", (long)crew->supervisor,
              gone ? "exited, so the run ends" : "is stopped, so the run ends");
  watch_end(w, EXIT_RUN);
}

// ---- the thread ---------------------------------------------------------------------------------------------------

// If this process was stopped for a while, the silence of others in that time means nothing.
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
  if (p[0].revents && read(w->wake, &woken, sizeof woken) < 0) return; // the next turn reads it
}

// Says goodbye, and waits until the others have too.
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
    watch_look_at_dying(w, now);
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

// Blocks signals in this thread, so that they interrupt calls of the other threads; except SIGALRM, which limits the
// time of ending.
static void start_thread(Watch *w) {
  sigset_t all, before;
  sigfillset(&all);
  sigdelset(&all, SIGALRM);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failed = pthread_create(&w->thread, NULL, watch_run, w);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (failed)
    die(EXIT_RUN, "cannot start a thread: %s; raise the limit of processes (ulimit -u) or free memory",
        strerror(failed));
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
  for (int i = 0; i < w->world; i++) {
    w->other[i] = (Other){.wire = control[i], .heard = w->turn, .step = -1};
    control[i] = (Wire){.fd = -1};
  }
  start_thread(w);
  die_tells(watch_tell_line, w);
  return w;
}

void watch_close(Watch *w) {
  w->closing = true;
  watch_wake(w);
  pthread_join(w->thread, NULL);
  die_tells(NULL, NULL);
  for (int i = 0; i < w->world; i++) wire_close(&w->other[i].wire);
  close(w->wake);
  pthread_cond_destroy(&w->changed);
  pthread_mutex_destroy(&w->lock);
  free(w->other);
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
  die(EXIT_RUN, "the data connection with rank %d on %s was closed unexpectedly", rank, w->peer[rank].host);
}
