#include "base/threads.h"
#include <omp.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/parallel.h"
#include "base/team.h"

void threads_wait_briefly(char **argv) {
  if (team_sleeps() || getenv("OMP_WAIT_POLICY") || getenv("KMP_BLOCKTIME")) return;
  // Milliseconds. Where memory is out the run goes on as it is: begun again, it would begin again.
  if (setenv("KMP_BLOCKTIME", "1", 1)) return;
  char self[4096]; // by its name, so that process listings show it
  ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (length <= 0) return; // no /proc: the run goes on as it is
  self[length] = '\0';
  execv(self, argv);
}

void threads_limit(void) {
  const int usual = omp_get_max_threads(), startable = parallel_startable(usual);
  if (startable < usual) omp_set_num_threads(startable);
}
