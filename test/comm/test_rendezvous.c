// Catches runs that wait forever for a rank, or that accept a rank of another job or build.
#include <arpa/inet.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "comm/meeting_file.h"
#include "test/harness/child.h"
#include "test/harness/raw_rank.h"
#include "test/harness/test.h"

static void nothing(Comm *c, void *context) {
  (void)c;
  (void)context;
}

static void expect_said(RankProcesses *r, int lines, const char *says) {
  processes_end(r);
  if (!EXPECT(processes_lines(r) == lines && strstr(r->said, says))) printf("    not %s: %s", says, r->said);
}
static void expect_status(const RankProcesses *r, int status) {
  for (int i = 0; i < r->world; i++) EXPECT_INT(r->status[i], r->pid[i] > 0 ? status : 0);
}

static int port_of_ranks(const RankProcesses *r) { return atoi(strrchr(r->options.launch.meet, ':') + 1); }

TEST(rendezvous_names_who_is_missing) {
  RankProcesses r;
  processes_init(&r, 7, nothing, NULL, -1);
  r.options.meeting_seconds = 1;
  processes_fork(&r, 0);
  processes_fork(&r, 3);
  char says[128];
  snprintf(says, sizeof says, ": ranks 1-2, 4-6 of 7 have not joined at 127.0.0.1:%d within 1 s\n", port_of_ranks(&r));
  expect_said(&r, 1, says);
  expect_status(&r, EXIT_USAGE);
}

TEST(rendezvous_without_rank_0) {
  RankProcesses r;
  processes_init(&r, 2, nothing, NULL, -1);
  r.options.meeting_seconds = 0.3;
  close(r.listener);
  r.listener = -1;
  processes_fork(&r, 1);
  expect_said(&r, 1, "within 0.3 s (Connection refused)\n");
  EXPECT(strstr(r.said, ": rank 1: rank 0 does not answer at 127.0.0.1:"));
  expect_status(&r, EXIT_USAGE);
}

static void last_is_rank_1(CommOptions *o) {
  if (o->launch.rank == 2) o->launch.rank = 1;
}
static void one_has_another_world(CommOptions *o) {
  if (o->launch.rank == 2) o->launch.world = 4;
}
static void all_have_one_gpu(CommOptions *o) { o->launch.local_rank = 0; }

TEST(rendezvous_refuses_runs_that_cannot_be) {
  static const struct {
    void (*before)(CommOptions *o);
    const char *says;
  } bad[] = {
      {last_is_rank_1, ": two processes both claim to be rank 1: one on "},
      {one_has_another_world, ": rank 2 on "},
      {all_have_one_gpu, " both have local rank 0: give each its own LOCAL_RANK\n"},
  };
  for (int i = 0; i < COUNT(bad); i++) {
    RankProcesses r;
    processes_init(&r, 3, nothing, NULL, -1);
    r.options.meeting_seconds = 20;
    r.before = bad[i].before;
    processes_fork(&r, -1);
    expect_said(&r, 1, bad[i].says);
    expect_status(&r, EXIT_USAGE);
  }
}

static void rank_1_is_of_another_job(CommOptions *o) {
  if (o->launch.rank == 1) o->launch.key[0] ^= 1;
}

TEST(rendezvous_turns_other_jobs_away) {
  RankProcesses r;
  processes_init(&r, 2, nothing, NULL, -1);
  r.options.meeting_seconds = 1;
  r.before = rank_1_is_of_another_job;
  processes_fork(&r, -1);
  expect_said(&r, 3, ", which claims to be rank 1 of 2: it does not prove that it belongs to this job; give all ranks");
  EXPECT(strstr(r.said, ": refused a connection from 127.0.0.1:") && strstr(r.said, ": rank 1: rank 0 at 127.0.0.1:"));
  EXPECT(strstr(r.said, " belongs to another job, or does not have the same MASKRCNN_JOB: use another port, or "));
  EXPECT(strstr(r.said, ": rank 1 of 2 has not joined at "));
  expect_status(&r, EXIT_USAGE);
}

TEST(rendezvous_refuses_other_builds) {
  RankProcesses r;
  processes_init(&r, 2, nothing, NULL, -1);
  processes_fork(&r, 0);
  uint8_t session[SHA256_BYTES];
  Hello hello = raw_hello(&r, 1, FOR_CONTROL);
  snprintf(hello.build, sizeof hello.build, "of last week");
  Wire w = raw_join(&r, &hello, r.options.launch.key, session);
  expect_said(&r, 1, " runs build of last week, but rank 0 on ");
  expect_status(&r, EXIT_USAGE);
  Frame *frame = xmalloc(sizeof *frame);
  EXPECT(raw_await(&w, frame) && frame->type == FRAME_REFUSED && frame->code == 1);
  free(frame);
  wire_close(&w);
}

