#include "lab/study/text.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/spelling.h"

enum { MAX_KEYS = 8 };

// What a section may hold.
typedef struct StudyKind {
  const char *kind;
  bool named, keyless, any_key; // [setting NAME]; lines may be rows; names are the plan's own
  const char *keys[MAX_KEYS];
} StudyKind;

static const StudyKind kinds[] = {
    {.kind = "plan", .keys = {"title", "about", "repeats", "fewest", "seed", "timeout"}},
    {.kind = "given", .any_key = true},
    {.kind = "setting", .named = true, .keys = {"values", "read", "label", "unit"}},
    {.kind = "command", .named = true, .keys = {"run", "prepare", "label", "timeout", "sweep"}},
    {.kind = "skip", .keyless = true},
    {.kind = "measure", .named = true, .keys = {"read", "where", "of", "value", "label", "unit", "better", "digits"}},
    {.kind = "table", .named = true, .keys = {"title", "rows", "columns", "show", "best"}},
    {.kind = "plot", .named = true, .keys = {"title", "x", "y", "panels", "log", "bars"}},
    {.kind = "published", .named = true, .keyless = true, .keys = {"label", "columns"}},
};

static const StudyKind *kind_of(const char *name) {
  for (int i = 0; i < COUNT(kinds); i++)
    if (!strcmp(kinds[i].kind, name)) return &kinds[i];
  return NULL;
}

bool study_fail(const StudyText *t, int line, Err *err, const char *fmt, ...) {
  char text[2048];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  return err_set(err, "%s:%d: %s", t->path, line, text);
}

const char *study_meant(const char *typed, const char *const *names) {
  static char text[128];
  const char *nearest = NULL;
  const size_t length = strlen(typed);
  int best = (int)MIN(length, SPELLING_MOST);
  for (int i = 0; length <= SPELLING_MOST && names[i]; i++) {
    int d = spelling_distance(typed, length, names[i]);
    if (d >= best) continue;
    best = d;
    nearest = names[i];
  }
  snprintf(text, sizeof text, "%s%.64s%s", nearest ? ", did you mean " : "", nearest ? nearest : "",
           nearest ? "?" : "");
  return text;
}

bool study_is_name(const char *text) {
  if (!isalpha((unsigned char)*text)) return false;
  for (; *text; text++)
    if (!isalnum((unsigned char)*text) && *text != '_') return false;
  return true;
}

// Without blanks at both ends, in place.
static char *trim(char *text) {
  while (isspace((unsigned char)*text)) text++;
  size_t n = strlen(text);
  while (n > 0 && isspace((unsigned char)text[n - 1])) n--;
  text[n] = '\0';
  return text;
}

char *study_split(char **rest, char separator) {
  char *piece = *rest;
  bool quoted = false;
  if (!piece) return NULL;
  char *at = piece;
  for (; *at && (quoted || *at != separator); at++)
    if (*at == '"') quoted = !quoted;
  *rest = *at ? at + 1 : NULL;
  *at = '\0';
  return trim(piece);
}

const StudyLine *study_line(const StudySection *s, const char *key) {
  for (int i = 0; i < s->num_lines; i++)
    if (s->lines[i].key && !strcmp(s->lines[i].key, key)) return &s->lines[i];
  return NULL;
}

// ---- lines ----------------------------------------------------------------------------------------------------------

static StudySection *add_section(StudyText *t, const char *kind, const char *name, int line) {
  array_reserve((void **)&t->sections, &t->cap, (size_t)t->num_sections + 1, sizeof *t->sections);
  StudySection *s = &t->sections[t->num_sections++];
  *s = (StudySection){.kind = kind, .name = name ? xstrdup(name) : NULL, .line = line};
  return s;
}

static StudyLine *add_line(StudySection *s, const char *key, const char *value, int line) {
  array_reserve((void **)&s->lines, &s->cap, (size_t)s->num_lines + 1, sizeof *s->lines);
  StudyLine *l = &s->lines[s->num_lines++];
  *l = (StudyLine){.key = key, .value = xstrdup(value), .line = line};
  return l;
}

