#include "training/numbered.h"
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/file.h"
#include "engine/state.h"

static int64_t step_of(const char *path, bool (*open)(Checkpoint *c, const char *path, Err *err)) {
  Checkpoint c;
  RunState state;
  if (!path_is_file(path) || !open(&c, path, NULL)) return -1;
  const int64_t step = state_resume(&c, &state, NULL) ? state.step : -1;
  ckpt_close(&c);
  return step;
}

int64_t checkpoint_step(const char *path) { return step_of(path, ckpt_open_header); }
int64_t checkpoint_whole_step(const char *path) { return step_of(path, ckpt_open); }

char *numbered_name(const char *folder, int64_t step) {
  return xasprintf("%s/checkpoint-%08" PRId64 ".safetensors", folder, step);
}

// The step in a file's name; -1 if it is not a numbered checkpoint.
static int64_t step_in(const char *name) {
  int64_t step;
  int end = 0;
  bool found = sscanf(name, "checkpoint-%" SCNd64 ".safetensors%n", &step, &end) == 1 && end && !name[end];
  return found ? step : -1;
}

static int latest_first(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x < y) - (x > y);
}

void numbered_prune(const char *folder, int64_t step, int keep) {
  DIR *dir = opendir(folder);
  int64_t *steps = NULL;
  size_t n = 0, cap = 0;
  for (struct dirent *entry; dir && (entry = readdir(dir));) {
    const int64_t found = step_in(entry->d_name);
    if (found < 0) continue;
    array_reserve((void **)&steps, &cap, n + 1, sizeof *steps);
    steps[n++] = found;
  }
  if (dir) closedir(dir);
  if (n) qsort(steps, n, sizeof *steps, latest_first);
  for (size_t i = 0, kept = 0; i < n; i++) {
    if (steps[i] <= step && kept < (size_t)keep) {
      kept++;
      continue;
    }
    char *name = numbered_name(folder, steps[i]);
    unlink(name);
    free(name);
  }
  free(steps);
}
