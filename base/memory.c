#include "base/memory.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "base/basics.h"

enum { PATH_ROOM = 4096, LINE_ROOM = 4096 };

// ---- files of the kernel --------------------------------------------------------------------------------------------

// The number behind `key`, which begins a line of the file. False where there is none: no file, no such line, or a word
// such as "max" or "unlimited".
static bool read_number(const char *path, const char *key, uint64_t *number) {
  char line[LINE_ROOM];
  bool found = false, known = false;
  FILE *f = fopen(path, "r");
  while (f && !found && fgets(line, sizeof line, f)) {
    found = !strncmp(line, key, strlen(key));
    known = found && sscanf(line + strlen(key), "%" SCNu64, number) == 1;
  }
  if (f) fclose(f);
  return known;
}

static bool read_under(const char *root, const char *file, const char *key, uint64_t *number) {
  char path[PATH_ROOM];
  return snprintf(path, sizeof path, "%s%s", root, file) < (int)sizeof path && read_number(path, key, number);
}

static size_t difference(uint64_t limit, uint64_t used) { return limit > used ? (size_t)(limit - used) : 0; }

// ---- what sets a limit ----------------------------------------------------------------------------------------------

static size_t left_on_machine(const char *root) {
  uint64_t kib;
  return read_under(root, "/proc/meminfo", "MemAvailable:", &kib) ? (size_t)(kib * 1024) : SIZE_MAX;
}

static size_t left_by_limit(const char *root, const char *limit_key, const char *used_key) {
  uint64_t limit, used_kib;
  if (!read_under(root, "/proc/self/limits", limit_key, &limit)) return SIZE_MAX;
  if (!read_under(root, "/proc/self/status", used_key, &used_kib)) return SIZE_MAX;
  return difference(limit, used_kib * 1024);
}

typedef struct GroupFiles { // of one version of control groups
  const char *mount, *limit, *used;
  const char *cache[2]; // lines of memory.stat
} GroupFiles;
static const GroupFiles v1 = {"/sys/fs/cgroup/memory",
                              "memory.limit_in_bytes",
                              "memory.usage_in_bytes",
                              {"total_inactive_file ", "total_active_file "}};
static const GroupFiles v2 = {"/sys/fs/cgroup", "memory.max", "memory.current", {"inactive_file ", "active_file "}};

static bool group_number(const char *folder, const char *file, const char *key, uint64_t *number) {
  char path[PATH_ROOM + 64];
  snprintf(path, sizeof path, "%s/%s", folder, file);
  return read_number(path, key, number);
}

static size_t left_in_group(const GroupFiles *files, const char *folder) {
  uint64_t limit, used, cache;
  if (!group_number(folder, files->limit, "", &limit)) return SIZE_MAX;
  if (!group_number(folder, files->used, "", &used)) return SIZE_MAX;
  for (int i = 0; i < COUNT(files->cache); i++)
    if (group_number(folder, "memory.stat", files->cache[i], &cache)) used -= MIN(used, cache);
  return difference(limit, used);
}

// From the process's own group up to the mount. In a container the path may be the host's: then only the mount is
// there, which is the container's group.
static size_t left_in_groups(const char *root, const GroupFiles *files, const char *group) {
  char folder[PATH_ROOM];
  size_t left = SIZE_MAX, mount = strlen(root) + strlen(files->mount);
  if (snprintf(folder, sizeof folder, "%s%s%s", root, files->mount, group) >= (int)sizeof folder) return SIZE_MAX;
  while (strlen(folder) >= mount) {
    left = MIN(left, left_in_group(files, folder));
    *strrchr(folder, '/') = '\0';
  }
  return left;
}

// Lines are "number:controllers:path"; of version 2 there is one, which names no controllers.
static size_t left_by_groups(const char *root) {
  char path[PATH_ROOM], line[LINE_ROOM], controllers[LINE_ROOM];
  size_t left = SIZE_MAX;
  snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
  FILE *f = fopen(path, "r");
  while (f && fgets(line, sizeof line, f)) {
    char *first = strchr(line, ':'), *second = first ? strchr(first + 1, ':') : NULL;
    if (!second) continue;
    second[strcspn(second, "\n")] = '\0';
    snprintf(controllers, sizeof controllers, ",%.*s,", (int)(second - first - 1), first + 1);
    if (!strcmp(controllers, ",,")) left = MIN(left, left_in_groups(root, &v2, second + 1));
    if (strstr(controllers, ",memory,")) left = MIN(left, left_in_groups(root, &v1, second + 1));
  }
  if (f) fclose(f);
  return left;
}

size_t memory_left(const char *root) {
  size_t left = MIN(left_on_machine(root), left_by_groups(root));
  left = MIN(left, left_by_limit(root, "Max address space", "VmSize:"));
  return MIN(left, left_by_limit(root, "Max data size", "VmData:"));
}
