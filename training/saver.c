// Saves checkpoints while training steps continue.
#include "training/saver.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/durable.h"

void saver_take(Saver *s, Engine *e, const RunState *state) {
  CHECK(!s->under_way);
  *s = (Saver){.under_way = true, .engine = e, .state = *state};
  state_take(e, &s->state);
}

bool saver_may_pass(int reason) { return reason == ENOSPC || reason == EDQUOT || reason == EIO || reason == ESTALE; }

static bool write_once(Saver *s) {
  if (!state_write(s->engine, &s->state, &s->order.file, &s->err)) return false;
  s->order.file.previous = NULL; // from now on the file there is this state, even if a further name has to be retried
  for (const char *const *name = s->order.links; name && *name; name++)
    if (!file_link(s->order.file.path, *name, &s->err)) return false;
  return true;
}

// Writes the state; retries for a while, with a message.
static bool write_patiently(Saver *s) {
  bool said = false;
  for (double begin = now_seconds(); !write_once(s); usleep(RETRY_MICROSECONDS)) {
    if (!saver_may_pass(errno) || now_seconds() - begin >= s->order.patience) return false;
    if (!said) fprintf(stderr, "step %lld: %s; retrying\n", (long long)s->state.step, s->err.msg);
    said = true;
  }
  return true;
}

static _Thread_local const Saver *saves; // which this thread is writing

static void *save(void *saver) {
  Saver *s = saver;
  saves = s;
  // If the log is not on disk, retrying is useless: the system has dropped what it could not write.
  s->ok = (s->order.log < 0 || durable_sync(s->order.log) || err_set(&s->err, "log.jsonl: %s", strerror(errno))) &&
          write_patiently(s);
  saves = NULL;
  atomic_store(&s->done, true);
  return NULL;
}

void saver_write(Saver *s, const SaveOrder *order) {
  CHECK(s->under_way && !s->writing);
  s->writing = true;
  s->order = *order;
  s->apart = pthread_create(&s->thread, NULL, save, s) == 0;
  if (!s->apart) save(s);
}

bool saver_ready(const Saver *s) { return s->writing && atomic_load(&s->done); }

bool saver_busy(const Saver *s) { return s->under_way && !saver_ready(s); }

void saver_wait(const Saver *s) {
  if (!s->writing || saves == s) return;
  while (!saver_ready(s)) usleep(1000);
}

bool saver_end(Saver *s, Err *err) {
  if (!s->under_way) return true;
  CHECK(s->writing);
  if (s->apart) pthread_join(s->thread, NULL);
  s->under_way = s->writing = false;
  return s->ok || err_set(err, "%s", s->err.msg);
}
