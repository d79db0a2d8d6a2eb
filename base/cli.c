// Command lines from one list of options.
#include "base/cli.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/machine.h"
#include "base/output.h"
#include "base/record.h"
#include "base/spelling.h"
#include "base/wrap.h"

enum { MAX_NAME = SPELLING_MOST };
#define MOST_WHOLE 9007199254740992.0 // 2^53: whole numbers up to it are exact

const char *const option_sources[] = {
    [FROM_DEFAULT] = "default", [FROM_GIVEN] = "given",    [FROM_CONVENTIONS] = "conventions",
    [FROM_MODEL] = "model",     [FROM_DATA] = "data",      [FROM_PRESET] = "preset",
    [FROM_LATER] = "later",     [FROM_NOTHING] = "nothing"};

// ---- values ---------------------------------------------------------------------------------------------------------

static bool is_integer(OptionType type) { return type == OPT_INT || type == OPT_INT64; }
static bool is_number(OptionType type) { return is_integer(type) || type == OPT_FLOAT; }

static void *value_of(const Cli *cli, const Option *o) { return (char *)cli->values + o->offset; }

// Of a number; 0 of what is none.
static double number_of(const Option *o, const void *values) {
  const void *value = (const char *)values + o->offset;
  switch (o->type) {
  case OPT_INT: return *(const int *)value;
  case OPT_INT64: return (double)*(const int64_t *)value;
  case OPT_FLOAT: return float_decimal(*(const float *)value);
  default: return 0;
  }
}

// The name of a number; NULL: it has none.
static const char *word_of(const Option *o, const void *values) {
  for (const OptionWord *w = o->words; w && w->word; w++)
    if (is_number(o->type) && number_of(o, values) == w->value) return w->word;
  return NULL;
}

const char *option_text(const Option *o, const void *values, char text[OPTION_TEXT]) {
  const void *value = (const char *)values + o->offset;
  const char *word = word_of(o, values);
  if (word) return word;
  switch (o->type) {
  case OPT_HEADING: return NULL;
  case OPT_FLAG: return *(const bool *)value ? "true" : "false";
  case OPT_INT: snprintf(text, OPTION_TEXT, "%d", *(const int *)value); return text;
  case OPT_INT64: snprintf(text, OPTION_TEXT, "%lld", (long long)*(const int64_t *)value); return text;
  case OPT_FLOAT: return number_text(number_of(o, values), text);
  case OPT_STRING: return *(const char *const *)value;
  case OPT_CHOICE: return o->choices[*(const int *)value];
  }
  return NULL;
}

OptionSource option_source(const Option *o, const void *values) {
  return (OptionSource)((const unsigned char *)values)[o->from];
}

void option_record(Record *j, const char *key, const Option *o, const void *values) {
  const void *value = (const char *)values + o->offset;
  char text[OPTION_TEXT];
  if (o->type == OPT_FLAG)
    record_bool(j, key, *(const bool *)value);
  else if (is_integer(o->type) && !word_of(o, values))
    record_int(j, key, o->type == OPT_INT ? *(const int *)value : *(const int64_t *)value);
  else if (o->type == OPT_FLOAT && !word_of(o, values))
    record_num(j, key, number_of(o, values));
  else
    record_str(j, key, option_text(o, values, text));
}

// A bound as it is typed: 1000000 and 9000000000000000, not 1e+06 and 9e+15; 0.9999999, which is below 1.
static const char *bound_text(const Option *o, double bound, char text[OPTION_TEXT]) {
  if (bound == floor(bound) && fabs(bound) <= MOST_WHOLE)
    snprintf(text, OPTION_TEXT, "%.0f", bound);
  else
    number_text(o->type == OPT_FLOAT ? float_decimal((float)bound) : bound, text);
  return text;
}

