#define _GNU_SOURCE // process_vm_readv
#include "test/harness/file_calls.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/ptrace.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/error.h"

// Of the tracing process: the thread that is stopped, and its call.
typedef struct Stop {
  FileCalls *to;
  const char *folder;
  pid_t thread;
  uint64_t nr, a[6];
} Stop;

// The headers of the C library and of Linux do not go together, and only the latter has all of it.
static long trace(int request, pid_t thread, const void *at, const void *data) {
  return syscall(SYS_ptrace, request, thread, at, data);
}

// ---- what the traced program has ------------------------------------------------------------------------------------

static bool read_memory(pid_t of, uint64_t from, void *to, size_t bytes) {
  struct iovec here = {to, bytes}, there = {(void *)(uintptr_t)from, bytes};
  return process_vm_readv(of, &here, 1, &there, 1, 0) == (ssize_t)bytes;
}

static void read_text(pid_t of, uint64_t from, char text[PATH_MAX]) {
  size_t n = 0;
  while (n + 1 < PATH_MAX && read_memory(of, from + n, text + n, 1) && text[n]) n++;
  text[n] = '\0';
}

// The name below the folder, "" the folder; NULL: it is elsewhere.
static const char *below(const Stop *s, const char *path) {
  const size_t n = strlen(s->folder);
  if (strncmp(path, s->folder, n) || (path[n] && path[n] != '/')) return NULL;
  path += n;
  return path + strspn(path, "/");
}

// Likewise of a path that is an argument, relative to the folder of the descriptor `at`.
static const char *named(const Stop *s, int at, uint64_t argument, char path[PATH_MAX]) {
  char text[PATH_MAX], link[64];
  read_text(s->thread, argument, text);
  if (*text == '/') {
    strcpy(path, text);
    return below(s, path);
  }
  if (at == AT_FDCWD)
    snprintf(link, sizeof link, "/proc/%d/cwd", s->thread);
  else
    snprintf(link, sizeof link, "/proc/%d/fd/%d", s->thread, at);
  const ssize_t n = readlink(link, path, PATH_MAX - 1);
  if (n < 0) return NULL;
  snprintf(path + n, (size_t)(PATH_MAX - n), "/%s", text);
  return below(s, path);
}

// Of an open file or folder.
static const char *name_of(const Stop *s, int fd, char path[PATH_MAX], struct stat *st) {
  char link[64];
  snprintf(link, sizeof link, "/proc/%d/fd/%d", s->thread, fd);
  const ssize_t n = readlink(link, path, PATH_MAX - 1);
  if (n < 0 || stat(link, st) != 0) return NULL;
  path[n] = '\0';
  return below(s, path);
}

static int64_t position_of(const Stop *s, int fd, const struct stat *st) {
  char path[64], line[128];
  long long at = 0;
  unsigned flags = 0;
  snprintf(path, sizeof path, "/proc/%d/fdinfo/%d", s->thread, fd);
  FILE *f = fopen(path, "r");
  CHECK(f);
  while (fgets(line, sizeof line, f)) {
    sscanf(line, "pos: %lld", &at);
    sscanf(line, "flags: %o", &flags);
  }
  fclose(f);
  return flags & O_APPEND ? st->st_size : at;
}

// ---- the list -------------------------------------------------------------------------------------------------------

static int known_file(const FileCalls *c, uint64_t inode) {
  for (size_t i = c->files; i-- > 0;)
    if (c->file[i].inode == inode) return (int)i;
  return -1;
}

static int new_file(FileCalls *c, uint64_t inode) {
  array_reserve((void **)&c->file, &c->file_cap, c->files + 1, sizeof *c->file);
  c->file[c->files].inode = inode;
  return (int)c->files++;
}

static void add(FileCalls *c, FileCall call) {
  FileCall *last = c->n ? &c->call[c->n - 1] : NULL;
  if (last && last->type == CALL_WRITE && call.type == CALL_WRITE && last->file == call.file &&
      last->at + last->n == call.at) {
    last->bytes = xrealloc(last->bytes, (size_t)(last->n + call.n));
    memcpy(last->bytes + last->n, call.bytes, (size_t)call.n);
    last->n += call.n;
    last->calls++;
    free(call.bytes);
    return;
  }
  call.calls = 1;
  array_reserve((void **)&c->call, &c->cap, c->n + 1, sizeof *c->call);
  c->call[c->n++] = call;
}

static void add_unknown(Stop *s, const char *what) {
  if (!s->to->unknown) s->to->unknown = xstrdup(what);
}

// ---- calls ----------------------------------------------------------------------------------------------------------

