#include "test/harness/child.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/error.h"
#include "test/harness/test.h"

// A child leaks what its parent holds, which a sanitizer would tell.
static void end_at_once(int status, void *nothing) {
  (void)nothing;
  fflush(NULL);
  _exit(status);
}

void signals_end_this(void) {
  signal(SIGHUP, SIG_DFL);
  signal(SIGINT, SIG_DFL);
}

int run_in_child(void (*run)(void *context), void *context, const char **said) {
  static char text[1 << 13];
  int ends[2], status;
  CHECK(!pipe(ends));
  fflush(NULL); // or the child's exit writes it again
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    signals_end_this();
    dup2(ends[1], STDERR_FILENO);
    on_exit(end_at_once, NULL);
    run(context);
    _exit(0);
  }
  close(ends[1]);
  size_t n = 0;
  for (ssize_t got; (got = read(ends[0], text + n, sizeof text - 1 - n)) > 0;) n += (size_t)got;
  text[n] = '\0';
  close(ends[0]);
  CHECK(waitpid(pid, &status, 0) == pid);
  *said = text;
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

int quiet_begin(const char *path) {
  fflush(stderr);
  int kept = dup(STDERR_FILENO);
  CHECK(kept >= 0 && freopen(path, "w", stderr) && !setvbuf(stderr, NULL, _IONBF, 0));
  return kept;
}
void quiet_end(int kept) {
  fflush(stderr);
  dup2(kept, STDERR_FILENO);
  close(kept);
}
