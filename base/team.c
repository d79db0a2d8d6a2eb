// What gcc's pragmas call: https://gcc.gnu.org/onlinedocs/libgomp/The-libgomp-ABI.html. A pragma that needs another
// function does not link; it is added here.
//
// The threads of a team belong to the thread that meets a parallel region, which is the first of them. Within a region
// another one is run by the thread that meets it alone.
#ifndef __clang__
#include "base/team.h"
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include "base/basics.h"
#include "base/error.h"
#include "base/parallel.h"

enum { MOST_THREADS = 1024, SHARES = 8 };

// ---- waiting --------------------------------------------------------------------------------------------------------

// A number that one thread changes and others wait for: briefly awake, then asleep.
typedef struct Gate {
  _Atomic uint64_t value;
  atomic_int asleep;
  pthread_mutex_t lock;
  pthread_cond_t changed;
} Gate;

static void gate_init(Gate *g) {
  atomic_init(&g->value, 0);
  atomic_init(&g->asleep, 0);
  pthread_mutex_init(&g->lock, NULL);
  pthread_cond_init(&g->changed, NULL);
}

static void gate_free(Gate *g) {
  pthread_mutex_destroy(&g->lock);
  pthread_cond_destroy(&g->changed);
}

static void gate_set(Gate *g, uint64_t value) {
  atomic_store(&g->value, value);
  if (!atomic_load(&g->asleep)) return;
  pthread_mutex_lock(&g->lock);
  pthread_cond_broadcast(&g->changed);
  pthread_mutex_unlock(&g->lock);
}

// How often a waiting thread looks before it sleeps, for 4 to 130 µs: it doubles where that was enough and halves where
// it was not, so that on cores that others need nobody looks for long.
enum { FEWEST_LOOKS = 4, MOST_LOOKS = 128, PAUSES = 16 };
static _Thread_local int looks = MOST_LOOKS;

static void pause_briefly(void) {
  for (int i = 0; i < PAUSES; i++) __builtin_ia32_pause();
}

// Until the value is another than `old`; returns it.
static uint64_t gate_wait(Gate *g, uint64_t old) {
  uint64_t value = atomic_load(&g->value);
  for (int i = 0; value == old && i < looks; i++) {
    pause_briefly();
    if ((value = atomic_load(&g->value)) == old) sched_yield();
  }
  if (value != old) {
    looks = MIN(2 * looks, MOST_LOOKS);
    return value;
  }
  looks = MAX(looks / 2, FEWEST_LOOKS);
  pthread_mutex_lock(&g->lock);
  atomic_fetch_add(&g->asleep, 1);
  while ((value = atomic_load(&g->value)) == old) pthread_cond_wait(&g->changed, &g->lock);
  atomic_fetch_sub(&g->asleep, 1);
  pthread_mutex_unlock(&g->lock);
  return value;
}

// ---- teams ----------------------------------------------------------------------------------------------------------

// Turns of a loop, or a `single`, that the threads of a region share. Each meets a region's shares in the same order;
// one may be some ahead of another.
typedef struct WorkShare {
  _Atomic uint64_t number; // of the region's shares, from 1, that this is now; 0: of none; UINT64_MAX: about to be one
  atomic_int left;         // threads that are done with it
  uint64_t begin, step, turns, chunk;
  _Atomic uint64_t next; // turn
  Gate ordered;          // the turn whose ordered part may run
} WorkShare;

typedef struct Team {
  void (*part)(void *data);
  void *data;
  int threads;          // of the region
  atomic_int left;      // threads that have not ended it
  Gate start;           // the number of the region, times 2 · MOST_THREADS, plus its threads; or, with END, no other
  Gate done;            // the number of the last region whose other threads have ended it
  uint64_t regions;     // so far
  int64_t began;        // of the region, ns
  _Atomic int64_t late; // until the last of its threads began, ns
  uint64_t begun;       // 1: the region is a loop, its first share, which each thread has met; 0: it is not
  atomic_int arrived;
  Gate barrier; // how many barriers have been passed
  WorkShare share[SHARES];
  int workers; // that were started
  pthread_t id[MOST_THREADS];
} Team;

