#include "nn/update_parts.h"

// The parameter as one part, whatever its size. Its shadow is what training reads: the filter as it is, of which there
// may be a copy, or scaled by a fold.
static UpdatePart whole_of(const Params *p, const Param *q) {
  CHECK(param_extent(q) <= INT32_MAX - UPDATE_PART); // a part counts those before it
  UpdatePart u = {.n = (int)param_extent(q), .role = q->role, .row = 1};
  u.first = (size_t)((char *)q->grad.data - (char *)p->grad) / dtype_size(p->dev->real);
  if (q->plain && q->shadow.data != q->master.data) u.shadow = q->shadow.data;
  if (q->fold && !q->plain) {
    u.shadow = q->folded.data;
    u.scale = q->fold->scale;
    u.row = u.n / q->master.n;
  }
  return u;
}

// Writes the parts of one parameter, unless `to` is NULL; returns how many.
static int cut(const UpdatePart *whole, size_t shadow_size, UpdatePart *to) {
  int parts = 0;
  for (int at = 0; at < whole->n; at += UPDATE_PART, parts++) {
    if (!to) continue;
    UpdatePart *u = &to[parts];
    *u = *whole;
    u->first += (size_t)at;
    u->n = MIN(UPDATE_PART, whole->n - at);
    u->at = at;
    if (u->shadow) u->shadow = (char *)u->shadow + (size_t)at * shadow_size;
  }
  return parts;
}

int update_parts(const Params *p, UpdatePart *to) {
  int parts = 0;
  for (int i = 0; i < p->n; i++) {
    const Param *q = p->list[p->order[i]];
    if (!q->trainable) continue;
    const UpdatePart whole = whole_of(p, q);
    parts += cut(&whole, dtype_size(p->shadow_dtype), to ? to + parts : NULL);
  }
  return parts;
}