// "an integer from 1 to 64": what the option takes, for messages.
static void describe(const Option *o, char *out, size_t size) {
  size_t n = 0;
  if (o->type == OPT_CHOICE) {
    for (int i = 0; o->choices[i] && n < size; i++) {
      const char *before = i == 0 ? "" : o->choices[i + 1] ? ", " : " or ";
      n += (size_t)snprintf(out + n, size - n, "%s%s", before, o->choices[i]);
    }
    return;
  }
  const char *what = is_integer(o->type) ? "an integer" : is_number(o->type) ? "a number" : o->value;
  if (o->type == OPT_FLAG) what = "true or false";
  n = (size_t)snprintf(out, size, "%s", what);
  if (!is_number(o->type)) return;
  char low[OPTION_TEXT], high[OPTION_TEXT];
  bound_text(o, o->min, low);
  bound_text(o, o->max, high);
  if (o->min == 0 && o->max == 0)
    ;
  else if (isinf(o->max))
    n += (size_t)snprintf(out + n, size - n, " of at least %s", low);
  else if (isinf(o->min))
    n += (size_t)snprintf(out + n, size - n, " of at most %s", high);
  else
    n += (size_t)snprintf(out + n, size - n, " from %s to %s", low, high);
  for (const OptionWord *w = o->words; w && w->word && n < size; w++)
    if (!o->implied || strcmp(w->word, o->implied)) // which leaving the value out says
      n += (size_t)snprintf(out + n, size - n, "%s%s", w[1].word ? ", " : " or ", w->word);
}

static bool in_range(const Option *o, double v) {
  for (const OptionWord *w = o->words; w && w->word; w++)
    if (v == w->value) return true;
  return (o->min == 0 && o->max == 0) || (v >= o->min && v <= o->max); // false for NaN
}

static bool parse_integer(const Option *o, const char *text, void *value) {
  char *end;
  errno = 0;
  long long v = strtoll(text, &end, 10);
  if (errno || end == text || *end || !in_range(o, (double)v)) return false;
  if (o->type == OPT_INT64) {
    *(int64_t *)value = v;
    return true;
  }
  if (v < INT_MIN || v > INT_MAX) return false;
  *(int *)value = (int)v;
  return true;
}

static bool parse_real(const Option *o, const char *text, float *value) {
  char *end;
  double v = strtod(text, &end);
  if (end == text || *end || !(fabs(v) <= FLT_MAX) || !in_range(o, v)) return false; // NaN, too
  *value = (float)v;
  return true;
}

static bool parse_choice(const char *const *choices, const char *text, int *index) {
  for (int i = 0; choices[i]; i++) {
    if (strcmp(choices[i], text)) continue;
    *index = i;
    return true;
  }
  return false;
}

// The number that a word stands for, as a number is typed; a text that is no word as it is.
static const char *number_for(const Option *o, const char *text, char number[NUMBER_TEXT]) {
  for (const OptionWord *w = o->words; w && w->word; w++)
    if (!strcmp(w->word, text)) return number_text(w->value, number);
  return text;
}

static bool parse_value(const Option *o, const char *text, void *value) {
  static const char *const flags[] = {"false", "true", NULL};
  char number[NUMBER_TEXT];
  if (is_number(o->type)) text = number_for(o, text, number);
  if (is_number(o->type) && isspace((unsigned char)text[0])) return false; // strtod would skip it
  if (is_integer(o->type)) return parse_integer(o, text, value);
  if (is_number(o->type)) return parse_real(o, text, value);
  if (o->type == OPT_CHOICE) return parse_choice(o->choices, text, value);
  if (o->type == OPT_STRING) {
    *(const char **)value = text;
    return true;
  }
  int index;
  if (!parse_choice(flags, text, &index)) return false;
  *(bool *)value = index;
  return true;
}

// ---- names ----------------------------------------------------------------------------------------------------------

