// Catches runs that strangers can join, stop, delay or read from, and ranks that a liar makes do more than end.
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/utf8.h"
#include "comm/watch_news.h"
#include "test/harness/command.h"
#include "test/harness/raw_rank.h"
#include "test/harness/test.h"

static void nothing(Comm *c, void *context) {
  (void)c;
  (void)context;
}

static void expect_met(const RankProcesses *r) {
  for (int i = 0; i < r->world; i++)
    if (r->pid[i] > 0 && !EXPECT_INT(r->status[i], 0)) printf("    said: %s\n", r->said);
}

// ---- floods ---------------------------------------------------------------------------------------------------------

// Connections that stay and say nothing, as many that say something wrong, and slow ones. Then the ranks come.
static void flood(int mute, int babbling, void (*before)(CommOptions *o)) {
  RankProcesses r;
  Wire *w = xcalloc((size_t)mute, sizeof *w);
  Frame *hello = xmalloc(sizeof *hello);
  processes_init(&r, 3, nothing, NULL, -1);
  r.before = before;
  processes_fork(&r, 0);
  for (int i = 0; i < mute; i++) {
    w[i] = raw_connect(&r);
    if (i % 4 == 0) socket_send(w[i].fd, "MRCN\2", 5);
    if (i % 4 == 1) { // which is public
      const Hello h = raw_hello(&r, 1, FOR_CONTROL);
      hello_frame(&h, hello);
      frame_send(&w[i], hello);
    }
    if (i >= babbling) continue;
    Wire other = raw_connect(&r);
    socket_send(other.fd, "GET /", 5);
    wire_close(&other);
    if (i == mute / 2) processes_fork(&r, 1);
  }
  if (babbling <= mute / 2) processes_fork(&r, 1);
  processes_fork(&r, 2);
  processes_end(&r);
  expect_met(&r);
  EXPECT_INT(processes_lines(&r), 1);
  EXPECT(strstr(r.said, ": refused a connection from 127.0.0.1:") && strstr(r.said, ", which is not a rank's\n"));
  for (int i = 0; i < mute; i++) wire_close(&w[i]);
  free(hello);
  free(w);
}

TEST(reception_of_many_strangers) { flood(700, 300, NULL); }
TEST_TIER(reception_of_thousands_of_strangers, 2) {
  flood(4000, 4000, NULL);
  flood(500, 4000, NULL);
}

static void have_few_files(CommOptions *o) {
  if (!o->launch.rank) CHECK(!setrlimit(RLIMIT_NOFILE, &(struct rlimit){40, 40}));
}
// Rank 0 may open fewer files than there are strangers.
TEST(reception_of_more_strangers_than_files) { flood(120, 10, have_few_files); }

// A rank whose proof is there keeps its seat through any number of connections without one.
TEST(reception_keeps_those_who_are_proven) {
  RankProcesses r;
  uint8_t session[SHA256_BYTES], unused[SHA256_BYTES];
  processes_init(&r, 3, nothing, NULL, -1);
  processes_fork(&r, 0);
  const Hello for_control = raw_hello(&r, 1, FOR_CONTROL), for_data = raw_hello(&r, 1, FOR_DATA);
  Wire control = raw_join(&r, &for_control, r.options.launch.key, session), many[600];
  EXPECT_INT(raw_next(&control), FRAME_SEATED);
  for (int i = 0; i < COUNT(many); i++) many[i] = raw_connect(&r);
  Wire data = raw_join(&r, &for_data, session, unused);
  EXPECT_INT(raw_next(&data), FRAME_SEATED);
  for (int i = 0; i < COUNT(many); i++) wire_close(&many[i]);
  processes_fork(&r, 2);
  for (int i = 0; i < 3; i++) EXPECT_INT(raw_next(&control), FRAME_PEER);
  EXPECT_INT(raw_next(&control), FRAME_WELCOME);
  for (int i = 0; i < 3; i += 2) kill(r.pid[i], SIGKILL);
  wire_close(&control);
  wire_close(&data);
  processes_end(&r);
}

