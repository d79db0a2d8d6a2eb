// Command lines from one table: the same rows parse the arguments, print --help and record the resolved configuration.
#pragma once
#include <stdbool.h>
#include <stdio.h>
#include "base/record.h"
#include "base/util.h"

typedef enum OptKind {
  OPT_HEADING, // no option: `help` is the title of the group that follows in --help
  OPT_FLAG,    // bool: --name, or --name=false to undo a default
  OPT_INT,     // int
  OPT_INT64,   // int64_t
  OPT_FLOAT,   // float
  OPT_DOUBLE,  // double
  OPT_STRING,  // const char *, pointing into argv; NULL = not given
  OPT_CHOICE,  // int (or an enum): index into `choices`
} OptKind;

// A table of these is meant to be written with designated initialisers:
//   {.name = "batch", .kind = OPT_INT, .target = &o.batch, .arg = "N", .help = "images per GPU", .min = 1, .max = 1024}
typedef struct Option {
  const char *name; // without the dashes
  OptKind kind;
  void *target;               // where the value goes; what it holds before parsing is the default
  const char *arg;            // placeholder of the value in --help; choices are spelt out where it is NULL
  const char *help;           // one line
  double min, max;            // accepted range of a number, ends included, INFINITY for none; both 0 = any
  const char *const *choices; // OPT_CHOICE: what is accepted, NULL at the end
  // Makes the value optional: --amp means --amp=bf16. A value needs the '=', or, where it is a number, to be the next
  // argument and begin with a digit.
  const char *implied;
  bool given; // set by cli_parse: stood on the command line
} Option;

typedef struct Cli {
  const char *usage; // "--data DIR [options]", shown behind the program's name
  const char *about; // what the program does, one line or more
  Option *options;
  int num_options;
  const char *positional; // what stands without dashes ("IMAGE"); NULL = nothing may
  // set by cli_parse:
  char **args; // positional arguments in order, moved to the front of argv + 1
  int num_args;
  bool help; // --help or -h was given; nothing else was looked at
} Cli;

// Reads --name value, --name=value, flags and positional arguments; "--" ends the options; the last of several counts.
// false with one line that names the option, the value and what is accepted, or for an unknown option the nearest one.
bool cli_parse(Cli *cli, int argc, char **argv, Err *err);
// The same for main(): prints --help on stdout and exits 0, or the message on stderr and exits 2.
void cli_parse_or_exit(Cli *cli, int argc, char **argv);

void cli_print_help(const Cli *cli, const char *program, FILE *out);
// True when the option of that name stood on the command line. The name must be in the table.
bool cli_given(const Cli *cli, const char *name);
// The resolved configuration, one "  --name=value" a line; strings that were not given are left out.
void cli_print_config(const Cli *cli, FILE *out);
// The same as members of a JSON object, for the log and the checkpoint; strings that were not given are null.
void cli_record_config(const Cli *cli, Record *r);
