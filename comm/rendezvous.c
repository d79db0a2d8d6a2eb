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
  MeetingFile file = meeting_file_here(l->token, peer_here().namespaces, any.port);
  bool ok = meeting_file_write(&file, path, err);
  if (ok) {
    ok = reception(m, l, listener, path, file.nonce, seconds, others_say, err);
    meeting_file_remove(&file, path);
  }
  close(listener);
  return ok;
}

static bool meet_at_address(Meeting *m, const Launch *l, double seconds, bool *others_say, Err *err) {
  Address a;
  if (!address_parse(&a, l->meet + strlen("tcp:"), err)) return false;
  int listener = l->listener;
  if (listener < 0) listener = socket_listen(&a, l->local_world < l->world, err);
  if (listener < 0) return false;
  listener = wire_open(listener).fd; // the supervisor's socket may be blocking
  bool ok = reception(m, l, listener, l->meet + strlen("tcp:"), "", seconds, others_say, err);
  close(listener);
  return ok;
}

// ---- the others ---------------------------------------------------------------------------------------------------

typedef enum Answer { ANSWER_WELCOME, ANSWER_NONE, ANSWER_NO } Answer; // NONE: try again

typedef struct Caller {
  const Launch *l;
  Meeting *m;
  double deadline;
  bool *others_say;
  bool seated;    // rank 0 has accepted this rank's hello
  double left;    // when rank 0 disappeared; 0: it did not
  Err *err;       // message of ANSWER_NO
  char why[4096]; // reason of the last ANSWER_NONE
} Caller;

static Answer no_answer(Caller *c, const char *why) {
  snprintf(c->why, sizeof c->why, "%s", why);
  return ANSWER_NONE;
}

static Answer refused(Caller *c, const Frame *f) {
  *c->others_say = f->code != 0;
  err_set(c->err, "%s", f->text);
  return ANSWER_NO;
}

// Reads rank 0's frames up to the welcome.
static Answer listen_to(Caller *c, Wire *control, Frame *frame, double until) {
  int known = 0;
  while (now_seconds() < until) {
    if (meeting_is_off(c->l, c->others_say, c->err)) return ANSWER_NO;
    poll(&(struct pollfd){.fd = control->fd, .events = POLLIN}, 1, 200);
    wire_receive(control);
    WireResult found;
    while ((found = wire_next(control, frame)) == WIRE_FRAME) {
      if (frame->type == FRAME_REFUSED) return refused(c, frame);
      if (frame->type == FRAME_SEATED) {
        c->seated = true;
        c->left = 0;
        continue;
      }
      if (frame->type == FRAME_WELCOME && known == c->l->world) return ANSWER_WELCOME;
      if (frame->number != known || known == c->l->world || !peer_parse(&c->m->peer[known++], frame))
        return no_answer(c, "another program answers there");
    }
    if (found == WIRE_STRANGER) return no_answer(c, "another program answers there");
    if (found == WIRE_OTHER_VERSION) {
      err_set(c->err, "rank 0 runs another version of this program than rank %d: start the same version on all hosts",
              c->l->rank);
      return ANSWER_NO;
    }
    if (control->ended) {
      if (c->seated && !c->left) c->left = now_seconds();
      return no_answer(c, "the connection was closed");
    }
  }
  return no_answer(c, "it accepts connections, but does not reply");
}

static bool connected(Wire *w, const Address *a, const Hello *h, HelloFor connection, double deadline, Err *err) {
  *w = wire_open(socket_connect(a, deadline, err));
  if (w->fd >= 0) hello_send(w, h, connection);
  return w->fd >= 0;
}

static Answer call(Caller *c, const Address *a, const char *nonce, double seconds) {
  const Hello hello = hello_of(c->l, nonce);
  const double deadline = MIN(c->deadline, now_seconds() + seconds);
  Wire control = {.fd = -1}, data = {.fd = -1};
  Err err;
  Answer answer = ANSWER_NONE;
  if (connected(&control, a, &hello, FOR_CONTROL, deadline, &err)) {
    // Waits longer than rank 0, which reports at its own limit who is missing. If rank 0 refuses the second connection,
    // it may have sent the reason on the first.
    const bool both = connected(&data, a, &hello, FOR_DATA, deadline, &err);
    Frame *frame = xmalloc(sizeof *frame);
    answer = listen_to(c, &control, frame, both ? c->deadline + 10 : now_seconds() + 1);
    free(frame);
    if (answer == ANSWER_WELCOME && !both) answer = ANSWER_NONE;
  } else {
    no_answer(c, err.msg);
  }
  if (answer == ANSWER_WELCOME) {
    c->m->control[0] = control;
    c->m->data[0] = wire_release(&data);
    return answer;
  }
  wire_close(&control);
  wire_close(&data);
  return answer;
}

static Answer call_by_file(Caller *c, const char *path) {
  MeetingFile file;
  Err err;
  if (!meeting_file_read(&file, path, &err)) return no_answer(c, err.msg);
  if (strcmp(file.token, c->l->token) != 0) return no_answer(c, "the file belongs to another job");
  const bool here = !strcmp(file.namespaces, peer_here().namespaces);
  Answer answer = ANSWER_NONE;
  for (int i = here ? 0 : 1; i < file.addresses && answer == ANSWER_NONE; i++)
    answer = call(c, &file.at[i], file.nonce, 2);
  return answer;
}

static bool go_to_rank_0(Meeting *m, const Launch *l, double seconds, bool *others_say, Err *err) {
  const char *path = path_of(l), *where = strchr(l->meet, ':') + 1;
  Address a;
  if (!path && !address_parse(&a, where, err)) return false;
  Caller c = {.l = l, .m = m, .deadline = now_seconds() + seconds, .others_say = others_say, .err = err};
  for (int pause = 20; now_seconds() < c.deadline; pause = MIN(2 * pause, 500)) {
    if (meeting_is_off(l, others_say, err)) return false;
    Answer answer = path ? call_by_file(&c, path) : call(&c, &a, "", 5);
    if (answer != ANSWER_NONE) return answer == ANSWER_WELCOME;
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
