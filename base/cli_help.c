// --help: the options of a program in two columns, wrapped to the terminal.
#include <stdlib.h>
#include <string.h>
#include "base/cli.h"
#include "base/text.h"
#include "base/wrap.h"

// "--amp[=off|bf16|fp16]"
static void signature(const Option *o, char *out, size_t size) {
  int n = snprintf(out, size, "--%s", option_name(o).text);
  if (o->type == OPT_FLAG) return;
  n += snprintf(out + n, size - (size_t)n, o->implied ? "[=" : " ");
  if (o->value) n += snprintf(out + n, size - (size_t)n, "%s", o->value);
  for (const OptionWord *w = o->implied ? NULL : o->words; w && w->word && n < (int)size; w++)
    n += snprintf(out + n, size - (size_t)n, "|%s", w->word);
  for (int i = 0; o->type == OPT_CHOICE && o->choices[i] && n < (int)size; i++)
    n += snprintf(out + n, size - (size_t)n, "%s%s", i ? "|" : "", o->choices[i]);
  if (o->implied && n < (int)size) snprintf(out + n, size - (size_t)n, "]");
}

// " (default: 0.5; 0 for IDX data)", or nothing.
static void print_default(const Cli *cli, const Option *o, FILE *out) {
  char text[OPTION_TEXT];
  const OptionSource from = option_source(o, cli->values);
  const bool said = o->usual && (!o->settle || from == FROM_LATER || from == FROM_NOTHING);
  const char *value = said ? o->usual : option_text(o, cli->values, text);
  const bool none = !value || !*value || (o->type == OPT_FLAG && !strcmp(value, "false"));
  if (none && !o->note) return;
  fprintf(out, " (default: %s%s%s)", none ? "" : value, none || !o->note ? "" : "; ", o->note ? o->note : "");
}

static bool listed(const Cli *cli, const Option *o, bool all) {
  return o->type != OPT_HEADING && (o->needs & ~cli->has) == 0 && (all || o->first);
}

// Whether an option of the heading's group is listed.
static bool heads_any(const Cli *cli, const Option *heading, bool all) {
  for (const Option *o = heading + 1; o < cli->options + cli->num_options && o->type != OPT_HEADING; o++)
    if (listed(cli, o, all)) return true;
  return false;
}

static void print_option(const Cli *cli, const Option *o, int column, int columns, FILE *out) {
  char left[256], *text;
  size_t size;
  signature(o, left, sizeof left);
  FILE *f = text_open(&text, &size);
  fputs(o->help, f);
  print_default(cli, o, f);
  text_close(f);
  fputs("  ", out);
  if (wrap_width(left) + 4 <= column) {
    fprintf(out, "%-*s", column - 2, left);
  } else {
    wrap_print(out, left, 2, 6, columns);
    fprintf(out, "%*s", column, "");
  }
  wrap_print(out, text, column, column, columns);
  free(text);
}

void cli_print_help(const Cli *cli, const char *program, int columns, FILE *out) {
  char left[256];
  int widest = 0, count = 0, shown = 0;
  bool some_first = false;
  for (int i = 0; i < cli->num_options; i++) some_first |= cli->options[i].first;
  const bool all = !some_first || (cli->topic && !strcmp(cli->topic, "all"));
  for (int i = 0; i < cli->num_options; i++) {
    count += listed(cli, &cli->options[i], true);
    if (!listed(cli, &cli->options[i], all)) continue;
    signature(&cli->options[i], left, sizeof left);
    widest = MAX(widest, wrap_width(left));
    shown++;
  }
  // The few signatures that are longer than a third of a line get a line of their own.
  const int column = MIN(widest + 4, columns / 3);
  const int named = fprintf(out, "usage: %s ", program);
  wrap_print(out, cli->usage, named, 8, columns);
  wrap_print(out, cli->about, 0, 0, columns);
  fputc('\n', out);
  for (int i = 0; i < cli->num_options; i++) {
    const Option *o = &cli->options[i];
    if (o->type == OPT_HEADING && all && heads_any(cli, o, all)) fprintf(out, "%s%s\n", i ? "\n" : "", o->help);
    if (listed(cli, o, all)) print_option(cli, o, column, columns, out);
  }
  if (shown < count) fprintf(out, "\n--help all lists all %d options.\n", count);
  if (!cli->more) return;
  if (shown == count) fputc('\n', out);
  wrap_print(out, cli->more, 0, 0, columns);
}