OptionName option_name(const Option *o) {
  OptionName name = {""};
  CHECK(strlen(o->name) <= MAX_NAME);
  for (int i = 0; o->name[i]; i++) name.text[i] = o->name[i] == '_' ? '-' : o->name[i];
  return name;
}

static const Option *find(const Cli *cli, const char *name, size_t length) {
  for (int i = 0; i < cli->num_options; i++) {
    const Option *o = &cli->options[i];
    if (o->type == OPT_HEADING || strlen(o->name) != length) continue;
    if (!memcmp(option_name(o).text, name, length)) return o;
  }
  return NULL;
}

// value: what follows the option's name; NULL: nothing does.
static bool renamed(const RenamedOption *r, const char *value, Err *err) {
  if (!r->now) return err_set(err, "--%s was removed in %s; leave it out", r->was, r->since);
  if (r->value_was && value && !strcmp(value, r->value_was)) value = r->value_now;
  return err_set(err, "--%s was renamed to --%s in %s; use --%s%s%.200s", r->was, r->now, r->since, r->now,
                 value ? " " : "", value ? value : "");
}

static bool unknown(const Cli *cli, const char *name, size_t length, const char *value, Err *err) {
  for (const RenamedOption *r = cli->renamed; r && r->was; r++)
    if (strlen(r->was) == length && !memcmp(r->was, name, length)) return renamed(r, value, err);
  const Option *nearest = NULL;
  int best = (int)MIN(length, MAX_NAME); // as many edits as letters: nothing in common, nothing to suggest
  for (int i = 0; i < cli->num_options; i++) {
    const Option *o = &cli->options[i];
    if (o->type == OPT_HEADING || length > MAX_NAME) continue;
    int d = spelling_distance(name, length, option_name(o).text);
    if (d < best) {
      best = d;
      nearest = o;
    }
  }
  if (!nearest) return err_set(err, "unknown option --%.*s; --help all lists all options", (int)MIN(length, 200), name);
  return err_set(err, "unknown option --%.*s; did you mean --%s? --help all lists all options", (int)length, name,
                 option_name(nearest).text);
}

// Whether a value is one that, until 1.1, asked for a default that nobody could write down.
static bool stood_for_default(const Option *o, const char *value) {
  static const char *const stand_ins[] = {"auto", "0", "-1"};
  bool any = false;
  for (int i = 0; i < COUNT(stand_ins); i++) any |= !strcmp(value, stand_ins[i]);
  return any && (o->settle || (o->usual && *o->usual));
}

// ---- parsing --------------------------------------------------------------------------------------------------------

static bool is_choice(const Option *o, const char *text) {
  for (int k = 0; o->choices && o->choices[k]; k++)
    if (!strcmp(o->choices[k], text)) return true;
  return false;
}

// What an option that joins its values had and has now; what was joined last is kept, since values outlive the parsing.
static const char *join(const char *before, const char *value) {
  static char *joined;
  char *both = xasprintf("%s %s", before, value);
  if (before == joined) free(joined);
  return joined = both;
}

// argv[*i] is an option; *i moves on to its value where that is an argument of its own.
static bool parse_option(Cli *cli, int argc, char **argv, int *i, Err *err) {
  const char *name = argv[*i] + 2;
  const char *equals = strchr(name, '=');
  size_t length = equals ? (size_t)(equals - name) : strlen(name);
  const Option *o = find(cli, name, length);
  const char *next = *i + 1 < argc && strncmp(argv[*i + 1], "--", 2) ? argv[*i + 1] : NULL;
  if (!o) return unknown(cli, name, length, equals ? equals + 1 : next, err);

  char accepted[256];
  describe(o, accepted, sizeof accepted);
  const bool value_follows =
      o->implied && next && (is_number(o->type) ? isdigit((unsigned char)*next) : is_choice(o, next));
  const char *value = equals ? equals + 1 : o->type == OPT_FLAG ? "true" : value_follows ? NULL : o->implied;
  if (!value) {
    if (!next) return err_set(err, "--%s needs a value: %s", option_name(o).text, accepted);
    value = next;
    ++*i;
  }
  if (o->type == OPT_STRING && !*value)
    return err_set(err, "--%s has an empty value; is a shell variable unset?", option_name(o).text);
  if (o->joins && ((unsigned char *)cli->values)[o->from] == FROM_GIVEN)
    value = join(*(const char *const *)value_of(cli, o), value);
  if (parse_value(o, value, value_of(cli, o))) {
    ((unsigned char *)cli->values)[o->from] = FROM_GIVEN;
    return true;
  }
  return err_set(err, "--%s takes %s, not \"%.200s\"%s", option_name(o).text, accepted, value,
                 stood_for_default(o, value) ? "; leave the option out to get the default" : "");
}

