#include "nn/threads.h"
#include <stdlib.h>
#include <unistd.h>

void threads_wait_briefly(char **argv) {
  static const char *const chosen[] = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"};
  for (int i = 0; i < 3; i++)
    if (getenv(chosen[i])) return;
  setenv("GOMP_SPINCOUNT", "10000", 1); // gcc's runtime: iterations
  setenv("KMP_BLOCKTIME", "1", 1);      // clang's: milliseconds
  execv("/proc/self/exe", argv);        // where there is no /proc, the run goes on as it is
}
