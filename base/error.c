#include "base/error.h"
#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/die_told.h"
#include "base/utf8.h"

extern char *__progname; // the C library's record of argv[0]; glibc, musl, the BSDs and macOS all have it

char *text_clean(char *text) {
  const char *end = text + strlen(text);
  for (char *p = text; p < end;) {
    const size_t length = utf8_length(p, end), bytes = length ? length : 1;
    const bool is_control = bytes == 1 ? iscntrl((unsigned char)*p) && *p != '\t'
                                       : bytes == 2 && (unsigned char)p[0] == 0xc2 && (unsigned char)p[1] < 0xa0;
    if (!length || is_control) memset(p, '?', bytes);
    p += bytes;
  }
  return text;
}

bool err_set(Err *err, const char *fmt, ...) {
  if (!err) return false;
  va_list args;
  va_start(args, fmt);
  vsnprintf(err->msg, sizeof err->msg, fmt, args);
  va_end(args);
  text_clean(err->msg);
  return false;
}

static _Thread_local DieCaught *catcher;

void die_catch(DieCaught *caught) { catcher = caught; }

static char context[512];
static pthread_mutex_t context_lock = PTHREAD_MUTEX_INITIALIZER;

void die_context(const char *fmt, ...) {
  char text[sizeof context] = "";
  if (fmt) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
  }
  text_clean(text);
  pthread_mutex_lock(&context_lock);
  memcpy(context, text, sizeof context);
  pthread_mutex_unlock(&context_lock);
}

void die_about(char *text, size_t room) {
  pthread_mutex_lock(&context_lock);
  snprintf(text, room, "%s", context);
  pthread_mutex_unlock(&context_lock);
}

static void (*first)(void *);
static void *first_context;

void die_first(void (*settle)(void *context), void *its_context) {
  first = settle;
  first_context = its_context;
}

static DieTell *teller;
static void *teller_context;

void die_tells(DieTell *tell, void *its_context) {
  teller = tell;
  teller_context = its_context;
}

void die_print(const char *message) {
  char line[DIE_LINE + 64];
  snprintf(line, sizeof line, "%s: %s\n", __progname, message);
  fputs(line, stderr); // at once, so that lines of several processes stay whole
}

// A teller that fails itself is not asked again.
bool die_told(int *code, char *line) {
  static _Thread_local bool telling;
  if (!teller || telling) return false;
  telling = true;
  bool by_another = teller(teller_context, code, line, DIE_LINE);
  telling = false;
  return by_another;
}

static void format_line(char line[DIE_LINE], const char *about, const char *fmt, va_list args) {
  Err err;
  vsnprintf(err.msg, sizeof err.msg, fmt, args);
  snprintf(line, DIE_LINE, *about ? "%s (%s)" : "%s", text_clean(err.msg), about);
}

static NORETURN void end(int code, const char *about, const char *fmt, va_list args) {
  char line[DIE_LINE];
  if (catcher) {
    format_line(line, about, fmt, args);
    catcher(line);
  }
  void (*settle)(void *) = first;
  first = NULL;
  if (settle && code == EXIT_RUN) settle(first_context);
  fflush(stdout); // so that what was reported before stands before the reason for stopping
  format_line(line, about, fmt, args);
  if (!die_told(&code, line)) die_print(line);
  exit(code);
}

void die(int code, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  end(code, "", fmt, args);
}

void die_unforeseen(const char *fmt, ...) {
  char about[sizeof context];
  die_about(about, sizeof about);
  va_list args;
  va_start(args, fmt);
  end(EXIT_RUN, about, fmt, args);
}

void check_failed(const char *expr, const char *file, int line) {
  int code = EXIT_RUN;
  char text[DIE_LINE];
  snprintf(text, sizeof text, "%s:%d: check failed: %s (a bug in this program, please report it)", file, line, expr);
  if (catcher) catcher(text);
  fflush(stdout);
  if (!die_told(&code, text)) die_print(text);
  if (teller) _exit(code); // all processes end with one status
  abort();
}