// Until the thread has made its call; its result, or minus the error. Other threads that come to a call wait meanwhile,
// so that the list has the order in which the calls were made.
static int64_t finish_call(const Stop *s) {
  for (int signal = 0;;) {
    int status;
    trace(PTRACE_SYSCALL, s->thread, NULL, (void *)(intptr_t)signal);
    if (waitpid(s->thread, &status, __WALL) != s->thread || !WIFSTOPPED(status)) return -EINTR; // it was killed
    if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
      struct ptrace_syscall_info info = {0};
      CHECK(trace(PTRACE_GET_SYSCALL_INFO, s->thread, (void *)sizeof info, &info) > 0);
      CHECK(info.op == PTRACE_SYSCALL_INFO_EXIT);
      return info.exit.rval;
    }
    signal = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
  }
}

static void on_open(Stop *s, int at, uint64_t path_argument, int flags) {
  char path[PATH_MAX], there[PATH_MAX];
  struct stat st;
  const char *name = flags & (O_CREAT | O_TRUNC) ? named(s, at, path_argument, path) : NULL;
  if (!name) return;
  const bool was = stat(path, &st) == 0;
  const int64_t length = was ? st.st_size : 0, fd = finish_call(s);
  if (fd < 0 || !name_of(s, (int)fd, there, &st) || !S_ISREG(st.st_mode)) return;
  if (!was)
    add(s->to, (FileCall){.type = CALL_CREATE, .file = new_file(s->to, st.st_ino), .name = xstrdup(name)});
  else if (flags & O_TRUNC && length)
    add(s->to, (FileCall){.type = CALL_TRUNCATE, .file = known_file(s->to, st.st_ino)});
}

static void on_write(Stop *s, bool positioned) {
  char path[PATH_MAX];
  struct stat st;
  const int fd = (int)s->a[0];
  if (!name_of(s, fd, path, &st) || !S_ISREG(st.st_mode)) return;
  FileCall call = {.type = CALL_WRITE, .file = known_file(s->to, st.st_ino), .bytes = xmalloc(s->a[2] + 1)};
  call.at = positioned ? (int64_t)s->a[3] : position_of(s, fd, &st);
  CHECK(read_memory(s->thread, s->a[1], call.bytes, s->a[2]));
  call.n = finish_call(s);
  if (call.n > 0)
    add(s->to, call);
  else
    free(call.bytes);
}

static void on_truncate(Stop *s) {
  char path[PATH_MAX];
  struct stat st;
  if (!name_of(s, (int)s->a[0], path, &st)) return;
  const int64_t before = st.st_size, n = (int64_t)s->a[1];
  if (finish_call(s) == 0 && before != n)
    add(s->to, (FileCall){.type = CALL_TRUNCATE, .file = known_file(s->to, st.st_ino), .n = n});
}

static void on_sync(Stop *s) {
  char path[PATH_MAX];
  struct stat st;
  const char *name = name_of(s, (int)s->a[0], path, &st);
  if (!name || finish_call(s) != 0) return;
  const bool folder = S_ISDIR(st.st_mode);
  add(s->to, (FileCall){.type = CALL_SYNC,
                        .file = folder ? -1 : known_file(s->to, st.st_ino),
                        .name = folder ? xstrdup(name) : NULL});
}

static void on_names(Stop *s, FileCallType type, int at, uint64_t from, int to_at, uint64_t to) {
  char before[PATH_MAX], path[PATH_MAX];
  struct stat st = {0}, other = {0};
  const char *old = from ? named(s, at, from, before) : NULL, *name = named(s, to_at, to, path);
  if (!name && !old) return;
  const char *of = from ? before : path;
  const bool was = (type == CALL_LINK ? stat : lstat)(of, &st) == 0,
             same = from && lstat(path, &other) == 0 && other.st_ino == st.st_ino;
  if (finish_call(s) != 0 || (type == CALL_RENAME && same)) return; // rename of a file onto itself does nothing
  if (!name || (from && !old)) add_unknown(s, "a name moved into or out of the folder");
  if (type == CALL_MKDIR)
    add(s->to, (FileCall){.type = type, .file = -1, .name = xstrdup(name)});
  else if (was && S_ISREG(st.st_mode) && name)
    add(s->to, (FileCall){.type = type,
                          .file = known_file(s->to, st.st_ino),
                          .name = xstrdup(name),
                          .from = type == CALL_RENAME && old ? xstrdup(old) : NULL});
  else
    add_unknown(s, "a name of something else than a file");
}

// Others that could change a file of the folder.
static void on_other(Stop *s, const char *what, int fd) {
  char path[PATH_MAX];
  struct stat st;
  if (name_of(s, fd, path, &st)) add_unknown(s, what);
}

