#include "base/interrupt.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/die_told.h"
#include "base/error.h"

static volatile sig_atomic_t asked, unread;
static volatile double asked_at;    // seconds; of the first signal
static const double again = 0.2;    // seconds: timeout(1) sends its signal twice, to the program and to its group
static const atomic_int *elsewhere; // NULL: nobody else asks

static double seconds_now(void) { // that a handler may ask for
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int nowhere = -1; // /dev/null
static bool ends_waits;

// What is printed from here on would wait again.
static void drop_what_waits(void) {
  const int before = errno;
  for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++)
    if (poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, 0) == 0) dup2(nowhere, fd);
  errno = before;
}

static void on_request(int which) {
  const double now = seconds_now();
  if (asked && now - asked_at > again) {
    signal(which, SIG_DFL);
    raise(which); // takes effect when this returns
  }
  if (!asked) asked_at = now;
  if (nowhere >= 0) drop_what_waits();
  asked = 1;
}

static void on_pipe(int which) {
  (void)which;
  unread = 1;
}

static void catch_with(int which, void (*handler)(int)) {
  const bool ends = handler == on_request && ends_waits;
  struct sigaction action = {.sa_handler = handler, .sa_flags = ends ? 0 : SA_RESTART};
  sigaction(which, &action, NULL);
}

void interrupt_ends_waits(void) { ends_waits = true; }

void interrupt_catch(void) {
  if (nowhere < 0) nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
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

// ---- a limit ----------------------------------------------------------------------------------------------------

static pthread_mutex_t limit_lock = PTHREAD_MUTEX_INITIALIZER;
static double limit;         // seconds
static InterruptEnd *at_end; // NULL: none
static void *end_context;
static double noticed; // when

double interrupted_for(void) { return noticed > 0 ? seconds_now() - noticed : 0; }

static void *watch_limit(void *unused) {
  for (;; nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL)) {
    if (!interrupted()) continue;
    if (noticed <= 0) noticed = seconds_now();
    pthread_mutex_lock(&limit_lock);
    if (at_end && interrupted_for() >= limit) at_end(end_context);
    pthread_mutex_unlock(&limit_lock);
  }
  return unused;
}

// Signals go to the other threads, whose waits they end.
static bool start_watch(void) {
  pthread_t thread;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const bool ok = pthread_create(&thread, NULL, watch_limit, NULL) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (ok) pthread_detach(thread);
  return ok;
}

void interrupt_limit(double seconds, InterruptEnd *end, void *context) {
  static bool is_watched;
  pthread_mutex_lock(&limit_lock);
  limit = seconds;
  at_end = end;
  end_context = context;
  if (end && !is_watched) is_watched = start_watch();
  pthread_mutex_unlock(&limit_lock);
}

void interrupt_leave(int code, const char *line) {
  char told[DIE_LINE];
  snprintf(told, sizeof told, "%s", line);
  const bool by_another = *line && die_told(&code, told);
  drop_what_waits();
  if (!by_another && write(STDERR_FILENO, line, strlen(line)) < 0) _exit(code); // nobody is left to tell
  _exit(code);
}
