#include "comm/rendezvous.h"
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "comm/meeting_file.h"
#include "comm/reception.h"

static const char *path_of(const Launch *l) { return strncmp(l->meet, "file:", 5) ? NULL : l->meet + 5; }

// ---- rank 0 -------------------------------------------------------------------------------------------------------

static bool meet_by_file(Meeting *m, const Launch *l, double seconds, bool *others_say, Err *err) {
  const char *path = path_of(l);
  Address any = {"", 0};
  int listener = socket_listen(&any, true, err);
  if (listener < 0) return false;
  MeetingFile file = meeting_file_here(any.port);
  Launch with = *l;
  meeting_file_key(&file, &with);
  bool ok = meeting_file_write(&file, path, err);
  if (ok) {
    ok = reception(m, &with, listener, path, seconds, others_say, err);
    meeting_file_remove(&file, path);
  }
  close(listener);
  return ok;
}

static void warn_of_strangers(const char *where) {
  char line[1024];
  snprintf(
      line, sizeof line,
      "anybody who can connect to %s may join this run: set MASKRCNN_JOB to the same secret text for all ranks, or "
      "use --rendezvous file:PATH",
      where);
  die_print(text_clean(line));
}

static bool meet_at_address(Meeting *m, const Launch *l, double seconds, bool *others_say, Err *err) {
  Address a;
  const char *where = l->meet + strlen("tcp:");
  if (!address_parse(&a, where, err)) return false;
  int listener = l->listener;
  if (listener < 0) listener = socket_listen(&a, l->local_world < l->world, err);
  if (listener < 0) return false;
  if (!l->secret) warn_of_strangers(where);
  listener = wire_open(listener).fd; // the supervisor's socket may be blocking
  bool ok = reception(m, l, listener, where, seconds, others_say, err);
  close(listener);
  return ok;
}

// ---- the others ---------------------------------------------------------------------------------------------------

typedef enum Answer { ANSWER_YES, ANSWER_NONE, ANSWER_NO } Answer; // NONE: try again

typedef struct Caller {
  const Launch *l;
  Meeting *m;
  double deadline;
  bool *others_say;
  bool seated;    // rank 0 has accepted this rank
  double left;    // when rank 0 disappeared; 0: it did not
  Err *err;       // message of ANSWER_NO
  char why[4096]; // reason of the last ANSWER_NONE
} Caller;

// One of the two connections to rank 0, while it is made.
typedef struct Call {
  Wire wire;
  uint8_t session[SHA256_BYTES];
} Call;

static Answer no_answer(Caller *c, const char *why) {
  snprintf(c->why, sizeof c->why, "%s", why);
  return ANSWER_NONE;
}

static Answer refused(Caller *c, const Frame *f) {
  *c->others_say = f->code != 0;
  err_set(c->err, "%s", f->text);
  return ANSWER_NO;
}

static Answer other_version(Caller *c) {
  err_set(c->err, "rank 0 runs another version of this program than rank %d: start the same version on all hosts",
          c->l->rank);
  return ANSWER_NO;
}

// Rank 0's first frame with a tag is none. At one of a file's addresses, another program may be meant.
static Answer other_job(Caller *c) {
  if (path_of(c->l)) return no_answer(c, "a rank 0 of another job answers");
  err_set(c->err,
          "rank %d: rank 0 at %s belongs to another job, or does not have the same MASKRCNN_JOB: use another port, or "
          "give all ranks the same",
          c->l->rank, c->l->meet + strlen("tcp:"));
  return ANSWER_NO;
}

static Answer lost(Caller *c) {
  if (c->seated && !c->left) c->left = now_seconds();
  return no_answer(c, "the connection was closed");
}

// Waits for rank 0's next frame on `wire`, until a time, and that `also` (NULL: none) is not closed.
static Answer await(Caller *c, Wire *wire, Wire *also, Frame *frame, double until) {
  for (;;) {
    wire_receive(wire);
    const WireResult found = wire_next(wire, frame);
    if (found == WIRE_FRAME && wire->sealed && frame->type == FRAME_REFUSED) return refused(c, frame);
    if (found == WIRE_FRAME) return ANSWER_YES;
    if (found == WIRE_OTHER_VERSION) return other_version(c);
    if (found == WIRE_STRANGER && wire->sealed && !wire->received) return other_job(c);
    if (found == WIRE_STRANGER) return no_answer(c, "another program answers there");
    if (wire->ended && wire->in_bytes && wire->sealed && !wire->received) return other_job(c); // refused without a tag
    if (also) wire_receive(also);
    if (wire->ended || (also && (also->ended || also->in_bytes))) return lost(c);
    if (meeting_is_off(c->l, c->others_say, c->err)) return ANSWER_NO;
    const double left = until - now_seconds();
    if (left < 0) return no_answer(c, "it accepts connections, but does not reply");
    struct pollfd p[2] = {{.fd = wire->fd, .events = POLLIN}, {.fd = also ? also->fd : -1, .events = POLLIN}};
    poll(p, 2, (int)MIN(1e3 * left + 1, 200));
  }
}