static void on_call(Stop *s) {
  const uint64_t *a = s->a;
  switch (s->nr) {
#ifdef SYS_open
  case SYS_open: on_open(s, AT_FDCWD, a[0], (int)a[1]); break;
  case SYS_creat: on_open(s, AT_FDCWD, a[0], O_CREAT | O_TRUNC); break;
  case SYS_rename: on_names(s, CALL_RENAME, AT_FDCWD, a[0], AT_FDCWD, a[1]); break;
  case SYS_link: on_names(s, CALL_LINK, AT_FDCWD, a[0], AT_FDCWD, a[1]); break;
  case SYS_unlink: on_names(s, CALL_UNLINK, 0, 0, AT_FDCWD, a[0]); break;
  case SYS_mkdir: on_names(s, CALL_MKDIR, 0, 0, AT_FDCWD, a[0]); break;
  case SYS_rmdir: add_unknown(s, "rmdir"); break;
#endif
#ifdef SYS_renameat
  case SYS_renameat: on_names(s, CALL_RENAME, (int)a[0], a[1], (int)a[2], a[3]); break;
#endif
  case SYS_renameat2: on_names(s, CALL_RENAME, (int)a[0], a[1], (int)a[2], a[3]); break;
  case SYS_linkat: on_names(s, CALL_LINK, (int)a[0], a[1], (int)a[2], a[3]); break;
  case SYS_unlinkat: on_names(s, CALL_UNLINK, 0, 0, (int)a[0], a[1]); break;
  case SYS_mkdirat: on_names(s, CALL_MKDIR, 0, 0, (int)a[0], a[1]); break;
  case SYS_openat: on_open(s, (int)a[0], a[1], (int)a[2]); break;
  case SYS_write: on_write(s, false); break;
  case SYS_pwrite64: on_write(s, true); break;
  case SYS_ftruncate: on_truncate(s); break;
  case SYS_fsync:
  case SYS_fdatasync: on_sync(s); break;
  case SYS_writev:
  case SYS_pwritev:
  case SYS_pwritev2: on_other(s, "writev", (int)a[0]); break;
  case SYS_fallocate: on_other(s, "fallocate", (int)a[0]); break;
  case SYS_copy_file_range: on_other(s, "copy_file_range", (int)a[2]); break;
  case SYS_sendfile: on_other(s, "sendfile", (int)a[0]); break;
  case SYS_mmap:
    if ((int)a[4] >= 0 && a[2] & PROT_WRITE && a[3] & MAP_SHARED) on_other(s, "mmap for writing", (int)a[4]);
    break;
  default: break;
  }
}

// ---- running --------------------------------------------------------------------------------------------------------

static void run_traced(const char *said, char *const *arguments) {
  const int out = open(said, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (out < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0 || trace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(126);
  raise(SIGSTOP);
  execvp(arguments[0], arguments);
  _exit(127);
}

int file_calls_record(FileCalls *c, const char *folder, const char *said, char *const *arguments) {
  int status, result = -1000;
  const pid_t program = fork();
  CHECK(program >= 0);
  if (program == 0) run_traced(said, arguments);
  if (waitpid(program, &status, __WALL) != program || !WIFSTOPPED(status)) return result;
  const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                       PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
  CHECK(trace(PTRACE_SETOPTIONS, program, NULL, (void *)options) == 0);
  Stop s = {.to = c, .folder = folder, .thread = program};
  trace(PTRACE_SYSCALL, program, NULL, NULL);
  for (pid_t thread; (thread = waitpid(-1, &status, __WALL)) > 0;) {
    if (!WIFSTOPPED(status)) {
      if (thread == program) result = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
      continue;
    }
    int signal = WSTOPSIG(status);
    if (signal == (SIGTRAP | 0x80)) {
      struct ptrace_syscall_info info = {0};
      signal = 0;
      s.thread = thread;
      if (trace(PTRACE_GET_SYSCALL_INFO, thread, (void *)sizeof info, &info) > 0 &&
          info.op == PTRACE_SYSCALL_INFO_ENTRY) {
        s.nr = info.entry.nr;
        for (int i = 0; i < 6; i++) s.a[i] = info.entry.args[i];
        on_call(&s);
      }
    } else if (signal == SIGTRAP || signal == SIGSTOP) {
      signal = 0; // a new thread, or an event of one
    }
    trace(PTRACE_SYSCALL, thread, NULL, (void *)(intptr_t)signal);
  }
  return result;
}

void file_calls_free(FileCalls *c) {
  for (size_t i = 0; i < c->n; i++) {
    free(c->call[i].name);
    free(c->call[i].from);
    free(c->call[i].bytes);
  }
  free(c->call);
  free(c->file);
  free(c->unknown);
  *c = (FileCalls){0};
}

void file_call_print(const FileCall *c) {
  static const char *const types[] = {"create", "mkdir", "write", "ftruncate", "rename", "link", "unlink", "fsync"};
  printf("%s file %d %s%s%s at %lld, %lld bytes, %d calls\n", types[c->type], c->file, c->from ? c->from : "",
         c->from ? " -> " : "", c->name ? c->name : "", (long long)c->at, (long long)c->n, c->calls);
}
