#include "inference/stop_limit.h"
#include <stdio.h>
#include "base/basics.h"
#include "base/error.h"
#include "base/interrupt.h"

static const double FIRST_SECONDS = 2, OTHERS_SECONDS = 3; // after the signal

static void leave(void *unused) {
  char about[2048], line[sizeof about + 32];
  (void)unused;
  die_about(about, sizeof about);
  snprintf(line, sizeof line, "infer: stopped%s%s\n", *about ? ": " : "", about);
  interrupt_leave(EXIT_RUN, line);
}

static void leave_silently(void *unused) {
  (void)unused;
  interrupt_leave(EXIT_RUN, "");
}

void stop_limit_begin(int rank) {
  interrupt_ends_waits();
  interrupt_catch();
  interrupt_limit(rank ? OTHERS_SECONDS : FIRST_SECONDS, rank ? leave_silently : leave, NULL);
}
