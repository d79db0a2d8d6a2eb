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
#include "base/record.h"
#include "base/spelling.h"

// ---- rows -----------------------------------------------------------------------------------------------------------

// X(KIND, …) is a row; the arguments of each type follow. The field is the option's name, an underscore for each dash.
// VALUE stands for the value in --help. `lowest` to `highest` is accepted, both included, INFINITY for no limit; 0, 0
// is any number. With `alone` the value is optional: --amp is --amp=bf16; where one is given it needs the '=', or to be
// the next argument and a choice, or begin with a digit. The row ends with its sentence for --help, behind which
// members of Option may be named in their order: X(INT, limit, 0, 1, INT32_MAX, "N", "read N images", .words = all).
// clang-format off
#define OPTION_HEADING(AS, title) AS##_HEADING(title) // no option: the title of the group that follows in --help
#define OPTION_FLAG(AS, field, initial, ...) /* --field, or --field=false to undo a default */ \
  AS(bool, field, initial, .type = OPT_FLAG, .help = __VA_ARGS__)
#define OPTION_INT(AS, field, initial, lowest, highest, VALUE, ...) \
  AS(int, field, initial, .type = OPT_INT, .value = VALUE, .min = lowest, .max = highest, .help = __VA_ARGS__)
#define OPTION_INT64(AS, field, initial, lowest, highest, VALUE, ...) \
  AS(int64_t, field, initial, .type = OPT_INT64, .value = VALUE, .min = lowest, .max = highest, .help = __VA_ARGS__)
#define OPTION_FLOAT(AS, field, initial, lowest, highest, VALUE, ...) \
  AS(float, field, initial, .type = OPT_FLOAT, .value = VALUE, .min = lowest, .max = highest, .help = __VA_ARGS__)
#define OPTION_STRING(AS, field, initial, VALUE, ...) /* points into argv; NULL: not given */ \
  AS(const char *, field, initial, .type = OPT_STRING, .value = VALUE, .help = __VA_ARGS__)
#define OPTION_CHOICE(AS, field, initial, names, ...) /* an index of names, whose last is NULL; --help has all */ \
  AS(int, field, initial, .type = OPT_CHOICE, .choices = names, .help = __VA_ARGS__)
#define OPTION_INT_IMPLIED(AS, field, initial, lowest, highest, VALUE, alone, ...) \
  AS(int, field, initial, .type = OPT_INT, .value = VALUE, .min = lowest, .max = highest, .implied = alone, \
     .help = __VA_ARGS__)
#define OPTION_CHOICE_IMPLIED(AS, field, initial, names, alone, ...) \
  AS(int, field, initial, .type = OPT_CHOICE, .choices = names, .implied = alone, .help = __VA_ARGS__)
// clang-format on

