// Command lines from one list: an option is one row, and the member of a struct, its default, the parser, --help and
// the resolved configuration all follow from that row.
//
//   #define TOOL_OPTIONS(X) X(STRING, out, "out", "DIR", "where it goes") X(INT, val_limit, 0, 0, 1000, "N", "images")
//
//   typedef struct ToolOptions {
//     OPTION_FIELDS(TOOL_OPTIONS) // const char *out; int val_limit;
//   } ToolOptions;
//
//   ToolOptions o = {OPTION_DEFAULTS(TOOL_OPTIONS)};
//   OPTION_TABLE(table, ToolOptions, TOOL_OPTIONS);
//   Cli cli = {.usage = "[options]", .about = "…", .options = table, .num_options = COUNT(table), .values = &o};
//   cli_parse_or_exit(&cli, argc, argv); // ./tool --out DIR --val-limit 10
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "base/error.h"

// ---- rows -----------------------------------------------------------------------------------------------------------

// X(KIND, …) is a row; here is what follows each kind. The field is the option's name, an underscore for each dash.
// `text` is its line of --help, VALUE what stands for the value there. `lowest` to `highest` is accepted, both
// included, INFINITY for no limit; 0, 0 is any number. With `alone` the value is optional: --amp is --amp=bf16; where
// one is given it needs the '=', or, a number, to be the next argument and begin with a digit.
// clang-format off
#define OPTION_HEADING(AS, title) AS##_HEADING(title) // no option: the title of the group that follows in --help
#define OPTION_FLAG(AS, field, initial, text) /* --field, or --field=false to undo a default */ \
  AS(bool, field, initial, .kind = OPT_FLAG, .help = text)
#define OPTION_INT(AS, field, initial, lowest, highest, VALUE, text) \
  AS(int, field, initial, .kind = OPT_INT, .value = VALUE, .help = text, .min = lowest, .max = highest)
#define OPTION_INT64(AS, field, initial, lowest, highest, VALUE, text) \
  AS(int64_t, field, initial, .kind = OPT_INT64, .value = VALUE, .help = text, .min = lowest, .max = highest)
#define OPTION_FLOAT(AS, field, initial, lowest, highest, VALUE, text) \
  AS(float, field, initial, .kind = OPT_FLOAT, .value = VALUE, .help = text, .min = lowest, .max = highest)
#define OPTION_STRING(AS, field, initial, VALUE, text) /* points into argv; NULL: not given */ \
  AS(const char *, field, initial, .kind = OPT_STRING, .value = VALUE, .help = text)
#define OPTION_CHOICE(AS, field, initial, names, text) /* an index of names, whose last is NULL; --help has all */ \
  AS(int, field, initial, .kind = OPT_CHOICE, .help = text, .choices = names)
#define OPTION_INT_IMPLIED(AS, field, initial, lowest, highest, VALUE, alone, text) \
  AS(int, field, initial, .kind = OPT_INT, .value = VALUE, .help = text, .min = lowest, .max = highest, \
     .implied = alone)
#define OPTION_CHOICE_IMPLIED(AS, field, initial, names, alone, text) \
  AS(int, field, initial, .kind = OPT_CHOICE, .help = text, .choices = names, .implied = alone)
// clang-format on

// What becomes of a row.
#define OPTION_AS_FIELD_HEADING(title)
#define OPTION_AS_FIELD(type, field, ...) type field;
#define OPTION_AS_DEFAULT_HEADING(title)
#define OPTION_AS_DEFAULT(type, field, initial, ...) .field = initial,
#define OPTION_AS_ROW_HEADING(title) {.kind = OPT_HEADING, .help = title},
#define OPTION_AS_ROW(type, field, initial, ...) {.name = #field, .offset = offsetof(OptionValues, field), __VA_ARGS__},
#define OPTION_TO_FIELD(kind, ...) OPTION_##kind(OPTION_AS_FIELD, __VA_ARGS__)
#define OPTION_TO_DEFAULT(kind, ...) OPTION_##kind(OPTION_AS_DEFAULT, __VA_ARGS__)
#define OPTION_TO_ROW(kind, ...) OPTION_##kind(OPTION_AS_ROW, __VA_ARGS__)

// The members of a struct that holds the values of a list; it may have more.
#define OPTION_FIELDS(LIST) LIST(OPTION_TO_FIELD)
// Initialises those members.
#define OPTION_DEFAULTS(LIST) LIST(OPTION_TO_DEFAULT)
// Declares, in a function, the table `name` of a list whose values are in a struct `Type`.
#define OPTION_TABLE(name, Type, LIST)                                                                                 \
  typedef Type OptionValues;                                                                                           \
  static const Option name[] = {LIST(OPTION_TO_ROW)}

typedef enum OptionKind { OPT_HEADING, OPT_FLAG, OPT_INT, OPT_INT64, OPT_FLOAT, OPT_STRING, OPT_CHOICE } OptionKind;

// A row as the parser has it.
typedef struct Option {
  const char *name; // of the field, underscores included
  size_t offset;    // of the field in the struct of the values, in bytes
  OptionKind kind;
  const char *value; // NULL: a choice, or no value
  const char *help;
  double min, max;
  const char *const *choices;
  const char *implied; // NULL: the value is not optional
} Option;

// An option that had another name, or is gone.
typedef struct RenamedOption {
  const char *was, *now; // as they are typed, without dashes; now NULL: it is gone
  const char *since;     // the first version without it, "1.2"
} RenamedOption;

// ---- parsing --------------------------------------------------------------------------------------------------------

typedef struct Cli {
  const char *usage; // "--data DIR [options]", shown behind the program's name
  const char *about; // what the program does, one line or more
  const Option *options;
  int num_options;
  void *values;           // the struct that the options are members of; what it holds before parsing are the defaults
  const char *positional; // what stands without dashes ("IMAGE"); NULL = nothing may
  const RenamedOption *renamed; // a message says what took their place; .was NULL at the end. NULL: none
  // set by cli_parse:
  char **args; // positional arguments in order, moved to the front of argv + 1
  int num_args;
  bool help, version; // --help or -h, --version was given; nothing else was looked at
} Cli;

// Reads --name value, --name=value, flags and positional arguments; "--" ends the options; the last of several counts.
// false with one line that names the option, the value and what is accepted, or for an unknown option the nearest one.
bool cli_parse(Cli *cli, int argc, char **argv, Err *err);
// The same for main(): prints --help or --version on stdout and exits 0, or the message on stderr and exits 2. Standard
// streams that are closed are taken first, so that no file of the program's opens in their place and receives what it
// says.
void cli_parse_or_exit(Cli *cli, int argc, char **argv);

void cli_print_help(const Cli *cli, const char *program, FILE *out);
// The resolved configuration, one "  --name=value" a line; strings that were not given are left out.
void cli_print_config(const Cli *cli, FILE *out);
// A word as a shell takes it back: as it is, or in quotes. malloc'ed.
char *cli_word(const char *word);
