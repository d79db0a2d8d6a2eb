#include "data/coco/choice.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/spelling.h"

static bool is_called(const ResultClass *c, const char *text, size_t length) {
  return c->name && strlen(c->name) == length && !memcmp(c->name, text, length);
}

static bool has_id(const ResultClass *c, const char *text, size_t length) {
  char id[32];
  const int n = snprintf(id, sizeof id, "%lld", (long long)c->id);
  return (size_t)n == length && !memcmp(id, text, length);
}

// Selects all classes of this name or, if there are none, the one with this id.
static bool choose(ResultChoice *c, const char *text, size_t length) {
  bool known = false;
  for (int byname = 1; byname >= 0 && !known; byname--)
    for (int i = 0; i < c->classes.n; i++) {
      const ResultClass *class = &c->classes.items[i];
      if (!(byname ? is_called : has_id)(class, text, length)) continue;
      known = c->chosen[i] = true;
    }
  return known;
}

enum { NEAREST = 3, FIRST = 5 }; // most names in a message

// The nearest names, without duplicates, nearest first. Returns their number.
static int nearest(const ResultClasses *classes, const char *text, size_t length, const char *names[NEAREST]) {
  int distance[NEAREST], n = 0;
  for (int i = 0; i < classes->n; i++) {
    const char *name = classes->items[i].name;
    if (!name || !*name) continue;
    const int d = spelling_distance(text, length, name);
    bool out = (size_t)d > (length + 1) / 2; // more than half of the letters differ
    for (int k = 0; k < n; k++) out |= !strcmp(names[k], name);
    int at = n;
    while (at > 0 && d < distance[at - 1]) at--;
    if (out || at == NEAREST) continue;
    n = MIN(n + 1, NEAREST);
    for (int k = n - 1; k > at; k--) {
      names[k] = names[k - 1];
      distance[k] = distance[k - 1];
    }
    names[at] = name;
    distance[at] = d;
  }
  return n;
}

static bool unknown(const ResultClasses *classes, const char *text, size_t length, Err *err) {
  const char *names[NEAREST] = {NULL};
  const int shown = (int)MIN(length, (size_t)100), n = nearest(classes, text, length, names);
  if (n == 0) {
    char some[400] = "";
    for (int i = 0, used = 0; i < MIN(classes->n, FIRST) && classes->items[i].name; i++)
      used += snprintf(some + used, sizeof some - (size_t)used, "%s%.60s", i ? ", " : ": ", classes->items[i].name);
    return err_set(err, "\"%.*s\" is not the name or id of any of the %d classes%s%s", shown, text, classes->n, some,
                   classes->n > FIRST ? ", …" : "");
  }
  return err_set(err, "\"%.*s\" is not the name or id of any of the %d classes; did you mean %.100s%s%.100s%s%.100s?",
                 shown, text, classes->n, names[0], n > 1 ? ", " : "", n > 1 ? names[1] : "", n > 2 ? ", " : "",
                 n > 2 ? names[2] : "");
}

bool choice_open(ResultChoice *c, const char *list, int top, double above, const ResultClasses *classes, Err *err) {
  *c = (ResultChoice){.classes = *classes, .top = top, .above = above};
  if (!list) return true;
  c->chosen = xcalloc((size_t)classes->n, sizeof *c->chosen);
  for (const char *at = list, *end; at; at = *end ? end + 1 : NULL) {
    end = at + strcspn(at, ",");
    const char *begin = at, *last = end;
    while (begin < last && isspace((unsigned char)*begin)) begin++;
    while (last > begin && isspace((unsigned char)last[-1])) last--;
    if (last > begin && choose(c, begin, (size_t)(last - begin))) continue;
    choice_close(c);
    return last > begin ? unknown(classes, begin, (size_t)(last - begin), err)
                        : err_set(err, "\"%.200s\" has an empty name between commas", list);
  }
  return true;
}

static bool wanted(const ResultChoice *c, const CocoResult *r) {
  if (!(r->score > c->above)) return false;
  for (int i = 0; c->chosen && i < c->classes.n; i++)
    if (c->classes.items[i].id == r->category_id) return c->chosen[i];
  return !c->chosen;
}

int choice_apply(const ResultChoice *c, CocoResult *found, int n) {
  CocoResult *rest = xmalloc((size_t)n * sizeof *rest);
  int kept = 0, left = 0;
  for (int i = 0; i < n; i++) {
    const bool keep = (c->top == 0 || kept < c->top) && wanted(c, &found[i]);
    if (keep)
      found[kept++] = found[i];
    else
      rest[left++] = found[i];
  }
  memcpy(found + kept, rest, (size_t)left * sizeof *rest);
  free(rest);
  return kept;
}

void choice_close(ResultChoice *c) {
  free(c->chosen);
  *c = (ResultChoice){0};
}