bool cli_parse(Cli *cli, int argc, char **argv, Err *err) {
  cli->args = argv + 1;
  cli->num_args = 0;
  // First, so that --help shows the defaults whatever stands before it.
  cli->help = cli->version = false;
  cli->topic = NULL;
  for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
    if (!strcmp(argv[i], "--version")) cli->version = true;
    const bool assigned = !strncmp(argv[i], "--help=", strlen("--help="));
    if (strcmp(argv[i], "--help") && strcmp(argv[i], "-h") && !assigned) continue;
    cli->help = true;
    if (assigned) cli->topic = argv[i] + strlen("--help=");
    if (!assigned && i + 1 < argc && argv[i + 1][0] != '-') cli->topic = argv[i + 1];
  }
  if (cli->help || cli->version) return true;

  bool options = true;
  for (int i = 1; i < argc; i++) {
    if (options && !strcmp(argv[i], "--")) {
      options = false;
    } else if (options && !strncmp(argv[i], "--", 2)) {
      if (!parse_option(cli, argc, argv, &i, err)) return false;
    } else if (options && argv[i][0] == '-' && argv[i][1]) {
      return err_set(err, "unknown option %.200s; options begin with two dashes, --help all lists them", argv[i]);
    } else if (!cli->positional) {
      return err_set(err, "unexpected argument \"%.200s\"; --help shows the usage", argv[i]);
    } else {
      cli->args[cli->num_args++] = argv[i];
    }
  }
  return true;
}

const char *cli_peek(int argc, char **argv, const char *name) {
  const size_t n = strlen(name);
  const char *value = NULL;
  for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
    if (strncmp(argv[i], "--", 2) || strncmp(argv[i] + 2, name, n)) continue;
    if (argv[i][2 + n] == '=') value = argv[i] + 2 + n + 1;
    if (!argv[i][2 + n] && i + 1 < argc) value = argv[i + 1];
  }
  return value;
}

// Opened the wrong way round, so that using one fails as it did while it was closed.
static void occupy_closed_streams(void) {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) _exit(EXIT_RUN);
}

void cli_parse_or_exit(Cli *cli, int argc, char **argv) {
  Err err;
  occupy_closed_streams();
  if (!cli_parse(cli, argc, argv, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (!cli->help && !cli->version) return;
  if (cli->help && cli->before_help) cli->before_help(cli, argc, argv);
  if (cli->help)
    cli_print_help(cli, argv[0], wrap_columns(stdout), stdout);
  else
    printf("maskrcnn.c %s, commit %s\n", build_version, build_commit);
  stdout_close();
  exit(0);
}

// ---- words ----------------------------------------------------------------------------------------------------------

char *cli_word(const char *word) {
  const bool plain =
      *word && !word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./=,:+-")];
  if (plain) return xstrdup(word);
  char *quoted = xmalloc(4 * strlen(word) + 3), *at = quoted;
  *at++ = '\'';
  for (; *word; word++) {
    *at++ = *word;
    if (*word == '\'') at += sprintf(at, "\\''");
  }
  *at++ = '\'';
  *at = '\0';
  return quoted;
}
