#define _GNU_SOURCE // sched_getaffinity
#include "base/parallel.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/util.h"

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

void parallel_for(int n, int threads, void (*body)(void *context, int i, int thread), void *context) {
  CHECK(n >= 0 && threads >= 1 && threads <= MAX_THREADS);
  ParallelLoop loop = {.body = body, .context = context, .n = n};
  ParallelThread *t = xcalloc((size_t)threads, sizeof *t);
  int others = 0;
  for (int k = 1; k < threads; k++) {
    t[k] = (ParallelThread){.loop = &loop, .thread = k};
    if (pthread_create(&t[k].id, NULL, take_turns, &t[k])) break;
    others++;
  }
  t[0].loop = &loop;
  take_turns(&t[0]);
  for (int k = 1; k <= others; k++) pthread_join(t[k].id, NULL);
  free(t);
}