// ---- proofs ---------------------------------------------------------------------------------------------------------

// What a rank has sent is of no use on another connection: rank 0 has another nonce there.
TEST(reception_refuses_a_repeated_session) {
  RankProcesses r;
  Wire ends[2];
  uint8_t session[SHA256_BYTES], proof[100];
  int pair[2];
  Frame *frame = xmalloc(sizeof *frame);
  processes_init(&r, 2, nothing, NULL, -1);
  processes_fork(&r, 0);
  const Hello h = raw_hello(&r, 1, FOR_CONTROL);
  Wire first = raw_join(&r, &h, r.options.launch.key, session);
  EXPECT_INT(raw_next(&first), FRAME_SEATED);
  wire_close(&first);
  CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair)); // the same proof once more
  for (int i = 0; i < 2; i++) ends[i] = wire_open(pair[i]);
  wire_seal(&ends[0], session, false);
  wire_send(&ends[0], FRAME_PROOF, 0, 0, "");
  const ssize_t bytes = recv(ends[1].fd, proof, sizeof proof, 0);
  EXPECT_INT(bytes, WIRE_HEAD + WIRE_TAG);
  Wire again = raw_connect(&r);
  hello_frame(&h, frame);
  frame_send(&again, frame);
  EXPECT_INT(raw_next(&again), FRAME_CHALLENGE);
  EXPECT(socket_send(again.fd, proof, (size_t)bytes));
  EXPECT(raw_await(&again, frame) && frame->type == FRAME_REFUSED && !*frame->text);
  processes_fork(&r, 1);
  processes_end(&r);
  expect_met(&r);
  EXPECT(strstr(r.said, ", which claims to be rank 1 of 2: it does not prove that it belongs to this job; give all"));
  EXPECT_INT(processes_lines(&r), 1);
  wire_close(&again);
  for (int i = 0; i < 2; i++) wire_close(&ends[i]);
  free(frame);
}

// The data connection belongs to whoever has the control connection, and is not replaced.
TEST(reception_gives_no_data_connection_away) {
  RankProcesses r;
  uint8_t session[SHA256_BYTES], unused[SHA256_BYTES];
  processes_init(&r, 3, nothing, NULL, -1);
  processes_fork(&r, 0);
  const Hello for_control = raw_hello(&r, 1, FOR_CONTROL), for_data = raw_hello(&r, 1, FOR_DATA);
  const Hello unseated = raw_hello(&r, 2, FOR_DATA);
  Wire control = raw_join(&r, &for_control, r.options.launch.key, session);
  EXPECT_INT(raw_next(&control), FRAME_SEATED);
  Wire data = raw_join(&r, &for_data, session, unused);
  EXPECT_INT(raw_next(&data), FRAME_SEATED);
  Frame *frame = xmalloc(sizeof *frame);
  Wire thief = raw_join(&r, &for_data, r.options.launch.key, unused); // knows the run's key only
  EXPECT_INT(raw_next(&thief), 0);
  Wire second = raw_join(&r, &for_data, session, unused); // a second one of the rank itself
  EXPECT_INT(raw_next(&second), 0);
  Wire early = raw_connect(&r); // of a rank that has no seat
  hello_frame(&unseated, frame);
  frame_send(&early, frame);
  EXPECT_INT(raw_next(&early), 0);
  processes_fork(&r, 2);
  for (int i = 0; i < 3; i++) EXPECT_INT(raw_next(&control), FRAME_PEER);
  EXPECT_INT(raw_next(&control), FRAME_WELCOME);
  for (int i = 0; i < 3; i += 2) kill(r.pid[i], SIGKILL);
  Wire *all[] = {&control, &data, &thief, &second, &early};
  for (int i = 0; i < COUNT(all); i++) wire_close(all[i]);
  free(frame);
  processes_end(&r);
}

