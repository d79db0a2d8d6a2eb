#include "training/phases.h"
#include <stdlib.h>
#include <string.h>
#include "base/record.h"
#include "base/text.h"

enum { MOST_EPOCHS = 100000 }; // longest phase

// Parses one phase at *at, and advances *at past it.
static bool parse_phase(const char **at, Phase *p) {
  char *end;
  const long epochs = strtol(*at, &end, 10);
  if (**at < '0' || **at > '9' || *end != '@' || epochs < 1 || epochs > MOST_EPOCHS) return false;
  const char *rate = end + 1;
  if (*rate < '0' || *rate > '9') return false; // no sign, no white space, no NaN
  *p = (Phase){.epochs = (int)epochs, .rate = strtod(rate, &end)};
  if (end == rate || !(p->rate > 0 && p->rate <= 1e6)) return false;
  *at = end;
  return true;
}

// Until 1.2 a phase could say that its images are augmented.
static bool refuse_augment(const Phases *p, const char *text, Err *err) {
  const int before = phases_epochs(p) - p->phase[p->n - 1].epochs;
  return err_set(err, "%.200s: instead of +augment, give --augment standard --augment-after %d", text, before);
}

bool phases_parse(Phases *p, const char *text, Err *err) {
  *p = (Phases){0};
  for (const char *at = text;; at++) {
    const char *begin = at;
    if (p->n == MAX_PHASES) return err_set(err, "%.200s: more than %d phases", text, MAX_PHASES);
    const bool parsed = parse_phase(&at, &p->phase[p->n++]);
    if (parsed && !strncmp(at, "+augment", 8) && (!at[8] || at[8] == ',')) return refuse_augment(p, text, err);
    if (!parsed || (*at && *at != ','))
      return err_set(err, "%.200s: expected EPOCHS@RATE at \"%.40s\", such as 10@1e-3,25@1e-4", text, begin);
    if (!*at) return true;
  }
}

char *phases_text(const Phases *p, double factor) {
  char *text;
  size_t size;
  FILE *f = text_open(&text, &size);
  for (int i = 0; i < p->n; i++) {
    char rate[NUMBER_TEXT];
    fprintf(f, "%s%d@%s", i ? "," : "", p->phase[i].epochs, number_text(p->phase[i].rate * factor, rate));
  }
  text_close(f);
  return text;
}

int phases_epochs(const Phases *p) {
  int epochs = 0;
  for (int i = 0; i < p->n; i++) epochs += p->phase[i].epochs;
  return epochs;
}

Schedule phases_schedule(const Phases *p, double base, int64_t per_epoch) {
  Schedule s = {.decay = DECAY_PHASES, .base = base, .phases = p->n};
  for (int i = 0; i < p->n; i++) {
    s.steps += p->phase[i].epochs * per_epoch;
    s.phase_end[i] = s.steps;
    s.phase_factor[i] = p->phase[i].rate / p->phase[0].rate;
  }
  return s;
}