static const uint64_t END = 2 * MOST_THREADS - 1;

typedef struct Member { // what a thread is in the region that it is in
  Team *team;           // NULL: it is alone
  int number;
  uint64_t shares;     // that it has met
  WorkShare *current;  // the last of them
  uint64_t turn, past; // of its chunk of an ordered loop
} Member;

static _Thread_local Member *me; // NULL: in no region
static _Thread_local Team *mine; // that this thread has; NULL: none yet
static _Thread_local int wanted; // threads; 0: the usual number
static pthread_key_t ends_with_thread;
static int usual;

static void run(Team *t, int number) {
  Member m = {.team = t, .number = number, .shares = t->begun};
  if (t->begun) m.current = &t->share[t->begun];
  me = &m;
  t->part(t->data);
  me = NULL;
}

// ---- cores that others need -----------------------------------------------------------------------------------------

// A thread that begins late, as others have its core, holds up the region and those after it. Then the first thread
// runs regions alone for so many times as long, doubled where they are late again. What a region computes does not
// depend on how many threads it has.
enum { LATE = 1000000, LEAST_REST = 8, MOST_REST = 256 }; // ns

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * (int64_t)1000000000 + t.tv_nsec;
}

static void tell_late(Team *t) {
  const int64_t late = now_ns() - t->began;
  int64_t most = atomic_load(&t->late);
  while (late > most && !atomic_compare_exchange_weak(&t->late, &most, late)) continue;
}

static _Atomic int64_t rests_until; // of all teams, since they share the cores; ns
static _Atomic int rest = LEAST_REST;
static atomic_bool dynamic = true; // OpenMP's dyn-var

static bool rests(void) {
  const int64_t until = atomic_load(&rests_until);
  return until && atomic_load(&dynamic) && now_ns() < until;
}

static void judge_region(const Team *t) {
  const int64_t late = atomic_load(&t->late);
  const int times = atomic_load(&rest);
  if (late > LATE) {
    atomic_store(&rests_until, now_ns() + times * late);
    atomic_store(&rest, MIN(2 * times, MOST_REST));
  } else if (times > LEAST_REST) {
    atomic_store(&rest, MAX(times / 2, LEAST_REST));
  }
}

typedef struct Start {
  Team *team;
  int number;
} Start;

static void *work(void *context) {
  const Start s = *(Start *)context;
  free(context);
  Team *t = s.team;
  for (uint64_t seen = 0;;) {
    seen = gate_wait(&t->start, seen);
    const uint64_t threads = seen % (2 * MOST_THREADS);
    if (threads == END) return NULL;
    if ((uint64_t)s.number >= threads) continue;
    tell_late(t);
    run(t, s.number);
    if (atomic_fetch_sub(&t->left, 1) == 1) gate_set(&t->done, t->regions);
  }
}

static void each_gate(Team *t, void (*what)(Gate *g)) {
  what(&t->start);
  what(&t->done);
  what(&t->barrier);
  for (int i = 0; i < SHARES; i++) what(&t->share[i].ordered);
}

static void team_end(void *team) {
  Team *t = team;
  if (!t) return;
  gate_set(&t->start, (t->regions + 1) * 2 * MOST_THREADS + END);
  for (int i = 0; i < t->workers; i++) pthread_join(t->id[i], NULL);
  each_gate(t, gate_free);
  free(t);
  mine = NULL;
}

// The child of a fork has none of the threads.
static void forget(void) {
  mine = NULL;
  me = NULL;
  pthread_setspecific(ends_with_thread, NULL);
}

