#include "training/settings.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/output.h"
#include "base/text.h"
#include "base/wrap.h"
#include "training/table.h"

// ---- telling --------------------------------------------------------------------------------------------------------

static bool tells(const Option *row, const TrainSpec *o) {
  char text[OPTION_TEXT];
  if (row->type == OPT_HEADING) return false;
  const OptionSource from = option_source(row, o);
  return from != FROM_LATER && from != FROM_NOTHING && option_text(row, o, text);
}

void settings_print(const TrainSpec *o, bool sources, FILE *out) {
  int n;
  const Option *rows = train_rows(&n);
  for (int i = 0; i < n; i++) {
    char text[OPTION_TEXT];
    if (!tells(&rows[i], o)) continue;
    fprintf(out, "  --%s=%s", option_name(&rows[i]).text, option_text(&rows[i], o, text));
    if (sources) fprintf(out, "  (%s)", option_sources[option_source(&rows[i], o)]);
    fputc('\n', out);
  }
}

// An option as given: "--data coco", "--amp=bf16", "--exif", "--strict=false"; malloc'ed. NULL: not given, or given its
// default.
static char *given_words(const Option *row, const TrainSpec *o, const TrainSpec *defaults) {
  char text[OPTION_TEXT], usual_text[OPTION_TEXT];
  if (row->type == OPT_HEADING || option_source(row, o) != FROM_GIVEN) return NULL;
  const char *value = option_text(row, o, text), *usual = option_text(row, defaults, usual_text);
  if (!row->settle && usual && !strcmp(value, usual)) return NULL;
  char *name = xasprintf("--%s", option_name(row).text), *word = cli_word(value);
  const bool flag = row->type == OPT_FLAG, alone = flag && !strcmp(value, "true");
  char *words = xasprintf("%s%s%s", name, alone ? "" : flag || row->implied ? "=" : " ", alone ? "" : word);
  free(name);
  free(word);
  return words;
}

void settings_print_given(const TrainSpec *o, int columns, FILE *out) {
  const TrainSpec defaults = {OPTION_DEFAULTS(TRAIN_OPTIONS)};
  int n, column = fprintf(out, "options:");
  const Option *rows = train_rows(&n);
  bool any = false;
  for (int i = 0; i < n; i++) {
    char *words = given_words(&rows[i], o, &defaults);
    if (!words) continue;
    if (column + 1 + wrap_width(words) + 2 > columns) { // leaves 2 columns for a backslash
      fputs(" \\\n ", out);
      column = 1;
    }
    text_print(out, " %s", words);
    column += 1 + wrap_width(words);
    any = true;
    free(words);
  }
  fputs(any ? "\n" : " the defaults\n", out);
}

char *settings_text(const TrainSpec *o) {
  char *text;
  size_t size;
  FILE *f = text_open(&text, &size);
  settings_print(o, false, f);
  text_close(f);
  return text;
}

void settings_record(Record *j, const TrainSpec *o, const Device *dev) {
  char device[32] = "cpu";
  int n;
  const Option *rows = train_rows(&n);
  Record all = {0}, one = {0};
  if (dev->gpu) snprintf(device, sizeof device, "cuda:%d", dev->index);
  record_begin(&all);
  for (int i = 0; i < n; i++) {
    if (!tells(&rows[i], o)) continue;
    record_begin(&one);
    if (!strcmp(rows[i].name, "device"))
      record_str(&one, "value", device);
    else
      option_record(&one, "value", &rows[i], o);
    record_str(&one, "from", option_sources[option_source(&rows[i], o)]);
    record_raw(&all, option_name(&rows[i]).text, record_end(&one));
  }
  record_raw(j, "settings", record_end(&all));
  record_free(&all);
  record_free(&one);
}

// ---- among ranks ----------------------------------------------------------------------------------------------------

static bool is_local(const char *line) {
  int n;
  const Option *rows = train_rows(&n);
  const char *name = line + strspn(line, " -");
  const size_t length = strcspn(name, "=\n");
  for (int i = 0; i < n; i++) {
    if (rows[i].type == OPT_HEADING || !rows[i].local) continue;
    const OptionName local = option_name(&rows[i]);
    if (strlen(local.text) == length && !strncmp(local.text, name, length)) return true;
  }
  return false;
}

// The next line at *at whose option must agree among ranks, `length` bytes long; NULL: none left.
static const char *next_line(const char **at, int *length) {
  while (**at) {
    const char *line = *at;
    const size_t n = strcspn(line, "\n");
    *at += n + (line[n] != '\0');
    *length = (int)n;
    if (!is_local(line)) return line;
  }
  *length = 0;
  return NULL;
}

bool settings_same(const char *of_first, const char *other, Err *err) {
  for (;;) {
    int n, m;
    const char *a = next_line(&of_first, &n), *b = next_line(&other, &m);
    if (!a && !b) return true;
    if (a && b && n == m && !strncmp(a, b, (size_t)n)) continue;
    const int skip = a ? (int)strspn(a, " ") : 0, skip_b = b ? (int)strspn(b, " ") : 0;
    return err_set(err, "it has %.*s, but rank 0 has %.*s: give all ranks the same options", b ? m - skip_b : 7,
                   b ? b + skip_b : "nothing", a ? n - skip : 7, a ? a + skip : "nothing");
  }
}
