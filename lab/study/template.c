#include "lab/study/template.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"

enum { NAME = 64 };

static bool is_kept(const char *name) {
  return !strcmp(name, "repeat") || !strcmp(name, "out") || !strcmp(name, "study");
}

static bool is_known(const StudyPlan *p, const char *name) {
  return is_kept(name) || study_setting_find(p, name) > 0 || study_given_find(p, name);
}

// Whether a placeholder begins at `at`, where a '{' is; its name, and its end behind the '}'. Braces behind a '$', and
// around anything but a name, are the shell's.
static const char *placeholder(const char *text, const char *at, char name[NAME]) {
  size_t n = 1;
  if (at > text && at[-1] == '$') return NULL;
  while (isalnum((unsigned char)at[n]) || at[n] == '_') n++;
  if (at[n] != '}' || !isalpha((unsigned char)at[1]) || n > NAME) return NULL;
  snprintf(name, NAME, "%.*s", (int)n - 1, at + 1);
  return at + n + 1;
}

// "{batch " is a placeholder whose brace was forgotten where batch is one's name.
static bool check_open(const StudyPlan *p, const char *text, const char *at, Err *err) {
  char name[NAME];
  size_t n = 1;
  if (at > text && at[-1] == '$') return true;
  while (isalnum((unsigned char)at[n]) || at[n] == '_') n++;
  if (n == 1 || n > NAME) return true;
  snprintf(name, NAME, "%.*s", (int)n - 1, at + 1);
  return !is_known(p, name) ||
         err_set(err, "{%s has no }; the shell's own brace before such a name is written {{", name);
}

static bool check_name(const StudyPlan *p, const char *name, bool uses[STUDY_MAX_SETTINGS], Err *err) {
  const int setting = study_setting_find(p, name);
  if (is_kept(name)) return true;
  if (setting > 0 && !p->settings[setting].path) {
    uses[setting] = true;
    return true;
  }
  if (study_given_find(p, name)) return true;
  if (setting > 0) return err_set(err, "{%s}: that setting is found in records, so that no command can have it", name);
  const char *names[STUDY_MAX_SETTINGS + 1] = {0};
  for (int i = 1; i < p->num_settings; i++) names[i - 1] = p->settings[i].name;
  return err_set(err, "{%s} is neither a setting nor a given%s; the shell's own braces are written {{%s}", name,
                 study_meant(name, names), name);
}

bool study_template_check(const StudyPlan *p, const char *text, bool uses[STUDY_MAX_SETTINGS], Err *err) {
  char name[NAME];
  for (const char *at = text; (at = strchr(at, '{'));) {
    const char *end = at[1] == '{' ? NULL : placeholder(text, at, name);
    if (end ? !check_name(p, name, uses, err) : at[1] != '{' && !check_open(p, text, at, err)) return false;
    at = end ? end : at + 1 + (at[1] == '{');
  }
  return true;
}

char *study_template_expand(const StudyPlan *p, const char *text, StudyFill fill) {
  char name[NAME], *result;
  size_t size;
  FILE *f = text_open(&result, &size);
  for (const char *at = text; *at;) {
    const char *end = *at == '{' && at[1] != '{' ? placeholder(text, at, name) : NULL;
    if (!end) {
      fputc(*at, f);
      at += 1 + (at[0] == '{' && at[1] == '{');
      continue;
    }
    at = end;
    const int s = study_setting_find(p, name);
    const StudyGiven *given = study_given_find(p, name);
    if (!strcmp(name, "repeat"))
      fprintf(f, "%d", fill.repeat);
    else if (!strcmp(name, "out"))
      fputs(fill.out, f);
    else if (!strcmp(name, "study"))
      fputs(fill.study, f);
    else if (given)
      fputs(given->value, f);
    else if (fill.swept && s == study_swept(p, fill.cell))
      fputs(fill.swept, f);
    else if (s >= 0 && fill.cell->value[s] >= 0)
      fputs(p->settings[s].values[fill.cell->value[s]].text, f);
  }
  text_close(f);
  return result;
}

char *study_template_kept(const StudyPlan *p, const StudyCell *cell, int repeat) {
  const StudyCommand *c = &p->commands[cell->value[STUDY_COMMAND]];
  char *swept = c->sweep ? xasprintf("{%s}", p->settings[c->sweep].name) : NULL;
  char *text = study_template_expand(p, c->run, (StudyFill){cell, repeat, "{out}", "{study}", swept});
  free(swept);
  return text;
}