// ---- without a secret -----------------------------------------------------------------------------------------------

// What anybody may have said ends no run: it is refused and reported once, and the ranks meet.
TEST(reception_without_a_secret_is_not_ended_by_one_hello) {
  RankProcesses r;
  uint8_t session[SHA256_BYTES];
  Frame *frame = xmalloc(sizeof *frame);
  processes_init(&r, 2, nothing, NULL, -1);
  r.options.launch.secret = false;
  processes_fork(&r, 0);
  for (int i = 0; i < 5; i++) {
    Hello h = raw_hello(&r, i == 2 ? 0 : 1, FOR_CONTROL);
    if (i == 0) snprintf(h.build, sizeof h.build, "of last week");
    if (i == 1) h.world = 3;
    if (i == 3) h.local_rank = 0;
    if (i == 4) h.rank = 700;
    Wire w = raw_join(&r, &h, r.options.launch.key, session);
    EXPECT(raw_await(&w, frame) && frame->type == FRAME_REFUSED && !frame->code && *frame->text);
    wire_close(&w);
  }
  processes_fork(&r, 1);
  processes_end(&r);
  expect_met(&r);
  EXPECT_INT(processes_lines(&r), 2);
  EXPECT(strstr(r.said, ": anybody who can connect to 127.0.0.1:") &&
         strstr(r.said, ": set MASKRCNN_JOB to the same "));
  EXPECT(strstr(r.said, ": refused a connection from 127.0.0.1:") && strstr(r.said, " runs build of last week, but "));
  free(frame);
}

// A rank that leaves before all have come is named at once.
TEST(reception_without_a_secret_says_who_left) {
  RankProcesses r;
  uint8_t session[SHA256_BYTES];
  processes_init(&r, 3, nothing, NULL, -1);
  r.options.launch.secret = false;
  processes_fork(&r, 0);
  for (int rank = 1; rank <= 2; rank++) { // the second is answered once the first was seen to be gone
    const Hello h = raw_hello(&r, rank, FOR_CONTROL);
    Wire w = raw_join(&r, &h, r.options.launch.key, session);
    EXPECT_INT(raw_next(&w), FRAME_SEATED);
    wire_close(&w);
  }
  processes_fork(&r, 1);
  processes_fork(&r, 2);
  processes_end(&r);
  expect_met(&r);
  EXPECT(strstr(r.said, ": rank 1 on ") && strstr(r.said, " joined, but disconnected before all ranks had joined"));
}

// ---- lies -----------------------------------------------------------------------------------------------------------

static bool same(const char *of_rank_0, const char *other, Err *err) {
  return !strcmp(of_rank_0, other) || err_set(err, "it has %.100s, rank 0 %s", other, of_rank_0);
}

// Rank 0 of two: compares a text and goes on, until the other ends it.
static void agree_for_ever(Comm *c, void *context) {
  (void)context;
  Err err;
  if (!comm_agree(c, "text", same, &err)) die(EXIT_USAGE, "%s", err.msg);
  for (;;) comm_barrier(c);
}

// What rank 1 says after the welcome, on its two connections.
typedef struct Lie {
  int type, code;
  int64_t number;
  const char *text;
  uint64_t bytes; // on the data connection, ahead of `data`; 0: nothing is sent there
  const char *data;
  bool broken; // the frame's tag is another
  const char *says;
  int status;
} Lie;

