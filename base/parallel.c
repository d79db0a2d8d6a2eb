#define _GNU_SOURCE // sched_getaffinity
#include "base/parallel.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/error.h"

enum { MAX_THREADS = 1024 };

int parallel_cores(void) {
  cpu_set_t *set = NULL;
  int cores = 0;
  for (int most = 1024; cores == 0 && most <= 1 << 16; most *= 2) { // the system refuses a set smaller than its own
    const size_t bytes = CPU_ALLOC_SIZE(most);
    set = CPU_ALLOC(most);
    if (set && sched_getaffinity(0, bytes, set) == 0) cores = CPU_COUNT_S(bytes, set);
    CPU_FREE(set);
  }
  return cores > 0 ? cores : (int)MAX(sysconf(_SC_NPROCESSORS_ONLN), 1);
}

int parallel_threads(int n) { return MAX(MIN(MIN(n, parallel_cores()), MAX_THREADS), 1); }

typedef struct ParallelLoop {
  void (*body)(void *context, int i, int thread);
  void *context;
  int n;
  atomic_int next;
} ParallelLoop;

typedef struct ParallelThread {
  ParallelLoop *loop;
  int thread;
  pthread_t id;
} ParallelThread;

static void *take_turns(void *of) {
  const ParallelThread *t = of;
  ParallelLoop *loop = t->loop;
  for (int i; (i = atomic_fetch_add(&loop->next, 1)) < loop->n;) loop->body(loop->context, i, t->thread);
  return NULL;
}

// Starts threads 1 … threads - 1, as many as there are to be had; returns how many. They inherit that no signal is
// theirs.
static int start_others(ParallelLoop *loop, ParallelThread *t, int threads) {
  sigset_t all, before;
  int others = 0;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (; others + 1 < threads; others++) {
    t[others] = (ParallelThread){.loop = loop, .thread = others + 1};
    if (pthread_create(&t[others].id, NULL, take_turns, &t[others])) break;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return others;
}

void parallel_for(int n, int threads, void (*body)(void *context, int i, int thread), void *context) {
  CHECK(n >= 0 && threads >= 1 && threads <= MAX_THREADS);
  ParallelLoop loop = {.body = body, .context = context, .n = n};
  ParallelThread *t = threads > 1 ? malloc((size_t)(threads - 1) * sizeof *t) : NULL;
  const int others = t ? start_others(&loop, t, threads) : 0;
  take_turns(&(ParallelThread){.loop = &loop});
  for (int k = 0; k < others; k++) pthread_join(t[k].id, NULL);
  free(t);
}

static void pass(void *gate, int i, int thread) {
  (void)i;
  (void)thread;
  pthread_mutex_lock(gate);
  pthread_mutex_unlock(gate);
}

int parallel_startable(int threads) {
  threads = MAX(MIN(threads, MAX_THREADS), 1);
  pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
  ParallelLoop loop = {.body = pass, .context = &gate, .n = threads};
  ParallelThread *t = malloc((size_t)threads * sizeof *t);
  pthread_mutex_lock(&gate); // nobody ends before all stand
  const int others = t ? start_others(&loop, t, threads) : 0;
  pthread_mutex_unlock(&gate);
  for (int k = 0; k < others; k++) pthread_join(t[k].id, NULL);
  free(t);
  return others + 1;
}
