// Catches loop iterations that run twice or never, and threads left running that a fork would lose.
#define _GNU_SOURCE // sched_setaffinity, pthread_setattr_default_np
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/parallel.h"
#include "test/harness/allocations.h"
#include "test/harness/child.h"
#include "test/harness/test.h"

enum { TURNS = 1000 };

typedef struct Turns {
  atomic_int done[TURNS];
  int threads;
  atomic_int strangers; // turns of a thread that is none of these
} Turns;

static void take_turn(void *context, int i, int thread) {
  Turns *t = context;
  atomic_fetch_add(&t->done[i], 1);
  if (thread < 0 || thread >= t->threads) atomic_fetch_add(&t->strangers, 1);
}

static void expect_each_once(int n, int threads) {
  Turns t = {.threads = threads};
  parallel_for(n, threads, take_turn, &t);
  int wrong = 0;
  for (int i = 0; i < TURNS; i++) wrong += atomic_load(&t.done[i]) != (i < n);
  EXPECT_INT(wrong, 0);
  EXPECT_INT(atomic_load(&t.strangers), 0);
}

TEST(parallel_takes_every_turn_once) {
  static const int turns[] = {0, 1, 2, 7, TURNS}, threads[] = {1, 2, 3, 16};
  for (int i = 0; i < COUNT(turns); i++)
    for (int k = 0; k < COUNT(threads); k++) expect_each_once(turns[i], threads[k]);
}

static int tasks(void) {
  int n = 0;
  DIR *dir = opendir("/proc/self/task");
  for (struct dirent *entry; dir && (entry = readdir(dir));) n += entry->d_name[0] != '.';
  if (dir) closedir(dir);
  return n;
}

// In a child, which begins with one thread.
static void loop_and_count(void *context) {
  (void)context;
  const int before = tasks();
  expect_each_once(TURNS, 8);
  // A thread that was joined can be seen until the system has put it away.
  for (int i = 0; i < 10000 && tasks() > before; i++) sched_yield();
  fprintf(stderr, "%d threads", tasks() - before);
}

TEST(parallel_tells_how_many_threads_can_be_started) {
  static const int threads[] = {1, 2, 9};
  for (int i = 0; i < COUNT(threads); i++) EXPECT_INT(parallel_startable(threads[i]), threads[i]);
}

TEST(parallel_leaves_no_thread) {
  const char *said;
  EXPECT_INT(run_in_child(loop_and_count, NULL, &said), 0);
  EXPECT_STR(said, "0 threads");
}

static void *never(void *context) { return context; }

// No thread is to be had: the turns are taken all the same.
static void loop_without_threads(void *context) {
  (void)context;
  pthread_attr_t attr;
  pthread_t id;
  CHECK(!pthread_attr_init(&attr) && !pthread_attr_setstacksize(&attr, (size_t)1 << 50)); // there is no such room
  CHECK(!pthread_setattr_default_np(&attr) && pthread_create(&id, NULL, never, NULL));
  Turns t = {.threads = 4};
  parallel_for(TURNS, 4, take_turn, &t);
  int done = 0;
  for (int i = 0; i < TURNS; i++) done += atomic_load(&t.done[i]);
  fprintf(stderr, "%d turns, %d thread", done, parallel_startable(4));
}

TEST(parallel_goes_on_where_threads_are_refused) {
  const char *said;
  EXPECT_INT(run_in_child(loop_without_threads, NULL, &said), 0);
  EXPECT_STR(said, "1000 turns, 1 thread");
}

// Nor is there memory for them: the caller may be somebody else's program, which goes on.
TEST(parallel_goes_on_without_memory) {
  if (!allocations_counted()) {
    test_skip("a sanitizer has an allocator of its own");
    return;
  }
  Turns t = {.threads = 1};
  allocations_fail(1);
  parallel_for(TURNS, 4, take_turn, &t);
  int done = 0;
  for (int i = 0; i < TURNS; i++) done += atomic_load(&t.done[i]);
  EXPECT_INT(done, TURNS);
  EXPECT_INT(atomic_load(&t.strangers), 0);
}

typedef struct Signals {
  atomic_bool caller, other;   // have had a turn
  bool with_caller, elsewhere; // whether they are let through
} Signals;

static bool lets_through(int signal) {
  sigset_t set;
  CHECK(!pthread_sigmask(SIG_SETMASK, NULL, &set));
  return !sigismember(&set, signal);
}

// Each thread waits for the other to have had a turn, ten seconds at most.
static void look_at_signals(void *context, int i, int thread) {
  (void)i;
  Signals *s = context;
  if (thread)
    s->elsewhere = lets_through(SIGINT) || lets_through(SIGUSR1);
  else
    s->with_caller = lets_through(SIGUSR1);
  atomic_store(thread ? &s->other : &s->caller, true);
  atomic_bool *awaited = thread ? &s->caller : &s->other;
  for (const double end = now_seconds() + 10; !atomic_load(awaited) && now_seconds() < end;) sched_yield();
}

TEST(parallel_leaves_signals_to_the_caller) {
  Signals s = {.elsewhere = true};
  parallel_for(2, 2, look_at_signals, &s);
  EXPECT(atomic_load(&s.caller) && atomic_load(&s.other) && s.with_caller && !s.elsewhere);
  EXPECT(lets_through(SIGUSR1));
}

static void narrow(void *context) {
  (void)context;
  cpu_set_t set, one;
  CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
  fprintf(stderr, "%d, ", parallel_cores() - CPU_COUNT(&set));
  CPU_ZERO(&one);
  for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
    if (CPU_ISSET(i, &set)) CPU_SET(i, &one);
  CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
  fprintf(stderr, "%d, %d, %d", parallel_cores(), parallel_threads(100), parallel_threads(0));
}

TEST(parallel_counts_the_cores_of_this_process) {
  const char *said;
  EXPECT_INT(run_in_child(narrow, NULL, &said), 0);
  EXPECT_STR(said, "0, 1, 1, 1");
}
