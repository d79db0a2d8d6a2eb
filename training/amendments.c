#include "training/amendments.h"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void amendments_read(const char *path, AmendmentFn *each, void *context) {
  static const char member[] = "\"changes\":";
  char *line = NULL;
  size_t cap = 0;
  FILE *f = fopen(path, "r");
  while (f && getline(&line, &cap, f) > 0) {
    long long step;
    int at = 0;
    char *changes = strstr(line, member);
    if (sscanf(line, "{\"step\":%lld,\"kind\":\"amend\"%n", &step, &at) < 1 || !at || !changes) continue;
    line[strcspn(line, "\n")] = '\0';
    changes += strlen(member);
    const size_t n = strlen(changes);
    if (n) changes[n - 1] = '\0'; // the record's own end
    each(context, step, changes);
  }
  free(line);
  if (f) fclose(f);
}
