#include "training/stopping.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/interrupt.h"
#include "training/run_record.h"
#include "training/step_results.h"

// Seconds after the signal: within a step, or a wait for images; whatever else is under way; ranks other than the first
// wait longer, because the first one's end ends them.
enum { STEP_SECONDS = 5, OTHER_SECONDS = 8, RANK_SECONDS = 9 };

// Of the parameters that are not trained, which running statistics are among.
static const void *untrained(const Params *p) {
  return (const char *)p->master + p->trainable * dtype_size(p->dev->real);
}

static size_t untrained_bytes(const Params *p) { return (p->elements - p->trainable) * dtype_size(p->dev->real); }

static void on_computing(void *stopping, bool begins) {
  Stopping *s = stopping;
  const Params *p = &s->run->engine.params;
  if (!begins) {
    pthread_mutex_lock(&s->lock);
    return;
  }
  if (s->untrained) memcpy(s->untrained, untrained(p), untrained_bytes(p));
  s->whole = s->run->at - 1;
  s->in_step = true;
  pthread_mutex_unlock(&s->lock);
}

void stopping_wait_begins(Stopping *s, int64_t whole) {
  s->whole = whole;
  s->in_step = false;
  if (!s->run->engine.dev->gpu) pthread_mutex_unlock(&s->lock);
}

void stopping_wait_ends(Stopping *s) {
  if (!s->run->engine.dev->gpu) pthread_mutex_lock(&s->lock);
}

// ---- the end ----------------------------------------------------------------------------------------------------

// The state that has not been saved yet, if there is any, and its records.
static void save_whole_steps(Stopping *s) {
  TrainingRun *r = s->run;
  Engine *e = &r->engine;
  Err err;
  int64_t done;
  if (s->whole == r->first || !results_take(r, s->whole, true, &done) || files_last(&r->files) == s->whole) return;
  if (s->in_step) {
    e->batches--;
    e->snapshot.untrained = s->untrained;
  }
  if (!files_save(&r->files, e, s->whole, false, &err) || !files_settle(&r->files, &err))
    log_note(&r->files.log, "%s", err.msg);
}

static void end_run(void *stopping) {
  Stopping *s = stopping;
  TrainingRun *r = s->run;
  Err err;
  bool is_whole;
  while (!(is_whole = pthread_mutex_trylock(&s->lock) == 0) && interrupted_for() < OTHER_SECONDS) {
    if (atomic_load(&s->over)) return;
    usleep(20000);
  }
  if (!run_leads(r)) {
    while (interrupted_for() < RANK_SECONDS) usleep(20000);
    interrupt_leave(EXIT_RUN, "");
  }
  if (is_whole) save_whole_steps(s);
  files_wait(&r->files);
  if (is_whole) run_record_write(r, &(RunStanding){.state = "stopped", .step = s->whole}, &err);
  char *line = is_whole && s->in_step ? xasprintf("stopped within step %lld, which takes longer than %d s: %s\n",
                                                  (long long)s->whole + 1, STEP_SECONDS, r->files.kept)
                                      : xasprintf("stopped, %d s after it was asked to, at step %lld: %s\n",
                                                  (int)interrupted_for(), (long long)r->at, r->files.kept);
  interrupt_leave(EXIT_RUN, line);
}

void stopping_begin(Stopping *s, TrainingRun *r) {
  Engine *e = &r->engine;
  *s = (Stopping){.run = r};
  pthread_mutex_init(&s->lock, NULL);
  pthread_mutex_lock(&s->lock);
  if (!e->dev->gpu) {
    if (config_batch_norm(&e->config)) s->untrained = xmalloc(MAX(untrained_bytes(&e->params), 1));
    e->computing = on_computing;
    e->computing_context = s;
  }
  interrupt_limit(STEP_SECONDS, end_run, s);
}

void stopping_end(Stopping *s) {
  atomic_store(&s->over, true);
  interrupt_limit(0, NULL, NULL);
  s->run->engine.computing = NULL;
  pthread_mutex_unlock(&s->lock);
  pthread_mutex_destroy(&s->lock);
  free(s->untrained);
}
