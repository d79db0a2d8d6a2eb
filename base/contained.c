#include "base/contained.h"
#include <setjmp.h>
#include <stdio.h>

typedef struct ContainedCall {
  jmp_buf home;
  Err *err;
} ContainedCall;

static _Thread_local ContainedCall *guest;

static void leave(const char *line) {
  err_set(guest->err, "%s", line);
  longjmp(guest->home, 1);
}

bool contained_call(void (*work)(void *context), void *context, Err *err) {
  ContainedCall here = {.err = err};
  CHECK(!guest);
  if (setjmp(here.home)) {
    die_catch(NULL);
    guest = NULL;
    return false;
  }
  guest = &here;
  die_catch(leave);
  work(context);
  die_catch(NULL);
  guest = NULL;
  return true;
}

bool is_contained(void) { return guest; }

void warn(const char *fmt, ...) {
  if (guest) return;
  char line[DIE_LINE];
  va_list args;
  va_start(args, fmt);
  vsnprintf(line, sizeof line, fmt, args);
  va_end(args);
  fprintf(stderr, "%s\n", text_clean(line));
}
