#include "lab/study/runner.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/interrupt.h"

static const double patience = 10; // seconds from SIGTERM to SIGKILL

// The shell, in the child. 126, as where a shell cannot run what it finds.
NORETURN static void become_shell(const char *command, const int files[3]) {
  setpgid(0, 0);
  for (int i = 0; i < 3; i++)
    if (dup2(files[i], i) < 0) _exit(126);
  signal(SIGPIPE, SIG_DFL);
  signal(SIGXFSZ, SIG_DFL);
  execl("/bin/sh", "sh", "-c", command, (char *)NULL);
  _exit(126);
}

// A process that kills the group when the other end of its pipe is closed, as the kernel does for a program that is
// killed. Returns its id; *end: what keeps it waiting.
static pid_t begin_watch(pid_t group, int *end) {
  int ends[2];
  if (pipe(ends) != 0) return -1;
  fcntl(ends[1], F_SETFD, FD_CLOEXEC);
  pid_t watch = fork();
  if (watch == 0) {
    char byte;
    setpgid(0, 0);
    close(ends[1]);
    for (int fd = 0; fd < ends[0]; fd++) close(fd); // nobody waits for the end of what this program writes
    while (read(ends[0], &byte, 1) < 0 && errno == EINTR) continue;
    kill(-group, SIGKILL);
    _exit(0);
  }
  close(ends[0]);
  *end = ends[1];
  return watch;
}

static void end_watch(pid_t watch, int end) {
  if (watch > 0) {
    kill(watch, SIGKILL);
    waitpid(watch, NULL, 0);
  }
  close(end);
}

static void wait_for(pid_t child, double timeout, StudyOutcome *o) {
  const double begin = now_seconds();
  double asked = 0; // when it was asked to end; 0: not yet
  int status;
  while (waitpid(child, &status, WNOHANG) == 0) {
    const double now = now_seconds();
    o->late |= now - begin > timeout;
    o->interrupted |= interrupted();
    if ((o->late || o->interrupted) && !asked) {
      kill(-child, SIGTERM);
      asked = now;
    }
    if (asked && now - asked > patience) kill(-child, SIGKILL);
    nanosleep(&(struct timespec){.tv_nsec = now - begin < 1 ? 2000000 : 50000000}, NULL);
  }
  o->seconds = now_seconds() - begin;
  o->exit = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  o->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  if (o->exit > 128 && o->exit < 128 + 65) { // as a shell says that its command was killed
    o->signal = o->exit - 128;
    o->exit = 0;
  }
  kill(-child, SIGKILL); // what it has left running would disturb the next
}

bool study_run(const char *command, const char *out, const char *errors, double timeout, StudyOutcome *o, Err *err) {
  *o = (StudyOutcome){0};
  int files[3] = {open("/dev/null", O_RDONLY | O_CLOEXEC),
                  open(out, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_APPEND, 0666),
                  open(errors, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_APPEND, 0666)};
  bool ok = files[0] >= 0 && files[1] >= 0 && files[2] >= 0;
  if (!ok) err_set(err, "cannot write %s: %s", files[1] < 0 ? out : errors, strerror(errno));
  fflush(NULL); // the child must not have what is not written yet
  pid_t child = ok ? fork() : -1;
  if (child == 0) become_shell(command, files);
  if (ok && child < 0) ok = err_set(err, "cannot start a process: %s", strerror(errno));
  for (int i = 0; i < 3; i++)
    if (files[i] >= 0) close(files[i]);
  if (!ok) return false;
  setpgid(child, child); // whoever of both comes first
  int end = -1;
  pid_t watch = begin_watch(child, &end);
  wait_for(child, timeout, o);
  end_watch(watch, end);
  return true;
}