// "[kind name]"
static bool begin_section(StudyText *t, char *text, int line, Err *err) {
  size_t n = strlen(text);
  if (text[n - 1] != ']') return study_fail(t, line, err, "a section begins with [KIND NAME], not %s", text);
  text[n - 1] = '\0';
  char *word = trim(text + 1), *name = word + strcspn(word, " \t");
  if (*name) *name++ = '\0';
  name = trim(name);
  const StudyKind *kind = kind_of(word);
  if (!kind || kind == &kinds[0]) {
    const char *names[COUNT(kinds)] = {0};
    for (int i = 1; i < COUNT(kinds); i++) names[i - 1] = kinds[i].kind;
    return study_fail(t, line, err, "there is no section [%s]%s", word, study_meant(word, names));
  }
  if (kind->named && !study_is_name(name))
    return study_fail(t, line, err, "[%s NAME]: a name has letters, digits and _, and begins with a letter", word);
  if (!kind->named && *name) return study_fail(t, line, err, "[%s] has no name", word);
  for (int i = 0; i < t->num_sections; i++) {
    const StudySection *s = &t->sections[i];
    if (!strcmp(s->kind, word) && (!kind->named || !strcmp(s->name, name)))
      return study_fail(t, line, err, "[%s%s%s] is in line %d already", word, *name ? " " : "", name, s->line);
  }
  add_section(t, kind->kind, kind->named ? name : NULL, line);
  return true;
}

// Names of a section that takes any are kept in front of their values.
static bool add_entry(StudyText *t, char *text, int line, Err *err) {
  StudySection *s = &t->sections[t->num_sections - 1];
  const StudyKind *kind = kind_of(s->kind);
  char *colon = strchr(text, ':'), *value = colon ? colon + 1 : NULL;
  if (colon) *colon = '\0';
  char *word = colon ? trim(text) : text;
  const char *key = NULL;
  for (int i = 0; colon && i < MAX_KEYS && kind->keys[i]; i++)
    if (!strcmp(kind->keys[i], word)) key = kind->keys[i];
  if (!key && kind->keyless) {
    if (colon) *colon = ':';
    add_line(s, NULL, text, line);
    return true;
  }
  if (!colon) return study_fail(t, line, err, "expected a line \"name: value\", not \"%.200s\"", text);
  if (!key && kind->any_key) {
    if (!study_is_name(word))
      return study_fail(t, line, err, "\"%.100s\": a name has letters, digits and _, and begins with a letter", word);
    key = xstrdup(word);
  }
  if (!key) {
    const char *names[MAX_KEYS + 1] = {0};
    memcpy(names, kind->keys, sizeof kind->keys);
    bool plan = kind == &kinds[0];
    return study_fail(t, line, err, "%s%s%s has no \"%.100s\"%s", plan ? "the plan" : "[", plan ? "" : s->kind,
                      plan ? "" : "]", word, study_meant(word, names));
  }
  const StudyLine *before = study_line(s, key);
  if (before && kind->any_key) free((char *)key);
  if (before) return study_fail(t, line, err, "\"%.100s\" is in line %d already", word, before->line);
  add_line(s, key, trim(value), line);
  return true;
}

// '#' begins a comment where the line begins or a blank stands before it.
static void cut_comment(char *text) {
  for (char *at = text; (at = strchr(at, '#')); at++) {
    if (at > text && !isspace((unsigned char)at[-1])) continue;
    *at = '\0';
    return;
  }
}

// A line that begins with a blank goes on with the one before.
static bool continue_line(StudyText *t, const char *text, int line, Err *err) {
  StudySection *s = &t->sections[t->num_sections - 1];
  if (!s->num_lines) return study_fail(t, line, err, "a line that begins with a blank continues none here");
  StudyLine *last = &s->lines[s->num_lines - 1];
  char *joined = xasprintf("%s%s%s", last->value, *last->value ? " " : "", text);
  free(last->value);
  last->value = joined;
  return true;
}

static bool read_line(StudyText *t, char *text, int line, Err *err) {
  cut_comment(text);
  bool continues = isspace((unsigned char)*text);
  char *bare = trim(text);
  if (!*bare) return true;
  if (continues) return continue_line(t, bare, line, err);
  return *bare == '[' ? begin_section(t, bare, line, err) : add_entry(t, bare, line, err);
}

bool study_text_read(StudyText *t, const char *path, Err *err) {
  size_t size;
  *t = (StudyText){.path = path};
  t->text = file_read(path, &size, err);
  if (!t->text) return false;
  add_section(t, kinds[0].kind, NULL, 1);
  if (strlen(t->text) != size) return err_set(err, "%s: a plan is text, and this has zero bytes", path);
  char *copy = xstrdup(t->text), *rest = copy;
  bool ok = true;
  for (int line = 1; ok && rest; line++) {
    char *text = rest, *end = strchr(rest, '\n');
    rest = end ? end + 1 : NULL;
    if (end) *end = '\0';
    ok = read_line(t, text, line, err);
  }
  free(copy);
  return ok;
}

void study_text_free(StudyText *t) {
  for (int i = 0; i < t->num_sections; i++) {
    StudySection *s = &t->sections[i];
    for (int l = 0; l < s->num_lines; l++) {
      if (kind_of(s->kind)->any_key) free((char *)s->lines[l].key);
      free(s->lines[l].value);
    }
    free(s->lines);
    free(s->name);
  }
  free(t->sections);
  free(t->text);
  *t = (StudyText){0};
}