static void begin(void) {
  const char *text = getenv("OMP_NUM_THREADS");
  const long asked = text ? strtol(text, NULL, 10) : 0;
  usual = asked >= 1 ? (int)MIN(asked, MOST_THREADS) : MIN(parallel_cores(), MOST_THREADS);
  CHECK(!pthread_key_create(&ends_with_thread, team_end) && !pthread_atfork(NULL, NULL, forget));
}

static void begin_once(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, begin);
}

// Starts threads until there are `threads` with this one, or the system refuses; returns how many there are.
static int team_grow(Team *t, int threads) {
  while (t->workers + 1 < threads) {
    Start *s = malloc(sizeof *s);
    if (s) *s = (Start){.team = t, .number = t->workers + 1};
    if (!s || pthread_create(&t->id[t->workers], NULL, work, s)) {
      free(s);
      break;
    }
    t->workers++;
  }
  return MIN(threads, t->workers + 1);
}

static Team *team_of_thread(void) {
  if (mine) return mine;
  begin_once();
  Team *t = calloc(1, sizeof *t);
  if (!t) return NULL;
  each_gate(t, gate_init);
  if (pthread_setspecific(ends_with_thread, t)) {
    each_gate(t, gate_free);
    free(t);
    return NULL;
  }
  return mine = t;
}

static void alone(void (*part)(void *data), void *data, WorkShare *loop) {
  Member *outer = me, m = {.current = loop};
  me = &m;
  part(data);
  me = outer;
}

static void wait_for_others(Team *t) {
  for (uint64_t seen; (seen = atomic_load(&t->done.value)) != t->regions;) gate_wait(&t->done, seen);
}

static void share_set(WorkShare *s, uint64_t begin, uint64_t length, uint64_t step, uint64_t stride, uint64_t chunk) {
  s->begin = begin;
  s->step = step;
  s->turns = (length + stride - 1) / stride;
  s->chunk = MAX(chunk, 1);
  atomic_store(&s->next, 0);
  atomic_store(&s->ordered.value, 0);
}

// loop: NULL, or the loop that the region consists of.
static void region(void (*part)(void *data), void *data, unsigned threads, WorkShare *loop) {
  int n = threads ? (int)MIN(threads, MOST_THREADS) : omp_get_max_threads();
  Team *t = me || n == 1 ? NULL : team_of_thread();
  n = t && !rests() ? team_grow(t, n) : 1;
  if (n == 1) {
    alone(part, data, loop);
    return;
  }
  t->part = part;
  t->data = data;
  t->threads = n;
  t->regions++;
  t->began = now_ns();
  atomic_store(&t->late, 0);
  atomic_store(&t->left, n - 1);
  for (int i = 0; i < SHARES; i++) {
    atomic_store(&t->share[i].number, 0);
    atomic_store(&t->share[i].left, 0);
  }
  t->begun = loop != NULL;
  if (loop) {
    share_set(&t->share[1], loop->begin, loop->turns, loop->step, 1, loop->chunk);
    atomic_store(&t->share[1].number, 1);
  }
  gate_set(&t->start, t->regions * 2 * MOST_THREADS + (uint64_t)n);
  run(t, 0);
  wait_for_others(t);
  judge_region(t);
}

void GOMP_parallel(void (*part)(void *data), void *data, unsigned threads, unsigned flags);
void GOMP_parallel(void (*part)(void *data), void *data, unsigned threads, unsigned flags) {
  (void)flags;
  region(part, data, threads, NULL);
}

bool team_sleeps(void) { return true; }

void team_leave(void) {
  if (me && me->team) wait_for_others(me->team);
  me = NULL;
}

// ---- within a region ------------------------------------------------------------------------------------------------

int omp_get_thread_num(void) { return me ? me->number : 0; }
int omp_get_num_threads(void) { return me && me->team ? me->team->threads : 1; }

int omp_get_max_threads(void) {
  begin_once();
  return wanted ? wanted : usual;
}

