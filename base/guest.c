#include "base/guest.h"
#include <setjmp.h>
#include <stdio.h>

typedef struct GuestStay {
  jmp_buf home;
  Err *err;
} GuestStay;

static _Thread_local GuestStay *guest;

static void leave(const char *line) {
  err_set(guest->err, "%s", line);
  longjmp(guest->home, 1);
}

bool guest_call(void (*work)(void *context), void *context, Err *err) {
  GuestStay here = {.err = err};
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

bool guest_here(void) { return guest; }

void warn(const char *fmt, ...) {
  if (guest) return;
  char line[DIE_LINE];
  va_list args;
  va_start(args, fmt);
  vsnprintf(line, sizeof line, fmt, args);
  va_end(args);
  fprintf(stderr, "%s\n", text_clean(line));
}