// What others than ranks send neither ends the meeting nor holds it up; of each kind, the first is reported.
TEST(rendezvous_ignores_strangers) {
  RankProcesses r;
  processes_init(&r, 2, nothing, NULL, -1);
  processes_fork(&r, 0);
  static const char http[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
  static const char half[] = "MRCN\2\0", version[] = "MRCN\7\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
  static const char large[] = "MRCN\2\0\1\0\0\0\0\0\xff\xff\xff\xff\0\0\0\0\0\0\0\0";
  static const char empty[] = "MRCN\2\0\1\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0";
  const struct {
    const char *text;
    size_t bytes;
  } says[] = {{"", 0},
              {http, sizeof http - 1},
              {half, sizeof half - 1},
              {version, sizeof version - 1},
              {large, sizeof large - 1},
              {empty, sizeof empty - 1}};
  Wire w[COUNT(says)];
  for (int i = 0; i < COUNT(says); i++) {
    w[i] = raw_connect(&r);
    EXPECT(socket_send(w[i].fd, says[i].text, says[i].bytes));
  }
  for (int i = 0; i < 200; i++) { // a scan
    Wire scan = raw_connect(&r);
    wire_close(&scan);
  }
  processes_fork(&r, 1);
  expect_said(&r, 2, ", which is not a rank's\n");
  EXPECT(strstr(r.said, ": it speaks another version of the protocol; start the same build on all hosts\n"));
  expect_status(&r, 0);
  for (int i = 0; i < COUNT(says); i++) wire_close(&w[i]);
}

// One that is killed before all are there may come again.
TEST(rendezvous_takes_a_rank_that_comes_again) {
  RankProcesses r;
  processes_init(&r, 3, nothing, NULL, -1);
  processes_fork(&r, 0);
  uint8_t session[SHA256_BYTES];
  const Hello hello = raw_hello(&r, 1, FOR_CONTROL);
  Wire w = raw_join(&r, &hello, r.options.launch.key, session);
  EXPECT_INT(raw_next(&w), FRAME_SEATED);
  wire_close(&w);
  processes_fork(&r, 1);
  processes_fork(&r, 2);
  processes_end(&r);
  EXPECT_STR(r.said, "");
  expect_status(&r, 0);
}

// But not for ever: long before the time limit, rank 0 says who is gone, and others that rank 0 is.
TEST_TIER(rendezvous_ends_with_a_rank_that_stays_away, 1) {
  for (int gone = 0; gone < 2; gone++) {
    RankProcesses r;
    processes_init(&r, 3, nothing, NULL, -1);
    const double begin = now_seconds();
    processes_fork(&r, 0);
    close(r.listener);
    r.listener = -1;
    processes_fork(&r, 1);
    usleep(500000);
    kill(r.pid[gone], SIGKILL);
    expect_said(&r, 1, gone ? ": rank 1 on " : ": rank 1: rank 0 at 127.0.0.1:");
    EXPECT(strstr(r.said, " exited "));
    EXPECT_INT(r.status[1 - gone], EXIT_USAGE);
    EXPECT(now_seconds() - begin < 11);
  }
}

static void without_listener(CommOptions *o) { o->launch.listener = -1; }

TEST(rendezvous_at_an_address_that_cannot_be) {
  RankProcesses r;
  processes_init(&r, 2, nothing, NULL, -1);
  r.before = without_listener;
  processes_fork(&r, 0);
  char says[128];
  snprintf(says, sizeof says, ": port %d is in use; choose another one by --rendezvous tcp:HOST:PORT or MASTER_PORT",
           port_of_ranks(&r));
  expect_said(&r, 1, says);
  EXPECT_INT(r.status[0], EXIT_USAGE);
  static const char *const bad[][2] = {{"tcp:192.0.2.1:29500", ": that is not an address of "},
                                       {"tcp:no-such-host.invalid:29500", "rank 0 cannot listen at no-such-host"}};
  for (int i = 0; i < COUNT(bad); i++) {
    processes_init(&r, 2, nothing, NULL, -1);
    r.before = without_listener;
    snprintf(r.options.launch.meet, sizeof r.options.launch.meet, "%s", bad[i][0]);
    processes_fork(&r, 0);
    expect_said(&r, 1, bad[i][1]);
    EXPECT_INT(r.status[0], EXIT_USAGE);
  }
}

static const RankProcesses *waiting;
static void catch_and_tell(CommOptions *o) {
  (void)o;
  interrupt_catch();
  processes_tell(waiting);
}

TEST(rendezvous_can_be_interrupted) {
  for (int i = 0; i < 2; i++) {
    RankProcesses r;
    processes_init(&r, 3, nothing, NULL, -1);
    waiting = &r;
    r.before = catch_and_tell;
    processes_fork(&r, i);
    processes_await(&r, 1);
    kill(r.pid[i], SIGTERM);
    expect_said(&r, 1, ": interrupted before all ranks had joined\n");
    EXPECT_INT(r.status[i], EXIT_USAGE);
  }
}

// ---- through a file -----------------------------------------------------------------------------------------------

static void file_ranks(RankProcesses *r, const char *name) {
  processes_init(r, 3, nothing, NULL, -1);
  snprintf(r->options.launch.meet, sizeof r->options.launch.meet, "file:%s/%s", test_tmp(), name);
  waiting = r;
}
static const char *file_of(const RankProcesses *r) { return r->options.launch.meet + strlen("file:"); }

// Nothing, an empty file, and one of a rank 0 that is gone stand there.
TEST(rendezvous_by_file) {
  for (int there = 0; there < 3; there++) {
    RankProcesses r;
    Err err;
    file_ranks(&r, "meeting");
    r.before = there ? catch_and_tell : NULL;
    MeetingFile stale = meeting_file_here(port_of_ranks(&r));
    close(r.listener); // so that nobody answers there
    r.listener = -1;
    if (there == 1) fclose(fopen(file_of(&r), "w"));
    if (there == 2) EXPECT(meeting_file_write(&stale, file_of(&r), &err));
    processes_fork(&r, 1);
    processes_fork(&r, 2);
    if (there) processes_await(&r, 2);
    processes_fork(&r, 0);
    processes_end(&r);
    EXPECT_STR(r.said, "");
    expect_status(&r, 0);
    EXPECT(!path_is_file(file_of(&r)));
  }
}

TEST(rendezvous_by_file_that_cannot_be) {
  RankProcesses r;
  size_t size;
  file_ranks(&r, "notes");
  FILE *f = fopen(file_of(&r), "w");
  fputs("my own", f);
  fclose(f);
  processes_fork(&r, 0);
  expect_said(
      &r, 1,
      "/notes exists and is not a rendezvous file, so it is not overwritten: choose another --rendezvous file:PATH\n");
  char *text = file_read(file_of(&r), &size, NULL);
  EXPECT_STR(text, "my own");
  free(text);
  file_ranks(&r, "no-folder/file");
  processes_fork(&r, 0);
  expect_said(&r, 1, "/no-folder/file: No such file or directory\n");
  file_ranks(&r, "never");
  r.options.meeting_seconds = 0.3;
  processes_fork(&r, 1);
  expect_said(&r, 1, "/never within 0.3 s (cannot read ");
  file_ranks(&r, "in-vain"); // rank 0 takes its file with it
  r.options.meeting_seconds = 0.3;
  processes_fork(&r, 0);
  expect_said(&r, 1, ": ranks 1-2 of 3 have not joined at ");
  EXPECT(!path_is_file(file_of(&r)));
}

// Files of others are hostile until read.
TEST(rendezvous_file_that_is_none) {
  char *path = xasprintf("%s/none", test_tmp());
#define SECRET "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n"
  static const char *const bad[] = {"",
                                    "maskrcnn rendezvous 2",
                                    "maskrcnn rendezvous 2\n" SECRET,
                                    "maskrcnn rendezvous 2\n" SECRET "no address\n",
                                    "maskrcnn rendezvous 2\n0123\nh:1\n",
                                    "maskrcnn rendezvous 1\n" SECRET "h:1\n",
                                    "\1\2\3\n\n\n\n\n\n"};
  for (int i = 0; i < COUNT(bad); i++) {
    MeetingFile m;
    Err err;
    FILE *f = fopen(path, "w");
    fputs(bad[i], f);
    fclose(f);
    CHECK(!chmod(path, 0600));
    EXPECT(!meeting_file_read(&m, path, &err) && strstr(err.msg, " is not a rendezvous file"));
  }
  free(path);
}

static void expect_not_read(const char *path, const char *says) {
  MeetingFile m;
  Err err = {""};
  if (!EXPECT(!meeting_file_read(&m, path, &err) && strstr(err.msg, says))) printf("    %s: %s\n", path, err.msg);
}

// A file that others can read or change holds no secret, and nothing is read through a link or from a pipe.
TEST(rendezvous_file_is_its_users_alone) {
  MeetingFile m = meeting_file_here(29500), again;
  Err err;
  char *folder = xasprintf("%s/own-folder", test_tmp()), *path = xasprintf("%s/file", folder),
       *other = xasprintf("%s/other", folder);
  CHECK(!mkdir(folder, 0700) && meeting_file_write(&m, path, &err));
  EXPECT(meeting_file_read(&again, path, &err) && !memcmp(m.secret, again.secret, sizeof m.secret));
  EXPECT_INT(again.addresses, m.addresses);
  struct stat st;
  EXPECT(!stat(path, &st) && (st.st_mode & 0777) == 0600);
  CHECK(!chmod(path, 0640));
  expect_not_read(path, " may be read or written by others (owner ");
  CHECK(!chmod(path, 0600) && !link(path, other));
  expect_not_read(path, ", mode 0600, 2 links), so it is not trusted");
  CHECK(!unlink(other) && !symlink(path, other));
  expect_not_read(other, "cannot read ");
  CHECK(!unlink(other) && !mkfifo(other, 0600));
  expect_not_read(other, ": it is not a file");
  EXPECT(!meeting_file_write(&m, other, &err) && strstr(err.msg, "it exists and cannot be read as a file"));
  if (!geteuid()) {
    CHECK(!chown(path, 12345, 0));
    expect_not_read(path, " may be read or written by others (owner 12345, ");
    CHECK(!chown(path, 0, 0) && !chown(folder, 12345, 0));
    EXPECT(!meeting_folder_is_safe(path, &err) && strstr(err.msg, "its folder belongs to another user (12345)"));
    CHECK(!chown(folder, 0, 0));
  }
  EXPECT(meeting_folder_is_safe(path, &err) && meeting_folder_is_safe("/tmp/file", &err));
  CHECK(!chmod(folder, 0777));
  EXPECT(!meeting_file_write(&m, path, &err) && strstr(err.msg, ": other users may write to its folder: chmod go-w "));
  CHECK(!chmod(folder, 01777));
  EXPECT(meeting_file_write(&m, path, &err));
  free(folder);
  free(path);
  free(other);
}

// ---- two hosts ----------------------------------------------------------------------------------------------------

enum { NEW_NETWORK = 0x40000000, NOT_PERMITTED = 77 }; // CLONE_NEWNET

static int moved[2]; // a pipe: the cable has been laid

// Rank 1 is on a host of its own.
static void on_its_host(CommOptions *o) {
  char byte;
  without_listener(o);
  if (o->launch.rank == 1 && syscall(SYS_unshare, NEW_NETWORK)) _exit(NOT_PERMITTED);
  processes_tell(waiting);
  CHECK(read(moved[0], &byte, 1) == 1);
  if (o->launch.rank == 1 && system("ip link set lo up && ip addr add 10.77.0.2/24 dev v1 && ip link set v1 up"))
    _exit(NOT_PERMITTED);
}

static void work_for_ever(Comm *c, void *context) {
  comm_barrier(c);
  processes_tell(context);
  for (;;) comm_barrier(c);
}

// In a process of its own, whose network is host 0: the ranks meet, and then the cable is cut.
static void two_hosts(void *by_file) {
  RankProcesses r;
  char line[128];
  if (syscall(SYS_unshare, NEW_NETWORK)) _exit(NOT_PERMITTED);
  if (system("ip link set lo up && ip link add v0 type veth peer name v1 && ip addr add 10.77.0.1/24 dev v0 && "
             "ip link set v0 up"))
    _exit(NOT_PERMITTED);
  processes_init(&r, 2, work_for_ever, &r, 2);
  snprintf(r.options.launch.meet, sizeof r.options.launch.meet, "tcp:10.77.0.1:29500");
  if (by_file) snprintf(r.options.launch.meet, sizeof r.options.launch.meet, "file:%s/hosts", test_tmp());
  r.options.launch.local_world = 1;
  r.before = on_its_host;
  waiting = &r;
  CHECK(!pipe(moved));
  processes_fork(&r, -1);
  processes_await(&r, 2);
  snprintf(line, sizeof line, "ip link set v1 netns %d", (int)r.pid[1]);
  const bool laid = !system(line);
  CHECK(write(moved[1], "ab", 2) == 2);
  if (laid) {
    processes_await(&r, 2);
    if (system("ip link set v0 down")) _exit(NOT_PERMITTED);
  }
  processes_end(&r);
  fputs(r.said, stderr);
  if (!laid || r.status[1] == NOT_PERMITTED) _exit(NOT_PERMITTED);
  _exit(r.status[0] == EXIT_RUN && r.status[1] == EXIT_RUN ? 0 : 1);
}

TEST_TIER(rendezvous_of_two_hosts, 1) {
  for (int by_file = 0; by_file < 2; by_file++) {
    const char *said;
    int status = run_in_child(two_hosts, by_file ? "" : NULL, &said);
    if (status == NOT_PERMITTED) {
      test_skip("network namespaces are not permitted here");
      return;
    }
    // No word gets from one host to the other: each says what it sees.
    EXPECT_INT(status, 0);
    if (!EXPECT(strstr(said, ": rank 1 on ") && strstr(said, ": rank 0 on "))) printf("    %s", said);
  }
}
