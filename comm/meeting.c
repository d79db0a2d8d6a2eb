#include "comm/meeting.h"
#include <stdlib.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/interrupt.h"

void meeting_open(Meeting *m, int world) {
  m->data = xcalloc((size_t)world, sizeof *m->data);
  m->control = xcalloc((size_t)world, sizeof *m->control);
  m->peer = xcalloc((size_t)world, sizeof *m->peer);
  for (int i = 0; i < world; i++) {
    m->data[i] = -1;
    m->control[i] = (Wire){.fd = -1};
  }
}

void meeting_close(Meeting *m, int world) {
  for (int i = 0; m->data && i < world; i++) {
    if (m->data[i] >= 0) close(m->data[i]);
    wire_close(&m->control[i]);
  }
  free(m->data);
  free(m->control);
  free(m->peer);
  *m = (Meeting){0};
}

bool meeting_is_off(const Launch *l, bool *others_say, Err *err) {
  if (l->crew && crew_code(l->crew)) {
    *others_say = true;
    err_set(err, "the run is over");
    return true;
  }
  if (l->crew && getppid() != l->crew->supervisor) {
    err_set(err, "the supervisor, process %ld, ended before all ranks had joined", (long)l->crew->supervisor);
    return true;
  }
  if (!interrupted()) return false;
  err_set(err, "interrupted before all ranks had joined");
  return true;
}
