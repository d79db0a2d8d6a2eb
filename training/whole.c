#include "training/whole.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/cli.h"
#include "base/command.h"
#include "training/numbered.h"

static bool has_moments(const char *name) {
  const char *end = strrchr(name, '.');
  return end && !strcmp(end, ".safetensors") &&
         (!strncmp(name, "checkpoint", strlen("checkpoint")) || !strncmp(name, "best-", strlen("best-")));
}

char *whole_checkpoint(const RunFiles *f, const char *damaged, int64_t *step) {
  DIR *dir = opendir(f->folder);
  char *whole = NULL;
  *step = -1;
  for (struct dirent *entry; dir && (entry = readdir(dir));) {
    if (!has_moments(entry->d_name)) continue;
    char *path = xasprintf("%s/%s", f->folder, entry->d_name);
    const int64_t found = path_is_same(path, damaged) ? -1 : checkpoint_whole_step(path);
    if (found > *step) {
      free(whole);
      whole = path;
      *step = found;
    } else {
      free(path);
    }
  }
  if (dir) closedir(dir);
  return whole;
}

char *whole_command(const RunFiles *f, const char *whole, const char *command) {
  if (path_is_same(whole, f->checkpoint)) return command_with(command, "--resume");
  if (path_is_same(whole, f->previous)) return command_with(command, "--resume=previous");
  char *resume = command_with(command, "--resume"), *from = cli_word(whole), *to = cli_word(f->checkpoint);
  char *both = xasprintf("cp --remove-destination %s %s && %s", from, to, resume); // `to` may have further names
  free(resume);
  free(from);
  free(to);
  return both;
}
