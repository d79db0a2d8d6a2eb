#include "training/divergence.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/cli.h"
#include "base/command.h"
#include "base/record.h"
#include "base/text.h"

// Removes the sign of a NaN, which printf would show.
static double plain(double value) { return isnan(value) ? NAN : value; }

void divergence_take(Divergence *d, const Model *m, const Dataset *data, int images, int64_t step, double rate,
                     const StepResult *r) {
  *d = (Divergence){.step = step, .rate = rate};
  for (int i = 0; i < model_losses(m); i++)
    snprintf(d->losses + strlen(d->losses), sizeof d->losses - strlen(d->losses), "%s %g, ", m->loss[i].name,
             plain(r->loss[i]));
  snprintf(d->losses + strlen(d->losses), sizeof d->losses - strlen(d->losses), "gradient norm %g",
           plain(r->grad_norm));
  for (int i = 0; i < images; i++)
    if (r->index[i] >= 0)
      snprintf(d->images + strlen(d->images), sizeof d->images - strlen(d->images), "%s%s", *d->images ? ", " : "",
               data->coco.images[data->image[r->index[i]]].file_name);
}

void divergence_gather(Divergence *d, Comm *comm) {
  const int world = comm_world(comm);
  CommPart *part = xcalloc((size_t)world, sizeof *part);
  const bool gathered = comm_gather(comm, d->images, strlen(d->images), sizeof d->images, part);
  for (int i = 1; gathered && i < world; i++) {
    const size_t length = strlen(d->images);
    snprintf(d->images + length, sizeof d->images - length, ", %.*s", (int)part[i].bytes, part[i].data);
  }
  for (int i = 0; i < world; i++) free(part[i].data);
  free(part);
}

// The checkpoint to continue from, one of RESUME_…; RESUME_NO: start again from the beginning. -1: no checkpoint is
// good.
static int good_checkpoint(const Divergence *d, const RunFiles *f) {
  if (f->older >= 0) return RESUME_PREVIOUS;
  if (f->newest < 0) return RESUME_NO;
  return f->newest_is_good && f->newest + 1 < d->step ? RESUME_LAST : -1;
}

// "--lr 0.01", or the phases at half their rates; malloc'ed.
static char *half_rate(const Divergence *d, const TrainSpec *o) {
  char number[NUMBER_TEXT];
  const Phases *p = &o->phase_list;
  if (!p->n) return xasprintf("--lr %s", number_text(d->rate / 2, number));
  char *phases = phases_text(p, d->rate / 2 / p->phase[0].rate), *option = xasprintf("--phases %s", phases);
  free(phases);
  return option;
}

void divergence_explain(const Divergence *d, const RunFiles *f, Err *out) {
  char saved[2048] = "there is no checkpoint yet", before[256] = "";
  if (f->older >= 0 && f->older != f->newest)
    snprintf(before, sizeof before, ", %s (step %lld)", strrchr(f->previous, '/') + 1, (long long)f->older);
  if (f->newest >= 0)
    snprintf(saved, sizeof saved, "saved: %s (step %lld)%s", f->checkpoint, (long long)f->newest, before);
  err_set(out, "step %lld: loss or gradient is not finite (%s), images %s; the weights were not updated; %s",
          (long long)d->step, d->losses, d->images, saved);
}

// ---- the command ----------------------------------------------------------------------------------------------------

char *divergence_command(const Divergence *d, const TrainSpec *o, const RunFiles *f) {
  char number[NUMBER_TEXT], *rate = half_rate(d, o), *how = NULL;
  switch (good_checkpoint(d, f)) {
  case RESUME_PREVIOUS: how = xasprintf("--resume=previous --amend %s", rate); break;
  case RESUME_LAST: how = xasprintf("--resume --amend %s", rate); break;
  case RESUME_NO: how = xstrdup(rate); break;
  default: {
    char *out = xasprintf("%s-lr%s", o->out, number_text(d->rate / 2, number)), *word = cli_word(out);
    how = xasprintf("%s --out %s", rate, word);
    free(out);
    free(word);
  }
  }
  char *command = command_with(o->command, how);
  free(how);
  free(rate);
  return command;
}

char *divergence_no_roll_back(const Divergence *d, int rollbacks, const RunFiles *f) {
  if (rollbacks == MAX_ROLLBACKS) return xasprintf("not rolled back: it was rolled back %d times already", rollbacks);
  if (good_checkpoint(d, f) >= 0) return NULL;
  return xasprintf("not rolled back: the only checkpoint, of step %lld, may be from after the divergence began",
                   (long long)f->newest);
}

bool divergence_roll_back(const Divergence *d, const RunFiles *f, SessionStart *next) {
  const int from = good_checkpoint(d, f);
  if (from < 0) return false;
  *next = (SessionStart){.resume = from, .amend = from != RESUME_NO, .lr = (float)(d->rate / 2)};
  return true;
}

int64_t rollback_note(int times, float lr) {
  uint32_t bits;
  memcpy(&bits, &lr, sizeof bits);
  return (int64_t)times << 32 | bits;
}

void rollback_of_note(int64_t note, int *times, float *lr) {
  const uint32_t bits = (uint32_t)note;
  *times = (int)(note >> 32);
  memcpy(lr, &bits, sizeof bits);
}
