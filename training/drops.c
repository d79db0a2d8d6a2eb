#include "training/drops.h"
#include <math.h>
#include <stdlib.h>

bool drops_parse(Drops *d, const char *text, Err *err) {
  *d = (Drops){0};
  for (const char *at = text;; at++) {
    char *end = NULL;
    const double epoch = *at >= '0' && *at <= '9' ? strtod(at, &end) : 0;
    if (!(epoch > (d->n ? d->epoch[d->n - 1] : 0)) || epoch > 1e6 || (*end != ',' && *end != '\0'))
      return err_set(err, "'%s': expected ascending numbers of epochs separated by commas, such as 16,22", text);
    if (d->n == MAX_MILESTONES) return err_set(err, "'%s': more than %d numbers", text, MAX_MILESTONES);
    d->epoch[d->n++] = epoch;
    at = end;
    if (*at == '\0') return true;
  }
}

bool drops_apply(const Drops *d, int64_t per_epoch, Schedule *s, Err *err) {
  s->milestones = d->n;
  for (int i = 0; i < d->n; i++) {
    s->milestone[i] = llround(d->epoch[i] * (double)per_epoch);
    if (s->milestone[i] < 1 || s->milestone[i] >= s->steps)
      return err_set(err, "%g is not within the run, which has %.4g epochs", d->epoch[i],
                     (double)s->steps / (double)per_epoch);
  }
  return true;
}