#define NONSENSE ": it sent a message that is not of this run's protocol\n"
static const Lie lies[] = {
    {.type = FRAME_FAILED, .code = 0, .number = 3, .text = "full", .says = ", step 3: full\n", .status = EXIT_RUN},
    {.type = FRAME_FAILED, .code = -1, .number = -7, .text = "full", .says = ": full\n", .status = EXIT_RUN},
    {.type = FRAME_FAILED,
     .code = 77,
     .number = INT64_MAX,
     .says = ", step 9223372036854775807: it failed, and does "
             "not say why\n",
     .status = EXIT_RUN},
    {.type = FRAME_FAILED,
     .code = INT32_MIN,
     .number = INT64_MIN,
     .text = "rank 0 on here: a\nb\033[2J\xff\xc2\x9b",
     .says = ": rank 0 on here: a?b?[2J???\n",
     .status = EXIT_RUN},
    {.type = FRAME_FAILED, .code = EXIT_USAGE, .number = -1, .text = "no", .says = ": no\n", .status = EXIT_USAGE},
    {.type = FRAME_END, .code = 0, .says = NONSENSE, .status = EXIT_RUN},
    {.type = 0, .says = NONSENSE, .status = EXIT_RUN},
    {.type = FRAME_HELLO, .text = "again", .says = NONSENSE, .status = EXIT_RUN},
    {.type = FRAME_WELCOME, .says = NONSENSE, .status = EXIT_RUN},
    {.type = FRAME_PEER, .number = 0, .text = "host", .says = NONSENSE, .status = EXIT_RUN},
    {.type = FRAME_BYE + 1, .says = NONSENSE, .status = EXIT_RUN},
    {.type = 65535, .code = -1, .number = -1, .says = NONSENSE, .status = EXIT_RUN},
    {.type = FRAME_BEAT, .broken = true, .says = NONSENSE, .status = EXIT_RUN},
    {.type = FRAME_BYE, .says = ": no heartbeat for 1 s: ", .status = EXIT_RUN},
    {.type = FRAME_BEAT, .number = INT64_MAX, .says = ", step 9223372036854775807: no heartbeat", .status = EXIT_RUN},
    {.type = FRAME_BEAT, .number = INT64_MIN, .says = ": no heartbeat for 1 s: ", .status = EXIT_RUN},
    {.type = FRAME_BEAT,
     .bytes = UINT64_MAX,
     .data = "",
     .says = " announced 18446744073709551615 bytes, but at most ",
     .status = EXIT_RUN},
    {.type = FRAME_BEAT,
     .bytes = (1 << 20) + 1,
     .data = "",
     .says = " announced 1048577 bytes, but at most 1048576 ",
     .status = EXIT_RUN},
    {.type = FRAME_BEAT, .bytes = 3, .data = "abc", .says = ": it has abc, rank 0 text\n", .status = EXIT_USAGE},
    {.type = FRAME_BEAT,
     .bytes = 4,
     .data = "\xff\033[2",
     .says = ": it has ??[2, rank 0 text\n",
     .status = EXIT_USAGE},
};

static void tell(const Lie *lie, Wire *control, Wire *data) {
  if (lie->broken) control->send_key[0] ^= 1;
  wire_send(control, lie->type, lie->code, lie->number, lie->text);
  if (!lie->bytes) return;
  EXPECT(socket_send(data->fd, &lie->bytes, sizeof lie->bytes));
  EXPECT(socket_send(data->fd, lie->data, strlen(lie->data)));
}

// Rank 0 ends with its own status, by one line that names the rank, and no byte of it raw.
TEST_TIER(reception_of_ranks_that_lie, 1) {
  for (int i = 0; i < COUNT(lies); i++) {
    const Lie *lie = &lies[i];
    RankProcesses r;
    Wire control, data;
    processes_init(&r, 2, agree_for_ever, NULL, strstr(lie->says, "no heartbeat") ? 1 : -1);
    processes_fork(&r, 0);
    raw_meet(&r, 1, &control, &data);
    tell(lie, &control, &data);
    while (raw_next(&control)) continue;
    wire_close(&control);
    wire_close(&data);
    processes_end(&r);
    EXPECT_INT(r.status[0], lie->status);
    const bool of_rank_1 = strstr(r.said, ": rank 1 on ") || strstr(r.said, ": rank 0 on ");
    if (!EXPECT(processes_lines(&r) == 1 && of_rank_1 && strstr(r.said, "rank 1 on ") && strstr(r.said, lie->says)) ||
        !EXPECT(utf8_is(r.said) && !strchr(r.said, '\033')))
      printf("    lie %d: said %s", i, r.said);
  }
}

