#include "test/harness/ranks.h"
#include <netinet/in.h>
#include <omp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "comm/session.h"
#include "test/harness/test.h"

// A socket that listens on any port of this host.
static int listen_here(int *port) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof a;
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&a, sizeof a) == 0 && listen(listener, 64) == 0);
  CHECK(getsockname(listener, (struct sockaddr *)&a, &length) == 0);
  *port = ntohs(a.sin_port);
  return listener;
}

// A child leaks what its parent holds, which a sanitizer would tell.
static void end_rank(int status, void *nothing) {
  (void)nothing;
  fflush(NULL);
  _exit(status);
}

static NORETURN void be_rank(const Launch *l, RankWork *work, void *context) {
  Comm *c;
  Err err;
  on_exit(end_rank, NULL);
  omp_set_num_threads(1); // the threads of the parent's are not here
  const CommOptions o = {.launch = *l, .meeting_seconds = 30, .silence_seconds = 30};
  if (!comm_open(&c, &o, &err)) die(EXIT_USAGE, "%s", err.msg);
  const long before = test_failures();
  work(c, context);
  comm_close(c);
  exit(test_failures() > before ? 3 : 0);
}

static int status_of(pid_t pid) {
  int status;
  CHECK(waitpid(pid, &status, 0) == pid);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

bool run_ranks(int world, RankWork *work, void *context, int expected, const char **said) {
  enum { MAX_RANKS = 16 };
  static char text[1 << 14];
  int port, ends[2], status[MAX_RANKS], worst = 0;
  pid_t pid[MAX_RANKS];
  CHECK(world <= MAX_RANKS && !pipe(ends));
  Launch l = {.world = world, .local_world = world, .by = "a test", .secret = true, .listener = listen_here(&port)};
  random_bytes(l.key);
  snprintf(l.meet, sizeof l.meet, "tcp:127.0.0.1:%d", port);
  fflush(NULL); // or a rank's end writes it again
  for (l.rank = 0; l.rank < world; l.rank++) {
    l.local_rank = l.rank;
    pid[l.rank] = fork();
    CHECK(pid[l.rank] >= 0);
    if (pid[l.rank] > 0) continue;
    if (l.rank > 0) {
      close(l.listener);
      l.listener = -1;
    }
    close(ends[0]);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    be_rank(&l, work, context);
  }
  close(l.listener);
  close(ends[1]);
  size_t n = 0;
  for (ssize_t got; (got = read(ends[0], text + n, sizeof text - 1 - n)) > 0;) n += (size_t)got;
  text[n] = '\0';
  close(ends[0]);
  for (int r = 0; r < world; r++) {
    status[r] = status_of(pid[r]);
    worst = MAX(worst, status[r]);
  }
  if (!EXPECT_INT(worst, expected)) {
    for (int r = 0; r < world; r++) printf("    rank %d, process %d: %d\n", r, (int)pid[r], status[r]);
    printf("    said: %s\n", text);
  }
  *said = text;
  return worst == expected;
}

void expect_ranks(int world, RankWork *work, void *context) {
  const char *said;
  run_ranks(world, work, context, 0, &said);
  EXPECT_STR(said, "");
}

typedef struct Question {
  bool (*run)(Comm *c, void *context);
  void *context;
} Question;

static void answer(Comm *c, void *question) {
  const Question *q = question;
  CHECK(q->run(c, q->context));
}

bool true_on_ranks(int world, bool (*run)(Comm *c, void *context), void *context) {
  const char *said;
  if (world == 1) return run(NULL, context);
  return run_ranks(world, answer, &(Question){run, context}, 0, &said);
}
