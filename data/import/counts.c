// What an import dropped, noted or refused.
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/output.h"
#include "data/import/import.h"

static void count(ImportSet *s, bool dropped, const char *where, const char *fmt, va_list args) {
  char what[512];
  vsnprintf(what, sizeof what, fmt, args);
  for (int i = 0; i < s->num_counts; i++)
    if (s->counts[i].dropped == dropped && !strcmp(s->counts[i].what, what)) {
      s->counts[i].n++;
      return;
    }
  array_reserve((void **)&s->counts, &s->counts_cap, (size_t)s->num_counts + 1, sizeof *s->counts);
  s->counts[s->num_counts++] = (ImportCount){xstrdup(what), dropped, 1, where ? xstrdup(where) : NULL};
}

void import_drop(ImportSet *s, const char *where, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  count(s, true, where, fmt, args);
  va_end(args);
}

void import_invalid(ImportSet *s, const char *where, const char *fmt, ...) {
  Err err;
  va_list args;
  va_start(args, fmt);
  vsnprintf(err.msg, sizeof err.msg, fmt, args);
  va_end(args);
  import_drop(s, where, "%s", err.msg);
  if (s->options.strict) import_refuse(s, "%s: %s; --strict stops here", where, err.msg);
}

void import_note(ImportSet *s, const char *where, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  count(s, false, where, fmt, args);
  va_end(args);
}

void import_refuse(ImportSet *s, const char *fmt, ...) {
  Err err;
  va_list args;
  va_start(args, fmt);
  vsnprintf(err.msg, sizeof err.msg, fmt, args);
  va_end(args);
  if (!s->refused) s->refused = xstrdup(err.msg);
}

static const char unusable[] = "file: not usable; the first are named above";

void import_broken(ImportSet *s, const char *fmt, ...) {
  enum { SAID = 20 }; // a data set may have thousands
  Err err;
  va_list args;
  va_start(args, fmt);
  vsnprintf(err.msg, sizeof err.msg, fmt, args);
  va_end(args);
  import_drop(s, NULL, "%s", unusable);
  if (s->options.strict) {
    import_refuse(s, "%s; --strict stops here", err.msg);
    return;
  }
  for (int i = 0; i < s->num_counts; i++)
    if (!strcmp(s->counts[i].what, unusable) && s->counts[i].n <= SAID)
      line_print(stderr, "note: left out: %s", err.msg);
}

void import_print_counts(const ImportSet *s) {
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < s->num_counts; i++) {
      const ImportCount *c = &s->counts[i];
      const long long n = c->n;
      if (c->dropped != (pass == 0)) continue;
      const int thing = (int)strcspn(c->what, ":");
      char *first = c->first ? xasprintf(" (first: %s)", c->first) : xstrdup("");
      if (c->dropped)
        line_print(stdout, "dropped %lld %.*s%s%s%s", n, thing, c->what, n == 1 ? "" : "s", c->what + thing, first);
      else if (n > 1)
        line_print(stdout, "note: %s: %lld times%s", c->what, n, first);
      else
        line_print(stdout, "note: %s%s%s%s", c->what, c->first ? " (" : "", c->first ? c->first : "",
                   c->first ? ")" : "");
      free(first);
    }
}
