#include "base/interrupt.h"
#include <signal.h>
#include <stddef.h>
#include <time.h>

static volatile sig_atomic_t asked, unread;
static volatile double asked_at;    // seconds; of the first signal
static const double again = 0.2;    // seconds: timeout(1) sends its signal twice, to the program and to its group
static const atomic_int *elsewhere; // NULL: nobody else asks

static double seconds_now(void) { // that a handler may ask for
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void on_request(int which) {
  const double now = seconds_now();
  if (asked && now - asked_at > again) {
    signal(which, SIG_DFL);
    raise(which); // takes effect when this returns
  }
  if (!asked) asked_at = now;
  asked = 1;
}

static void on_pipe(int which) {
  (void)which;
  unread = 1;
}

static void catch_with(int which, void (*handler)(int)) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
  sigaction(which, &action, NULL);
}

void interrupt_catch(void) {
  static const int requests[] = {SIGINT, SIGTERM, SIGHUP};
  for (int i = 0; i < 3; i++) {
    struct sigaction before;
    if (sigaction(requests[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN) catch_with(requests[i], on_request);
  }
}

void interrupt_by_writing(void) {
  catch_with(SIGXFSZ, SIG_IGN);
  catch_with(SIGPIPE, on_pipe);
}

void interrupt_also(const atomic_int *request) { elsewhere = request; }

bool interrupted(void) { return asked || unread || (elsewhere && atomic_load(elsewhere)); }
