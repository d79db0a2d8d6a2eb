// In programs: one sentence instead of an illegal instruction. Before main, which may have one.
#include <stdio.h>
#include <unistd.h>
#include "base/cpu_level.h"
#include "base/error.h"

__attribute__((constructor)) static void refuse_cpu(void) {
  const char *why = cpu_refusal();
  if (!why) return;
  dprintf(STDERR_FILENO, "maskrcnn.c: %s\n", why);
  _exit(EXIT_RUN);
}