// Opens a connection, and proves on both ends that they know the key.
static Answer join(Caller *c, Call *call, const Address *a, HelloFor connection, const uint8_t key[SHA256_BYTES],
                   double connect_by, double reply_by) {
  Err err;
  call->wire = wire_open(socket_connect(a, connect_by, &err));
  if (call->wire.fd < 0) return no_answer(c, err.msg);
  const Hello h = hello_of(c->l, connection);
  Frame *hello = xmalloc(sizeof *hello), *frame = xmalloc(sizeof *frame);
  hello_frame(&h, hello);
  frame_send(&call->wire, hello);
  Answer answer = await(c, &call->wire, NULL, frame, reply_by);
  if (answer == ANSWER_YES && (frame->type != FRAME_CHALLENGE || !nonce_is(frame->text)))
    answer = no_answer(c, "another program answers there");
  if (answer == ANSWER_YES) {
    session_key(call->session, key, hello, frame);
    wire_seal(&call->wire, call->session, false);
    wire_send(&call->wire, FRAME_PROOF, 0, 0, "");
    answer = await(c, &call->wire, NULL, frame, reply_by);
    if (answer == ANSWER_YES && frame->type != FRAME_SEATED) answer = no_answer(c, "another program answers there");
  }
  free(hello);
  free(frame);
  return answer;
}

// Reads rank 0's frames up to the welcome. Waits longer than rank 0, which reports at its own limit who is missing.
static Answer await_welcome(Caller *c, Wire *control, Wire *data) {
  Frame *frame = xmalloc(sizeof *frame);
  Answer answer = ANSWER_YES;
  for (int known = 0; answer == ANSWER_YES; known++) {
    answer = await(c, control, data, frame, c->deadline + 10);
    if (answer != ANSWER_YES || (known == c->l->world && frame->type == FRAME_WELCOME)) break;
    if (known == c->l->world || frame->number != known || !peer_parse(&c->m->peer[known], frame))
      answer = no_answer(c, "another program answers there");
  }
  free(frame);
  return answer;
}

static Answer call(Caller *c, const Address *a, const uint8_t key[SHA256_BYTES], double connect_by, double reply_by) {
  Call control = {.wire = {.fd = -1}}, data = {.wire = {.fd = -1}};
  Answer answer = join(c, &control, a, FOR_CONTROL, key, connect_by, reply_by);
  if (answer == ANSWER_YES) {
    c->seated = true;
    c->left = 0;
    answer = join(c, &data, a, FOR_DATA, control.session, connect_by, c->deadline + 10);
    // If rank 0 closes the second connection, it may have sent the reason on the first.
    Frame *frame = answer == ANSWER_NONE ? xmalloc(sizeof *frame) : NULL;
    if (frame && await(c, &control.wire, NULL, frame, now_seconds() + 1) == ANSWER_NO) answer = ANSWER_NO;
    free(frame);
  }
  if (answer == ANSWER_YES) answer = await_welcome(c, &control.wire, &data.wire);
  if (answer == ANSWER_YES) {
    c->m->control[0] = control.wire;
    c->m->data[0] = wire_release(&data.wire);
    return answer;
  }
  wire_close(&control.wire);
  wire_close(&data.wire);
  return answer;
}

// Tries all addresses, since ranks do not know which of them is rank 0's host for them. 127.0.0.1 is the first: on
// another host, nobody there knows the file's secret.
static Answer call_by_file(Caller *c, const char *path) {
  enum { CONNECT_SECONDS = 2, REPLY_SECONDS = 5 };
  MeetingFile file;
  Launch with = *c->l;
  Answer answer = meeting_folder_is_safe(path, c->err) ? ANSWER_NONE : ANSWER_NO;
  Err why;
  if (answer == ANSWER_NONE && !meeting_file_read(&file, path, &why)) return no_answer(c, why.msg);
  if (answer == ANSWER_NONE) meeting_file_key(&file, &with);
  for (int i = 0; answer == ANSWER_NONE && i < file.addresses; i++) {
    const double now = now_seconds();
    answer = call(c, &file.at[i], with.key, MIN(c->deadline, now + CONNECT_SECONDS), now + REPLY_SECONDS);
  }
  return answer;
}

static bool go_to_rank_0(Meeting *m, const Launch *l, double seconds, bool *others_say, Err *err) {
  const char *path = path_of(l), *where = strchr(l->meet, ':') + 1;
  Address a;
  if (!path && !address_parse(&a, where, err)) return false;
  Caller c = {.l = l, .m = m, .deadline = now_seconds() + seconds, .others_say = others_say, .err = err};
  for (int pause = 20; now_seconds() < c.deadline; pause = MIN(2 * pause, 500)) {
    if (meeting_is_off(l, others_say, err)) return false;
    Answer answer =
        path ? call_by_file(&c, path) : call(&c, &a, l->key, MIN(c.deadline, now_seconds() + 5), c.deadline + 10);
    if (answer != ANSWER_NONE) return answer == ANSWER_YES;
    if (c.left > 0 && now_seconds() - c.left > MAY_BE_AWAY)
      return err_set(err, "rank %d: rank 0 at %s exited before all ranks had joined (%s)", l->rank, where, c.why);
    poll(NULL, 0, pause);
  }
  return err_set(err, "rank %d: rank 0 does not answer at %s within %g s (%s)", l->rank, where, seconds, c.why);
}

// -------------------------------------------------------------------------------------------------------------------

bool rendezvous(Meeting *m, const Launch *l, double seconds, bool *others_say, Err *err) {
  meeting_open(m, l->world);
  *others_say = false;
  if (l->rank) return go_to_rank_0(m, l, seconds, others_say, err);
  if (path_of(l)) return meet_by_file(m, l, seconds, others_say, err);
  return meet_at_address(m, l, seconds, others_say, err);
}