void omp_set_num_threads(int threads) { wanted = MAX(MIN(threads, MOST_THREADS), 1); }
void omp_set_dynamic(int may_be_fewer) { atomic_store(&dynamic, may_be_fewer); }
int omp_get_num_procs(void) { return parallel_cores(); }

int omp_pause_resource_all(omp_pause_resource_t kind) {
  (void)kind;
  if (me) return -1;
  team_end(mine);
  pthread_setspecific(ends_with_thread, NULL);
  return 0;
}

static pthread_mutex_t critical = PTHREAD_MUTEX_INITIALIZER;
void GOMP_critical_start(void);
void GOMP_critical_end(void);
void GOMP_critical_start(void) { pthread_mutex_lock(&critical); }
void GOMP_critical_end(void) { pthread_mutex_unlock(&critical); }

void GOMP_barrier(void);
void GOMP_barrier(void) {
  if (!me || !me->team) return;
  Team *t = me->team;
  const uint64_t passed = atomic_load(&t->barrier.value);
  if (atomic_fetch_add(&t->arrived, 1) + 1 < t->threads) {
    gate_wait(&t->barrier, passed);
    return;
  }
  atomic_store(&t->arrived, 0);
  gate_set(&t->barrier, passed + 1);
}

// ---- shares ---------------------------------------------------------------------------------------------------------

// The region's next share for this thread; *first: nobody has set it up yet, and this thread does, then share_ready.
static WorkShare *share_enter(bool *first) {
  Team *t = me->team;
  const uint64_t number = ++me->shares;
  WorkShare *s = me->current = &t->share[number % SHARES];
  for (;;) {
    uint64_t now = 0;
    if (atomic_compare_exchange_strong(&s->number, &now, UINT64_MAX)) {
      *first = true;
      return s;
    }
    if (now == number) {
      *first = false;
      return s;
    }
    sched_yield(); // others still have what it was, or set it up
  }
}

static void share_ready(WorkShare *s) { atomic_store(&s->number, me->shares); }

static void share_leave(WorkShare *s) {
  if (atomic_fetch_add(&s->left, 1) + 1 < me->team->threads) return;
  atomic_store(&s->left, 0);
  atomic_store(&s->number, 0);
}

bool GOMP_single_start(void);
bool GOMP_single_start(void) {
  bool first = true;
  if (!me || !me->team) return true;
  WorkShare *s = share_enter(&first);
  if (first) share_ready(s);
  share_leave(s);
  return first;
}

// ---- loops ----------------------------------------------------------------------------------------------------------

// A chunk of turns in terms of the loop's variable.
static bool next_chunk(WorkShare *s, uint64_t *from, uint64_t *to) {
  const uint64_t turn = atomic_fetch_add(&s->next, s->chunk);
  if (turn >= s->turns) return false;
  const uint64_t past = turn + MIN(s->chunk, s->turns - turn);
  *from = s->begin + turn * s->step;
  *to = s->begin + past * s->step;
  me->turn = turn;
  me->past = past;
  return true;
}

static bool loop_start(bool up, uint64_t begin, uint64_t end, uint64_t step, uint64_t chunk, uint64_t *from,
                       uint64_t *to) {
  bool first;
  const uint64_t length = up ? end - begin : begin - end, stride = up ? step : -step;
  if (!me || !me->team) { // all turns are this thread's
    *from = begin;
    *to = end;
    return length > 0;
  }
  WorkShare *s = share_enter(&first);
  if (first) {
    share_set(s, begin, length, step, stride, chunk);
    share_ready(s);
  }
  return next_chunk(s, from, to);
}

static bool loop_next(uint64_t *from, uint64_t *to) { return me && me->current && next_chunk(me->current, from, to); }

static bool loop_start_signed(long begin, long end, long step, long chunk, long *from, long *to) {
  const bool up = step > 0, any = up ? begin < end : begin > end;
  return loop_start(up, (uint64_t)begin, any ? (uint64_t)end : (uint64_t)begin, (uint64_t)step, (uint64_t)chunk,
                    (uint64_t *)from, (uint64_t *)to);
}

