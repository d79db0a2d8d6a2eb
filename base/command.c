#include "base/command.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/basics.h"
#include "base/error.h"
#include "base/text.h"

extern char *__progname; // the last part of argv[0]

static const struct {
  const char *program, *built, *installed;
} commands[] = {{"train", "./train", "maskrcnn train"},           {"infer", "./infer", "maskrcnn infer"},
                {"doctor", "build/doctor", "maskrcnn doctor"},    {"cocoeval", "build/cocoeval", "maskrcnn cocoeval"},
                {"import", "build/import", "maskrcnn import"},    {"export", "build/export", "maskrcnn export"},
                {"inspect", "build/inspect", "maskrcnn inspect"}, {"report", "build/report", "maskrcnn report"}};

const char *command_name(const char *program) {
  const bool installed = !strncmp(__progname, "maskrcnn ", strlen("maskrcnn "));
  for (int i = 0; i < COUNT(commands); i++)
    if (!strcmp(commands[i].program, program)) return installed ? commands[i].installed : commands[i].built;
  return program;
}

// Advances past a word of a shell command line and the space after it.
static const char *next_word(const char *p) {
  for (char quote = 0; *p && (quote || *p != ' '); p++) {
    if (*p == '\\' && quote != '\'' && p[1])
      p++;
    else if (quote ? *p == quote : *p == '\'' || *p == '"')
      quote = quote ? 0 : *p;
  }
  return p + (*p == ' ');
}

static bool is_option(const char *word) { return !strncmp(word, "--", 2); }

// Whether `options`, such as "--lr 0.1 --amend", include the option that the word names.
static bool names_one_of(const char *options, const char *word) {
  const size_t n = strcspn(word, "= ");
  for (const char *p = options; *p; p = next_word(p))
    if (is_option(p) && strcspn(p, "= ") == n && !strncmp(p, word, n)) return true;
  return false;
}

char *command_with(const char *command, const char *options) {
  char *text;
  size_t size;
  FILE *f = text_open(&text, &size);
  bool left_out = false;
  for (const char *p = command; *p;) {
    const char *next = next_word(p);
    if (is_option(p)) left_out = names_one_of(options, p);
    if (!left_out) fprintf(f, "%.*s%s", (int)(next - p), p, next[-1] == ' ' ? "" : " ");
    p = next;
  }
  fputs(options, f);
  text_close(f);
  return text;
}
