#include "base/contained.h"
#include <setjmp.h>
#include <stdio.h>
#include "base/team.h"

typedef struct ContainedCall {
  jmp_buf home;
  Err *err;
} ContainedCall;

static _Thread_local ContainedCall *call;

static void leave(const char *line) {
  err_set(call->err, "%s", line);
  team_leave();
  longjmp(call->home, 1);
}

bool contained_call(void (*work)(void *context), void *context, Err *err) {
  ContainedCall here = {.err = err};
  CHECK(!call);
  if (setjmp(here.home)) {
    die_catch(NULL);
    call = NULL;
    return false;
  }
  call = &here;
  die_catch(leave);
  work(context);
  die_catch(NULL);
  call = NULL;
  return true;
}

bool is_contained(void) { return call; }

static _Thread_local WarnTold *told;
static _Thread_local void *told_context;

void warn_tells(WarnTold *tell, void *context) {
  told = tell;
  told_context = context;
}

void warn(const char *fmt, ...) {
  if (call && !told) return;
  char line[DIE_LINE];
  va_list args;
  va_start(args, fmt);
  vsnprintf(line, sizeof line, fmt, args);
  va_end(args);
  text_clean(line);
  if (call)
    told(told_context, line);
  else
    fprintf(stderr, "%s\n", line);
}
