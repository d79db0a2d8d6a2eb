// Catches a default in --help that is not the default, and help that is wider than the terminal.
#include <stdlib.h>
#include <string.h>
#include "base/cli.h"
#include "base/text.h"
#include "base/wrap.h"
#include "test/harness/test.h"

static const char *const schedules[] = {"step", "cosine", NULL}, *const amps[] = {"off", "bf16", "fp16", NULL};
#define PROG_OPTIONS(X)                                                                                                \
  X(HEADING, "data")                                                                                                   \
  X(STRING, data, NULL, "DIR", "folder of the data set")                                                               \
  X(INT, batch, 2, 1, 1024, "N", "images in a batch, all of one size", .first = true)                                  \
  X(INT_IMPLIED, time, 0, 1, 100, "N", "7", "steps to time")                                                           \
  X(HEADING, "training")                                                                                               \
  X(FLOAT, flip, 0.5f, 0, 1, "P", "probability of a flip", .note = "0 for digits")                                     \
  X(CHOICE, schedule, 0, schedules, "how the learning rate decays")                                                    \
  X(CHOICE_IMPLIED, amp, 0, amps, "bf16", "16-bit activations")                                                        \
  X(STRING, where, NULL, "HERE|THERE|EVERYWHERE|NOWHERE", "where to go", .usual = "where it is")                       \
  X(FLAG, strict, true, "stop at unusual data")

typedef struct ProgOptions {
  OPTION_FIELDS(PROG_OPTIONS)
} ProgOptions;

static void expect_help(int columns, const char *topic, const char *want) {
  OPTION_TABLE(table, ProgOptions, PROG_OPTIONS);
  ProgOptions o = {OPTION_DEFAULTS(PROG_OPTIONS)};
  const Cli cli = {.usage = "--data DIR [options] IMAGE…",
                   .about = "Tests what a program says.",
                   .options = table,
                   .num_options = COUNT(table),
                   .values = &o,
                   .topic = topic,
                   .more = "Names: one, two, three."};
  char *text;
  size_t size;
  FILE *f = text_open(&text, &size);
  cli_print_help(&cli, "./prog", columns, f);
  text_close(f);
  EXPECT_STR(text, want);
  free(text);
}

TEST(cli_help_lists_all_with_their_defaults) {
  expect_help(80, "all",
              "usage: ./prog --data DIR [options] IMAGE…\n"
              "Tests what a program says.\n"
              "\n"
              "data\n"
              "  --data DIR              folder of the data set\n"
              "  --batch N               images in a batch, all of one size (default: 2)\n"
              "  --time[=N]              steps to time (default: 0)\n"
              "\n"
              "training\n"
              "  --flip P                probability of a flip (default: 0.5; 0 for digits)\n"
              "  --schedule step|cosine  how the learning rate decays (default: step)\n"
              "  --amp[=off|bf16|fp16]   16-bit activations (default: off)\n"
              "  --where HERE|THERE|EVERYWHERE|NOWHERE\n"
              "                          where to go (default: where it is)\n"
              "  --strict                stop at unusual data (default: true)\n"
              "\n"
              "Names: one, two, three.\n");
}

TEST(cli_help_fits_a_narrow_terminal) {
  expect_help(40, "all",
              "usage: ./prog --data DIR [options]\n"
              "        IMAGE…\n"
              "Tests what a program says.\n"
              "\n"
              "data\n"
              "  --data DIR\n"
              "             folder of the data set\n"
              "  --batch N  images in a batch, all of\n"
              "             one size (default: 2)\n"
              "  --time[=N]\n"
              "             steps to time (default: 0)\n"
              "\n"
              "training\n"
              "  --flip P   probability of a flip\n"
              "             (default: 0.5; 0 for\n"
              "             digits)\n"
              "  --schedule step|cosine\n"
              "             how the learning rate\n"
              "             decays (default: step)\n"
              "  --amp[=off|bf16|fp16]\n"
              "             16-bit activations\n"
              "             (default: off)\n"
              "  --where HERE|THERE|EVERYWHERE|NOWHERE\n"
              "             where to go (default: where\n"
              "             it is)\n"
              "  --strict   stop at unusual data\n"
              "             (default: true)\n"
              "\n"
              "Names: one, two, three.\n");
}

TEST(cli_help_begins_with_what_matters_first) {
  expect_help(80, NULL,
              "usage: ./prog --data DIR [options] IMAGE…\n"
              "Tests what a program says.\n"
              "\n"
              "  --batch N  images in a batch, all of one size (default: 2)\n"
              "\n"
              "--help all lists all 8 options.\n"
              "Names: one, two, three.\n");
}