bool GOMP_loop_nonmonotonic_dynamic_start(long begin, long end, long step, long chunk, long *from, long *to);
bool GOMP_loop_nonmonotonic_dynamic_start(long begin, long end, long step, long chunk, long *from, long *to) {
  return loop_start_signed(begin, end, step, chunk, from, to);
}

bool GOMP_loop_nonmonotonic_dynamic_next(long *from, long *to);
bool GOMP_loop_nonmonotonic_dynamic_next(long *from, long *to) { return loop_next((uint64_t *)from, (uint64_t *)to); }

typedef unsigned long long Turn; // as gcc declares it
bool GOMP_loop_ull_nonmonotonic_dynamic_start(bool up, Turn begin, Turn end, Turn step, Turn chunk, Turn *from,
                                              Turn *to);
bool GOMP_loop_ull_nonmonotonic_dynamic_start(bool up, Turn begin, Turn end, Turn step, Turn chunk, Turn *from,
                                              Turn *to) {
  const bool any = up ? begin < end : begin > end;
  return loop_start(up, begin, any ? end : begin, step, chunk, (uint64_t *)from, (uint64_t *)to);
}

bool GOMP_loop_ull_nonmonotonic_dynamic_next(Turn *from, Turn *to);
bool GOMP_loop_ull_nonmonotonic_dynamic_next(Turn *from, Turn *to) {
  return loop_next((uint64_t *)from, (uint64_t *)to);
}

void GOMP_parallel_loop_nonmonotonic_dynamic(void (*part)(void *data), void *data, unsigned threads, long begin,
                                             long end, long step, long chunk, unsigned flags);
void GOMP_parallel_loop_nonmonotonic_dynamic(void (*part)(void *data), void *data, unsigned threads, long begin,
                                             long end, long step, long chunk, unsigned flags) {
  (void)flags;
  WorkShare loop;
  const bool up = step > 0, any = up ? begin < end : begin > end;
  const uint64_t length = any ? (up ? (uint64_t)end - (uint64_t)begin : (uint64_t)begin - (uint64_t)end) : 0;
  share_set(&loop, (uint64_t)begin, length, (uint64_t)step, (uint64_t)(up ? step : -step), (uint64_t)chunk);
  region(part, data, threads, &loop);
}

void GOMP_loop_end_nowait(void);
void GOMP_loop_end_nowait(void) {
  if (me && me->team) share_leave(me->current);
}

void GOMP_loop_end(void);
void GOMP_loop_end(void) {
  GOMP_loop_end_nowait();
  GOMP_barrier();
}

// ---- ordered loops --------------------------------------------------------------------------------------------------

static void wait_for_turn(void) {
  if (!me || !me->team) return;
  Gate *g = &me->current->ordered;
  for (uint64_t now; (now = atomic_load(&g->value)) != me->turn;) gate_wait(g, now);
}

bool GOMP_loop_ordered_dynamic_start(long begin, long end, long step, long chunk, long *from, long *to);
bool GOMP_loop_ordered_dynamic_start(long begin, long end, long step, long chunk, long *from, long *to) {
  return loop_start_signed(begin, end, step, chunk, from, to);
}

// The chunk that it had is done, with its ordered parts: those of the next turn may run.
bool GOMP_loop_ordered_dynamic_next(long *from, long *to);
bool GOMP_loop_ordered_dynamic_next(long *from, long *to) {
  if (!me || !me->team) return false;
  wait_for_turn();
  gate_set(&me->current->ordered, me->past);
  return loop_next((uint64_t *)from, (uint64_t *)to);
}

void GOMP_ordered_start(void);
void GOMP_ordered_end(void);
void GOMP_ordered_start(void) { wait_for_turn(); }
void GOMP_ordered_end(void) {}
#endif
