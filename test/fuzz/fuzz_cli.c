// Catches command lines that crash the parser, are accepted out of range, or are printed as another configuration.
//
// Fuzzes command lines, their arguments separated by newlines: accepted values are in their range, and the printed
// configuration is accepted again and is the same. Seeds: test/corpus/cli.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/cli.h"
#include "data/batches/canvas.h"

static const char *const types[] = {"step", "cosine", NULL};

// clang-format off
#define FUZZED_OPTIONS(X)                                                                                              \
  X(HEADING, "every kind")                                                                                             \
  X(FLAG,    keep_empty, false,              "a flag")                                                                 \
  X(FLAG,    flip,       true,               "a flag that is set")                                                     \
  X(INT,     batch,      2, 1, 1024, "N",    "an integer")                                                             \
  X(INT,     any,        0, 0, 0, "N",       "an integer without limits")                                              \
  X(INT_IMPLIED, steps,  0, 0, 1e6, "N", "200", "an integer that may be left out")                                     \
  X(INT64,   seed,       1, 0, 0, "N",       "64 bits")                                                                \
  X(FLOAT,   momentum,   0.9f, 0, 1, "X",    "a number")                                                               \
  X(FLOAT,   rate,       0.02f, 0, INFINITY, "X", "a number without an upper limit")                                   \
  X(STRING,  sizes,      NULL, "N,N",        "text")                                                                   \
  X(CHOICE,  schedule,   0, types,           "one of several")                                                         \
  X(CHOICE_IMPLIED, amp, 0, types, "cosine", "one of several that may be left out")
// clang-format on

typedef struct FuzzedOptions {
  OPTION_FIELDS(FUZZED_OPTIONS)
} FuzzedOptions;

enum { MAX_ARGS = 64 };

// Cuts the text into arguments, at each `separator`.
static int split(char *text, char separator, char **argv) {
  int argc = 0;
  argv[argc++] = "program";
  for (char *at = text; argc < MAX_ARGS;) {
    argv[argc++] = at;
    at = strchr(at, separator);
    if (!at) break;
    *at++ = '\0';
  }
  return argc;
}

static bool parse(FuzzedOptions *o, Cli *cli, int argc, char **argv) {
  OPTION_TABLE(table, FuzzedOptions, FUZZED_OPTIONS);
  *o = (FuzzedOptions){OPTION_DEFAULTS(FUZZED_OPTIONS)};
  *cli = (Cli){.usage = "[options]",
               .about = "…",
               .options = table,
               .num_options = COUNT(table),
               .values = o,
               .positional = argc % 2 ? "IMAGE" : NULL};
  Err err = {""};
  bool ok = cli_parse(cli, argc, argv, &err);
  CHECK(ok || (*err.msg && !strchr(err.msg, '\n')));
  return ok;
}

static void check_ranges(const FuzzedOptions *o) {
  CHECK(o->batch >= 1 && o->batch <= 1024 && o->steps >= 0 && o->steps <= 1000000);
  CHECK(o->momentum >= 0 && o->momentum <= 1 && o->rate >= 0);
  CHECK(o->schedule >= 0 && o->schedule < 2 && o->amp >= 0 && o->amp < 2);
  Sizes sizes;
  Err err = {""};
  if (!o->sizes) return;
  bool ok = sizes_parse(&sizes, o->sizes, &err);
  CHECK(ok ? sizes.n > 0 && sizes.n <= MAX_SIZES && sizes_largest(&sizes) <= MAX_SHORTER_SIDE : *err.msg != 0);
}

static char *shown(const Cli *cli) {
  char *text = NULL;
  size_t size;
  FILE *f = open_memstream(&text, &size);
  CHECK(f);
  for (int i = 0; i < cli->num_options; i++) {
    char value[OPTION_TEXT];
    const char *is = option_text(&cli->options[i], cli->values, value);
    if (is) fprintf(f, "  --%s=%s\n", option_name(&cli->options[i]).text, is);
  }
  CHECK(fclose(f) == 0);
  return text;
}

static void check_again(const Cli *cli) {
  char *first = shown(cli), *words = xstrdup(first), *argv[MAX_ARGS];
  size_t length = strlen(words);
  words[length - 1] = '\0'; // the last line's end
  int argc = split(words, '\n', argv);
  for (int i = 1; i < argc; i++) argv[i] += strspn(argv[i], " ");
  FuzzedOptions o;
  Cli again;
  CHECK(parse(&o, &again, argc, argv));
  char *second = shown(&again);
  CHECK(!strcmp(first, second));
  free(first);
  free(words);
  free(second);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  char *text = xmalloc(size + 1), *argv[MAX_ARGS];
  memcpy(text, bytes, size);
  text[size] = '\0';
  FuzzedOptions o;
  Cli cli;
  if (parse(&o, &cli, split(text, '\n', argv), argv) && !cli.help && !cli.version) {
    CHECK(cli.num_args >= 0 && (cli.num_args == 0 || cli.positional));
    check_ranges(&o);
    check_again(&cli);
  }
  free(text);
  return 0;
}