// Fields of the hello: whoever knows the key is told why it does not fit; of others nothing is printed as it is.
TEST(reception_of_hellos_that_lie) {
  static const char *const fields[] = {"\033[2J\xff", "99999", "-1", "", " 2", "2147483648", "0x2", "\xc2\x9b"};
  RankProcesses r;
  Frame *frame = xmalloc(sizeof *frame);
  processes_init(&r, 2, nothing, NULL, -1);
  processes_fork(&r, 0);
  for (int field = 0; field < 6; field++)
    for (int i = 0; i < COUNT(fields); i++) {
      Hello h = raw_hello(&r, 1, FOR_CONTROL);
      Wire w = raw_connect(&r);
      hello_frame(&h, frame);
      const char *part[] = {h.nonce, "2", "1", h.peer.host, h.build, NULL};
      part[field] = fields[i]; // the last: a line more
      snprintf(frame->text, OPEN_TEXT, "%s\n%s\n%s\n%s\n%s%s%s", part[0], part[1], part[2], part[3], part[4],
               part[5] ? "\n" : "", part[5] ? part[5] : "");
      if (i == 3) frame->number = field % 2 ? INT64_MIN : 1 << 20;
      if (i == 4) frame->code = field % 2 ? -1 : 2;
      frame_send(&w, frame);
      const int type = raw_next(&w);
      EXPECT(type == 0 || type == FRAME_CHALLENGE);
      if (type) wire_send(&w, FRAME_PROOF, 0, 0, ""); // without a tag
      wire_shut(&w);
      raw_next(&w);
      wire_close(&w);
    }
  processes_fork(&r, 1);
  processes_end(&r);
  expect_met(&r);
  EXPECT_INT(processes_lines(&r), 1); // the first, and no proof was even wrong
  EXPECT(utf8_is(r.said) && !strchr(r.said, '\033'));
  free(frame);
}

// ---- another implementation -----------------------------------------------------------------------------------------

static void until_ended(Comm *c, void *context) {
  (void)context;
  for (;;) comm_barrier(c);
}

// A client that was written after comm/session.h alone, in another language, is a rank.
TEST(reception_of_another_implementation) {
  RankProcesses r;
  const char *said;
  Sha256 s;
  if (command(NULL, "python3 -c ''")) {
    test_skip("python3 is not installed");
    return;
  }
  processes_init(&r, 2, until_ended, NULL, -1);
  sha256_begin(&s);
  sha256_add(&s, "our job", 7);
  sha256_end(&s, r.options.launch.key);
  processes_fork(&r, 0);
  const Hello h = raw_hello(&r, 1, FOR_CONTROL);
  const int port = atoi(strrchr(r.options.launch.meet, ':') + 1);
  EXPECT_INT(command(&said, "MASKRCNN_JOB='our jot' python3 test/peers/rank.py %d '%s'", port, h.build), 1);
  EXPECT_STR(said, "refused\n");
  EXPECT_INT(command(&said, "MASKRCNN_JOB='our job' python3 test/peers/rank.py %d '%s'", port, h.build), 0);
  char expected[256];
  snprintf(expected, sizeof expected, "0 %s\n1 python\nwelcome\nend 2\n", h.peer.host);
  EXPECT_STR(said, expected);
  processes_end(&r);
  EXPECT_INT(r.status[0], EXIT_USAGE);
  EXPECT(strstr(r.said, ": rank 1 on python, step 12: Python says so\n"));
  EXPECT_INT(processes_lines(&r), 2); // and of the one without the key
}
