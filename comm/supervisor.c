#include "comm/supervisor.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "comm/session.h"

// Seconds to wait for killed ranks, and for ranks asked to end while they start; milliseconds between heartbeats.
enum { LAST_WAIT = 10, START_SECONDS = 2, BEAT_MS = 500 };

typedef struct Supervisor {
  const Supervision *asked;
  Crew *crew;
  sigset_t watched, before; // signals that are waited for; the signal mask of the ranks
  pid_t pid[MAX_CREW];      // 0: the rank has ended
  int left;                 // ranks that have not ended
  int request;              // the first signal requesting a stop; 0: none
  int at_once;              // the second one, which also ends this process; 0: none
  bool failed;              // a rank has failed
  int status;               // status of the first rank that ended with one other than 0
  double deadline;          // when the remaining ranks are killed; 0: never
  bool killed;              // remaining ranks were killed
} Supervisor;

// ---- messages -------------------------------------------------------------------------------------------------------

static void tell(const char *fmt, ...) PRINTF_LIKE(1, 2);
static void tell(const char *fmt, ...) {
  char line[DIE_LINE];
  va_list args;
  va_start(args, fmt);
  vsnprintf(line, sizeof line, fmt, args);
  va_end(args);
  fflush(stdout);
  die_print(line);
}

static void signal_name(int which, char *text, size_t room) {
  static const struct {
    int which;
    const char *name;
  } names[] = {{SIGKILL, "SIGKILL"}, {SIGSEGV, "SIGSEGV"}, {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},
               {SIGFPE, "SIGFPE"},   {SIGILL, "SIGILL"},   {SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"},
               {SIGHUP, "SIGHUP"},   {SIGQUIT, "SIGQUIT"}, {SIGPIPE, "SIGPIPE"}, {SIGXCPU, "SIGXCPU"}};
  snprintf(text, room, "signal %d", which);
  for (int i = 0; i < COUNT(names); i++)
    if (names[i].which == which) snprintf(text, room, "%s", names[i].name);
}

// Describes a status: "killed by SIGKILL", "ended with status 3 and no message".
static void end_text(int status, char *text, size_t room) {
  char name[32];
  if (!WIFSIGNALED(status)) {
    snprintf(text, room, "exited with status %d and no message", WEXITSTATUS(status));
    return;
  }
  signal_name(WTERMSIG(status), name, sizeof name);
  snprintf(text, room, "was killed by %s", name);
}

static void step_text(const Crew *crew, int rank, char *text, size_t room) {
  const long long step = atomic_load(&crew->rank[rank].step);
  snprintf(text, room, step > 0 ? "at step %lld" : "before its first step", step);
}

// Prints how a rank ended, unless another process has reported why the run ends.
static void say(const Supervisor *v, int rank, int status) {
  if (!crew_claim(v->crew, v->status)) return;
  const bool memory = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  char host[256] = "", what[64], step[64], kept[1024] = "";
  gethostname(host, sizeof host - 1);
  end_text(status, what, sizeof what);
  step_text(v->crew, rank, step, sizeof step);
  if (v->asked->kept) v->asked->kept(v->asked->context, kept, sizeof kept);
  tell("rank %d on %s %s %s%s%s%s", rank, host, what, step,
       memory ? " (perhaps because memory ran out: see dmesg)" : "", *kept ? "; " : "", kept);
}

// ---- starting -------------------------------------------------------------------------------------------------------

static int count_threads(void) {
  int threads = 0;
  DIR *dir = opendir("/proc/self/task");
  for (struct dirent *entry; dir && (entry = readdir(dir));) threads += entry->d_name[0] != '.';
  if (dir) closedir(dir);
  return threads;
}

// Checks that this is the only thread, because fork copies only the calling one. A joined thread may still be counted
// for a moment.
static void check_alone(void) {
  const double begin = now_seconds();
  while (count_threads() > 1 && now_seconds() - begin < 2) usleep(1000);
  const int threads = count_threads();
  CHECK(threads <= 1);
}

// A socket that listens on the loopback address only, at a port chosen by the system.
static int listen_here(int *port) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof at;
  const int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (s < 0 || bind(s, (struct sockaddr *)&at, size) || listen(s, SOMAXCONN) ||
      getsockname(s, (struct sockaddr *)&at, &size))
    die(EXIT_RUN, "cannot listen on 127.0.0.1 for the ranks: %s; is the loopback interface (lo) up?", strerror(errno));
  *port = ntohs(at.sin_port);
  return s;
}

