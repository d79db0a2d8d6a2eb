#include "base/log_read.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/json_lines.h"
#include "base/line_read.h"
#include "base/regular.h"

// ---- curves ---------------------------------------------------------------------------------------------------------

static void curve_add(Curve *c, double x, double y) {
  array_reserve((void **)&c->x, &c->cap_x, (size_t)c->n + 1, sizeof *c->x);
  array_reserve((void **)&c->y, &c->cap_y, (size_t)c->n + 1, sizeof *c->y);
  c->x[c->n] = x;
  c->y[c->n++] = y;
}

typedef struct CurveKeys {
  const char *const *key;
  int n;
  Curve *curve;
} CurveKeys;

// One record: its step is its first member.
static bool read_record(Json *j, void *curves) {
  const CurveKeys *c = curves;
  double step = 0;
  const char *key;
  if (json_begin_object(j))
    while ((key = json_key(j))) {
      int k = 0;
      while (k < c->n && strcmp(c->key[k], key)) k++;
      if (!strcmp(key, "step"))
        step = json_number(j);
      else if (k < c->n && json_peek(j) == JSON_NUMBER)
        curve_add(&c->curve[k], step, json_number(j));
      else
        json_skip(j);
    }
  return true;
}

bool curves_read(const char *path, const char *const *keys, int count, Curve *out, Err *err) {
  return json_lines(path, read_record, &(CurveKeys){keys, count, out}, err);
}

void curves_free(Curve *curves, int count) {
  for (int i = 0; i < count; i++) {
    free(curves[i].x);
    free(curves[i].y);
  }
}

// ---- amendments -----------------------------------------------------------------------------------------------------

void amendments_read(const char *path, AmendmentFn *each, void *context) {
  static const char member[] = "\"changes\":";
  char *line = NULL;
  size_t cap = 0;
  FILE *f = regular_read(path, NULL);
  while (f && line_read(&line, &cap, f) > 0) {
    long long step;
    int at = 0;
    char *changes = strstr(line, member);
    if (sscanf(line, "{\"step\":%lld,\"kind\":\"amend\"%n", &step, &at) < 1 || !at || !changes) continue;
    line[strcspn(line, "\n")] = '\0';
    changes += strlen(member);
    const size_t n = strlen(changes);
    if (n) changes[n - 1] = '\0'; // the record's own end
    each(context, step, changes);
  }
  free(line);
  if (f) fclose(f);
}

typedef struct SoughtAmendment {
  int64_t step;
  const char *changes;
  bool is_found;
} SoughtAmendment;

static void compare_amendment(void *sought, int64_t step, const char *changes) {
  SoughtAmendment *s = sought;
  s->is_found |= step == s->step && !strcmp(changes, s->changes);
}

bool amendment_is_logged(const char *path, int64_t step, const char *changes) {
  SoughtAmendment s = {.step = step, .changes = changes};
  amendments_read(path, compare_amendment, &s);
  return s.is_found;
}
