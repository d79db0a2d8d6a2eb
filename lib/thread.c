#define _GNU_SOURCE // pthread_attr_setstacksize
#include "lib/thread.h"
#include <omp.h>
#include <signal.h>
#include <string.h>
#include "base/contained.h"
#include "lib/guard.h"

enum { STACK = 8 << 20 }; // bytes

int thread_start(pthread_t *id, void *(*body)(void *context), void *context) {
  pthread_attr_t attributes;
  sigset_t all, before;
  int error = pthread_attr_init(&attributes);
  if (error) return error;
  pthread_attr_setstacksize(&attributes, STACK);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  error = pthread_create(id, &attributes, body, context);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  return error;
}

typedef struct Aside {
  void (*work)(void *context);
  void *context;
  Err *err;
  bool ok;
} Aside;

static void *aside(void *context) {
  Aside *a = context;
  const Guard g = guard_enter(NULL);
  omp_set_num_threads(g.threads);
  a->ok = contained_call(a->work, a->context, a->err);
  return NULL;
}

bool thread_aside(void (*work)(void *context), void *context, Err *err) {
  pthread_t id;
  Aside a = {.work = work, .context = context, .err = err};
  const int error = thread_start(&id, aside, &a);
  if (error)
    return err_set(err, "cannot start a thread: %s; raise the limit of processes (ulimit -u)", strerror(error));
  pthread_join(id, NULL);
  return a.ok;
}