static Launch launch_of(const Supervisor *v, int *listener) {
  int port;
  Launch l = {.world = v->asked->ranks, .local_world = v->asked->ranks, .by = "--gpus", .crew = v->crew};
  *listener = l.listener = listen_here(&port);
  snprintf(l.meet, sizeof l.meet, "tcp:127.0.0.1:%d", port);
  l.secret = true;
  random_bytes(l.key);
  return l;
}

// A rank that is starting, and may read a large file, has nothing to save.
static void leave(void *unused) {
  (void)unused;
  interrupt_leave(EXIT_RUN, "");
}

static void begin_rank(const Supervisor *v, Launch *l, int rank) {
  Crew *crew = v->crew;
  signal(SIGINT, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  interrupt_catch();
  interrupt_also(&crew->stop);
  interrupt_limit(START_SECONDS, leave, NULL);
  // When the supervisor ends, the kernel tells its ranks: a single one, which has no watch, is asked to stop, and one
  // that is stopped goes on, so that its watch can end it.
  prctl(PR_SET_PDEATHSIG, crew->ranks == 1 ? SIGTERM : SIGCONT);
  if (crew->ranks == 1 && getppid() != crew->supervisor) raise(SIGTERM);
  l->rank = l->local_rank = rank;
  if (rank) {
    close(l->listener);
    l->listener = -1;
  }
  atomic_store(&crew->rank[rank].pid, getpid());
  sigprocmask(SIG_SETMASK, &v->before, NULL);
}

static void kill_all(Supervisor *v) {
  for (int r = 0; r < v->asked->ranks; r++)
    if (v->pid[r]) kill(v->pid[r], SIGKILL);
  v->killed = true;
  v->deadline = now_seconds() + LAST_WAIT;
}

static NORETURN void refuse_to_fork(Supervisor *v, int rank, int reason) {
  v->pid[rank] = 0; // -1 would mean all processes of the user
  kill_all(v);
  for (int r = 0; r < rank; r++) waitpid(v->pid[r], NULL, 0);
  die(EXIT_RUN, "cannot start rank %d: %s; does ulimit -u allow enough processes?", rank, strerror(reason));
}

// True in a rank.
static bool start_ranks(Supervisor *v, Launch *l) {
  Crew *crew = v->crew;
  int listener;
  memset(v->pid, 0, sizeof v->pid);
  memset(crew->rank, 0, sizeof crew->rank);
  atomic_store(&crew->said, 0);
  *l = launch_of(v, &listener);
  fflush(NULL); // otherwise every rank would write buffered output again
  for (int r = 0; r < v->asked->ranks; r++) {
    v->pid[r] = fork();
    if (v->pid[r] == 0) {
      begin_rank(v, l, r);
      return true;
    }
    if (v->pid[r] < 0) refuse_to_fork(v, r, errno);
  }
  close(listener);
  v->left = v->asked->ranks;
  v->failed = v->killed = false;
  v->status = 0;
  v->deadline = 0;
  return false;
}

// ---- watching -------------------------------------------------------------------------------------------------------

static void take_request(Supervisor *v, int which) {
  if (!v->request) {
    v->request = which;
    atomic_store(&v->crew->stop, 1);
    return;
  }
  v->at_once = which;
  kill_all(v);
}

// Whether a rank ended with its own status after a request, without a message.
static bool ended_as_asked(const Supervisor *v, int status) {
  return !WIFSIGNALED(status) && atomic_load(&v->crew->stop) && !crew_code(v->crew);
}

// Whether a rank was ended by a second SIGTERM, which was sent to the whole process group.
static bool ended_at_once(const Supervisor *v, int status) {
  return v->request && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM;
}

static void note_end(Supervisor *v, int rank, int status) {
  if (status == 0 || v->killed) return;
  const int code = WIFSIGNALED(status) ? EXIT_RUN : WEXITSTATUS(status);
  if (!v->status) v->status = code;
  if (v->failed || ended_as_asked(v, status)) return;
  v->failed = true;
  v->status = crew_code(v->crew) ? crew_code(v->crew) : code;
  v->deadline = now_seconds() + GRACE;
  if (ended_at_once(v, status)) crew_claim(v->crew, v->status); // the user asked for it, so no message is needed
  say(v, rank, status);
}

// Clears the PID in shared memory before the system may reuse it.
static void reap(Supervisor *v, int rank) {
  siginfo_t info = {0};
  int status;
  if (waitid(P_PID, (id_t)v->pid[rank], &info, WEXITED | WNOHANG | WNOWAIT) || !info.si_pid) return;
  atomic_store(&v->crew->rank[rank].pid, 0);
  CHECK(waitpid(v->pid[rank], &status, 0) == v->pid[rank]);
  v->pid[rank] = 0;
  v->left--;
  note_end(v, rank, status);
}

// Kills ranks that are stopped, which cannot end by themselves.
static void kill_stopped(Supervisor *v) {
  for (int r = 0; r < v->asked->ranks; r++) {
    siginfo_t info = {0};
    if (v->pid[r] && !waitid(P_PID, (id_t)v->pid[r], &info, WSTOPPED | WNOHANG | WNOWAIT) && info.si_pid)
      kill(v->pid[r], SIGKILL);
  }
}

static NORETURN void give_up(const Supervisor *v) {
  for (int r = 0; r < v->asked->ranks; r++)
    if (v->pid[r])
      tell("rank %d, process %d, was killed but does not exit: it hangs in a system call; dmesg may say why", r,
           (int)v->pid[r]);
  exit(v->status ? v->status : EXIT_RUN);
}

static void watch_ranks(Supervisor *v) {
  const struct timespec beat = {.tv_nsec = BEAT_MS * 1000000L};
  while (v->left > 0) {
    const int which = sigtimedwait(&v->watched, NULL, &beat);
    atomic_fetch_add(&v->crew->beat, 1);
    if (which > 0 && which != SIGCHLD) take_request(v, which);
    for (int r = 0; r < v->asked->ranks; r++)
      if (v->pid[r]) reap(v, r);
    if (v->failed) kill_stopped(v);
    if (!v->deadline || now_seconds() < v->deadline || v->left == 0) continue;
    if (v->killed) give_up(v);
    kill_all(v);
  }
}

// Whether the run is restarted. A closed pipe as output also counts as a request to stop.
static bool starts_again(const Supervisor *v, int attempt) {
  const bool ended = atomic_load(&v->crew->stop) || atomic_load(&v->crew->over) || interrupted();
  return v->failed && v->status != 0 && v->status != EXIT_USAGE && !ended && attempt < v->asked->restarts;
}

// ---- the supervisor -------------------------------------------------------------------------------------------------

// Blocks signals, which are then waited for; those that were ignored when the program started stay ignored.
static void hold_signals(Supervisor *v) {
  static const int requests[] = {SIGINT, SIGTERM, SIGHUP};
  struct sigaction was;
  signal(SIGCHLD, SIG_DFL); // if the parent process had it ignored, no status would be kept
  sigemptyset(&v->watched);
  sigaddset(&v->watched, SIGCHLD);
  for (int i = 0; i < COUNT(requests); i++)
    if (!sigaction(requests[i], NULL, &was) && was.sa_handler != SIG_IGN) sigaddset(&v->watched, requests[i]);
  sigprocmask(SIG_BLOCK, &v->watched, &v->before);
}

static NORETURN void end_by(const Supervisor *v, int which) {
  signal(which, SIG_DFL);
  raise(which);
  sigprocmask(SIG_UNBLOCK, &v->watched, NULL); // pending signals are delivered here
  exit(EXIT_RUN);
}

static Crew *crew_of(int ranks) {
  Crew *crew = mmap(NULL, sizeof *crew, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (crew == MAP_FAILED) die_of_memory(sizeof *crew, HERE);
  crew->supervisor = getpid();
  crew->ranks = ranks;
  return crew;
}

void supervise(const Supervision *s, Launch *l, int *attempt) {
  CHECK(s->ranks >= 1 && s->ranks <= MAX_CREW);
  check_alone();
  Supervisor *v = xcalloc(1, sizeof *v);
  v->asked = s;
  v->crew = crew_of(s->ranks);
  hold_signals(v);
  for (*attempt = 0;; ++*attempt) {
    if (start_ranks(v, l)) {
      free(v);
      return;
    }
    watch_ranks(v);
    if (v->at_once) end_by(v, v->at_once);
    if (!starts_again(v, *attempt)) exit(v->status);
    tell("restarting, %d of %d", *attempt + 1, s->restarts);
  }
}
