// Catches parallel regions that skip a turn, run one twice, mix up threads or hang: every pragma of the house, with any
// number of threads, nested, from several threads at once and after a fork.
#include <omp.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/error.h"
#include "base/team.h"
#include "test/harness/test.h"

enum { N = 1000, MOST = 9 };

static int times[N]; // a turn was run

static bool each_once(int n) {
  bool once = true;
  for (int i = 0; i < N; i++) {
    once = once && times[i] == (i < n);
    times[i] = 0;
  }
  return once;
}

static void loops(int n, int threads) {
  omp_set_num_threads(threads);
#pragma omp parallel for schedule(static)
  for (int i = 0; i < n; i++) times[i]++;
  EXPECT(each_once(n));
#pragma omp parallel for schedule(dynamic)
  for (int i = 0; i < n; i++) times[i]++;
  EXPECT(each_once(n));
#pragma omp parallel for schedule(dynamic, 16)
  for (int i = n - 1; i >= 0; i--) times[i]++;
  EXPECT(each_once(n));
#pragma omp parallel for schedule(dynamic, 3)
  for (size_t i = 0; i < (size_t)n; i++) times[i]++;
  EXPECT(each_once(n));
#pragma omp parallel for schedule(dynamic)
  for (int i = 0; i < 2 * n; i += 2) times[i / 2]++;
  EXPECT(each_once(n));
#pragma omp parallel for collapse(2) schedule(dynamic, 8)
  for (int i = 0; i < n / 10; i++)
    for (int k = 0; k < 10; k++) times[10 * i + k]++;
  EXPECT(each_once(n / 10 * 10));
}

TEST(team_runs_each_turn_once) {
  omp_set_dynamic(false); // however late threads begin
  const int before = omp_get_max_threads();
  static const int lengths[] = {0, 1, 2, 17, N};
  for (int t = 1; t <= MOST; t += 2)
    for (int i = 0; i < COUNT(lengths); i++) loops(lengths[i], t);
  omp_set_num_threads(before);
}

// Loops one behind the other in a region, without and with a barrier between them, more of them than a team remembers.
TEST(team_shares_a_region_of_many_loops) {
  omp_set_dynamic(false); // however late threads begin
  enum { LOOPS = 40, TURNS = 7 };
  const int before = omp_get_max_threads();
  for (int threads = 1; threads <= MOST; threads++) {
    int sum[LOOPS] = {0}, singles = 0, members = 0, numbers = 0;
    omp_set_num_threads(threads);
#pragma omp parallel
    {
      for (int l = 0; l < LOOPS; l++) {
#pragma omp for schedule(dynamic) nowait
        for (int i = 0; i < TURNS; i++)
#pragma omp atomic
          sum[l] += i;
      }
#pragma omp single
      singles++;
#pragma omp for schedule(dynamic)
      for (int i = 0; i < TURNS; i++)
#pragma omp critical
        sum[0] += i;
#pragma omp critical
      {
        members += omp_get_num_threads();
        numbers += omp_get_thread_num();
      }
    }
    for (int l = 1; l < LOOPS; l++) EXPECT_INT(sum[l], TURNS * (TURNS - 1) / 2);
    EXPECT_INT(sum[0], TURNS * (TURNS - 1));
    EXPECT_INT(singles, 1);
    EXPECT_INT(members, threads * threads);
    EXPECT_INT(numbers, threads * (threads - 1) / 2);
  }
  omp_set_num_threads(before);
}

TEST(team_keeps_ordered_parts_in_order) {
  omp_set_dynamic(false); // however late threads begin
  const int before = omp_get_max_threads();
  for (int threads = 1; threads <= MOST; threads += 2) {
    int last = -1;
    bool rising = true;
    omp_set_num_threads(threads);
#pragma omp parallel for ordered schedule(dynamic)
    for (int i = 0; i < N; i++) {
      times[i]++;
#pragma omp ordered
      {
        rising = rising && last == i - 1;
        last = i;
      }
    }
    EXPECT(rising && last == N - 1 && each_once(N));
  }
  omp_set_num_threads(before);
}

// A region within a region is its thread's alone.
TEST(team_nests) {
  omp_set_dynamic(false); // however late threads begin
  const int before = omp_get_max_threads();
  int sum = 0, wrong = 0;
  omp_set_num_threads(4);
#pragma omp parallel for schedule(dynamic)
  for (int i = 0; i < 20; i++) {
    const int outer = omp_get_thread_num();
#pragma omp parallel for schedule(dynamic)
    for (int k = 0; k < 50; k++)
#pragma omp critical
    {
      sum++;
      wrong += omp_get_num_threads() != 1 || omp_get_thread_num() != 0;
    }
#pragma omp critical
    wrong += omp_get_thread_num() != outer || omp_get_num_threads() != 4;
  }
  EXPECT_INT(sum, 1000);
  EXPECT_INT(wrong, 0);
  omp_set_num_threads(before);
}

static void *regions(void *sum) {
  omp_set_num_threads(3);
  for (int round = 0; round < 300; round++) {
    int here = 0;
#pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < 10; i++)
#pragma omp atomic
      here += i;
    *(int *)sum += here;
  }
  return NULL;
}

// Each thread has a team of its own, which ends with it.
TEST(team_of_each_of_several_threads) {
  omp_set_dynamic(false); // however late threads begin
  enum { CALLERS = 4 };
  pthread_t id[CALLERS];
  int sum[CALLERS] = {0};
  for (int i = 0; i < CALLERS; i++) CHECK(!pthread_create(&id[i], NULL, regions, &sum[i]));
  for (int i = 0; i < CALLERS; i++) {
    pthread_join(id[i], NULL);
    EXPECT_INT(sum[i], 300 * 45);
  }
}

// The child of a fork has none of its parent's threads, and starts others.
TEST(team_after_a_fork) {
  omp_set_dynamic(false); // however late threads begin
  const int before = omp_get_max_threads();
  if (!team_sleeps()) {
    test_skip("clang's runtime waits for threads that are not there");
    return;
  }
  omp_set_num_threads(4);
  loops(N, 4);
  const pid_t child = fork();
  if (child == 0) {
    int sum = 0;
    alarm(20);
    regions(&sum);
    omp_pause_resource_all(omp_pause_hard);
    _exit(sum != 300 * 45);
  }
  int status = -1;
  EXPECT(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  loops(N, 4);
  omp_set_num_threads(before);
}
