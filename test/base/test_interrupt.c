// Catches a first Ctrl-C that kills the program instead of stopping it, and a second one that has no effect.
#include <errno.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/error.h"
#include "base/interrupt.h"
#include "test/harness/test.h"

// What becomes of a program that catches interrupts and gets these: its exit status, 10 where one is noted, or minus
// the signal that ends it. `ignored`: what it is started to ignore; 0 = nothing. `between`: milliseconds.
static int after_apart(int ignored, int first, int between, int second) {
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    static const int all[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ}; // whatever this program was started with
    for (int i = 0; i < COUNT(all); i++) signal(all[i], all[i] == ignored ? SIG_IGN : SIG_DFL);
    interrupt_by_writing();
    interrupt_catch();
    if (first) raise(first);
    usleep(1000 * (useconds_t)between);
    if (second) raise(second);
    _exit(interrupted() ? 10 : 0);
  }
  int status;
  CHECK(waitpid(pid, &status, 0) == pid);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static int after(int ignored, int first, int second) { return after_apart(ignored, first, 0, second); }

TEST(interrupt_first_is_noted_second_ends) {
  static const int requests[] = {SIGINT, SIGTERM, SIGHUP};
  EXPECT_INT(after(0, 0, 0), 0);
  for (int i = 0; i < COUNT(requests); i++) {
    EXPECT_INT(after(0, requests[i], 0), 10);
    for (int k = 0; k < COUNT(requests); k++) EXPECT_INT(after_apart(0, requests[i], 220, requests[k]), -requests[k]);
  }
}

// timeout(1) sends its signal to the program and then to its group.
TEST(interrupt_sent_twice_at_once_is_one) { EXPECT_INT(after(0, SIGTERM, SIGTERM), 10); }

TEST(interrupt_leaves_what_is_ignored) {
  EXPECT_INT(after(SIGHUP, SIGHUP, 0), 0);
  EXPECT_INT(after(SIGHUP, SIGTERM, SIGHUP), 10);
}

// Output that nobody reads asks for an end; that it is written to again is no second request.
TEST(interrupt_by_failing_writes) {
  EXPECT_INT(after(0, SIGPIPE, SIGPIPE), 10);
  EXPECT_INT(after(0, SIGPIPE, SIGTERM), 10);
  EXPECT_INT(after(SIGPIPE, SIGPIPE, 0), 10);
  EXPECT_INT(after(0, SIGXFSZ, 0), 0);
}

// Writing to a pipe that nobody empties: the first request ends that, and what is written then leads nowhere.
TEST(interrupt_ends_a_wait) {
  int ends[2], held = 0, before, status;
  CHECK(pipe(ends) == 0);
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    static const char page[4096];
    for (int i = SIGHUP; i <= SIGTERM; i++) signal(i, SIG_DFL);
    dup2(ends[1], STDOUT_FILENO);
    interrupt_ends_waits();
    interrupt_catch();
    alarm(20);
    while (write(STDOUT_FILENO, page, sizeof page) > 0) {
    }
    const bool ended = errno == EINTR && interrupted();
    for (int i = 0; i < 100; i++)
      if (write(STDOUT_FILENO, page, sizeof page) != sizeof page) _exit(1);
    _exit(ended ? 10 : 0);
  }
  do { // until it is full
    before = held;
    usleep(100000);
    CHECK(ioctl(ends[0], FIONREAD, &held) == 0);
  } while (!held || held > before);
  kill(pid, SIGTERM);
  CHECK(waitpid(pid, &status, 0) == pid);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 10);
  close(ends[0]);
  close(ends[1]);
}

// What another process writes into memory that both have.
TEST(interrupt_from_elsewhere_is_noted) {
  static atomic_int request;
  interrupt_also(&request);
  EXPECT(!interrupted());
  atomic_store(&request, 1);
  EXPECT(interrupted());
  interrupt_also(NULL);
  EXPECT(!interrupted());
}