// What becomes of a row.
#define OPTION_AS_FIELD_HEADING(title)
#define OPTION_AS_FIELD(type, field, ...) type field;
#define OPTION_AS_FROM_HEADING(title)
#define OPTION_AS_FROM(type, field, ...) unsigned char field;
#define OPTION_AS_DEFAULT_HEADING(title)
#define OPTION_AS_DEFAULT(type, field, initial, ...) .field = initial,
#define OPTION_AS_ROW_HEADING(title) {.type = OPT_HEADING, .help = title},
#define OPTION_AS_ROW(type, field, initial, ...)                                                                       \
  {.name = #field, .offset = offsetof(OptionValues, field), .from = offsetof(OptionValues, from.field), __VA_ARGS__},
#define OPTION_TO_FIELD(type, ...) OPTION_##type(OPTION_AS_FIELD, __VA_ARGS__)
#define OPTION_TO_FROM(type, ...) OPTION_##type(OPTION_AS_FROM, __VA_ARGS__)
#define OPTION_TO_DEFAULT(type, ...) OPTION_##type(OPTION_AS_DEFAULT, __VA_ARGS__)
#define OPTION_TO_ROW(type, ...) OPTION_##type(OPTION_AS_ROW, __VA_ARGS__)

// The members of a struct that holds the values of a list, and in `from` where each comes from, an OptionSource; it may
// have more.
#define OPTION_FIELDS(LIST)                                                                                            \
  LIST(OPTION_TO_FIELD) struct { LIST(OPTION_TO_FROM) } from;
// Initialises the values.
#define OPTION_DEFAULTS(LIST) LIST(OPTION_TO_DEFAULT)
// Declares the table `name` of a list whose values are in a struct `Type`.
#define OPTION_TABLE(name, Type, LIST)                                                                                 \
  typedef Type OptionValues;                                                                                           \
  static const Option name[] = {LIST(OPTION_TO_ROW)}

typedef enum OptionType { OPT_HEADING, OPT_FLAG, OPT_INT, OPT_INT64, OPT_FLOAT, OPT_STRING, OPT_CHOICE } OptionType;

// Where a value comes from.
typedef enum OptionSource {
  FROM_DEFAULT, // the row's own
  FROM_GIVEN,   // the command line
  FROM_CONVENTIONS,
  FROM_MODEL, // or its weights
  FROM_DATA,
  FROM_PRESET, // another option that stands for several
  FROM_LATER,  // it is not known yet
  FROM_NOTHING // other options take its place
} OptionSource;
extern const char *const option_sources[]; // "default", "given", "conventions", "model", "data", "preset"

// A value that has a name, which is typed and shown in its place: all for 0. The number itself is taken, too, as it
// was before there were names.
typedef struct OptionWord {
  const char *word;
  double value;
} OptionWord;

struct Option;
// Gives an option that was not given the default that follows from `basis`, in the struct of the values; where from.
typedef OptionSource OptionSettle(void *values, const void *basis);
// Adds what a run's identity tells of an option.
typedef void OptionIdentify(Record *identity, const struct Option *o, const void *values, const void *basis);

// A row as the parser has it.
typedef struct Option {
  const char *name; // of the field, underscores included
  size_t offset;    // of the field in the struct of the values, in bytes
  size_t from;      // of its OptionSource, an unsigned char
  OptionType type;
  const char *value; // NULL: a choice, or no value
  double min, max;
  const char *const *choices;
  const char *implied; // NULL: the value is not optional
  const char *help;
  // What a row may name behind its sentence:
  const OptionWord *words;  // .word NULL at the end; NULL: none
  const char *usual;        // the default, for --help, where no value says it; "": none is shown
  const char *note;         // the default elsewhere: "0 for IDX data"
  bool joins;               // it may be given several times: a blank joins the values of a string
  bool first;               // among those that --help lists before --help all is asked for
  unsigned needs;           // Cli.has must have all of these bits
  bool amend;               // may change when a run is resumed
  bool local;               // may differ between the ranks of a run
  const char *key;          // of a run's identity; NULL: no part of it
  OptionSettle *settle;     // NULL: the default is the row's
  OptionIdentify *identify; // instead of the value under `key`
} Option;

// An option that had another name, or is gone.
typedef struct RenamedOption {
  const char *was, *now;             // as they are typed, without dashes; now NULL: it is gone
  const char *since;                 // the first version without it, "1.2"
  const char *value_was, *value_now; // a value that has another name, too; NULL: none has
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
  unsigned has;                 // options that need other bits are not for what is asked for: --help leaves them out
  const char *more;             // a line behind the list of --help; NULL: none
  // Before --help is printed: makes the defaults in `values` those of what the arguments ask for, or prints another
  // help for `topic` and exits. NULL: nothing.
  void (*before_help)(struct Cli *cli, int argc, char **argv);
  // set by cli_parse:
  char **args; // positional arguments in order, moved to the front of argv + 1
  int num_args;
  bool help, version; // --help or -h, --version was given; nothing else was looked at
  const char *topic;  // behind --help: "all"; NULL: none
} Cli;

// Reads --name value, --name=value, flags and positional arguments; "--" ends the options; the last of several counts,
// unless the row joins them. What was given is FROM_GIVEN. false with one line that names the option, the value and
// what is accepted, or for an unknown option the nearest one.
bool cli_parse(Cli *cli, int argc, char **argv, Err *err);
// The same for main(): prints --help or --version on stdout and exits 0, or the message on stderr and exits 2. Standard
// streams that are closed are taken first, so that no file of the program's opens in their place and receives what it
// says.
void cli_parse_or_exit(Cli *cli, int argc, char **argv);
// The value of the last --name VALUE or --name=VALUE before the arguments are parsed; NULL: there is none.
const char *cli_peek(int argc, char **argv, const char *name);

// The options that apply, each with its default; with some marked `first` those alone, unless the topic is "all". Lines
// are wrapped to `columns` columns, at least WRAP_NARROWEST (base/wrap.h).
void cli_print_help(const Cli *cli, const char *program, int columns, FILE *out);

// ---- values ---------------------------------------------------------------------------------------------------------

// An option's name as it is typed, without the dashes before it: train-split for the field train_split.
typedef struct OptionName {
  char text[SPELLING_MOST + 1];
} OptionName;
OptionName option_name(const Option *o);

enum { OPTION_TEXT = 64 };
// The present value as it would be typed, in `text` or not; NULL for a string that was not given.
const char *option_text(const Option *o, const void *values, char text[OPTION_TEXT]);
OptionSource option_source(const Option *o, const void *values);
// Adds the value as a member: a number, text or a truth; one with a name by that.
void option_record(Record *j, const char *key, const Option *o, const void *values);
// A word as a shell takes it back: as it is, or in quotes. malloc'ed.
char *cli_word(const char *word);
