#include "base/interrupt.h"
#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t asked, unread;
static const atomic_int *elsewhere; // NULL: nobody else asks

static void on_request(int which) {
  if (asked) {
    signal(which, SIG_DFL);
    raise(which); // takes effect when this returns
  }
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
