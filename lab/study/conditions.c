// Conditions on settings, and the cells that they lead to.
#include <math.h>
#include <string.h>
#include "lab/study/plan.h"

static const uint64_t any = ~0ull;

static bool read_condition(StudyConditions *c, const StudyPlan *p, char *piece, Err *err) {
  char *values = strchr(piece, '='), *value;
  if (!values) return err_set(err, "expected SETTING=VALUE, not \"%.100s\"", piece);
  *values++ = '\0';
  const int s = study_setting_find(p, piece);
  if (s < 0) {
    const char *names[STUDY_MAX_SETTINGS + 1] = {0};
    for (int i = 0; i < p->num_settings; i++) names[i] = p->settings[i].name;
    return err_set(err, "there is no setting %.100s%s", piece, study_meant(piece, names));
  }
  const StudySetting *setting = &p->settings[s];
  if (setting->path) return err_set(err, "%s is found in records; conditions are on settings with values", piece);
  if (c->allowed[s] != any) return err_set(err, "%s is there twice", piece);
  c->allowed[s] = 0;
  while ((value = study_split(&values, ','))) {
    const int v = study_value_find(setting, value);
    if (v < 0) {
      const char *names[STUDY_MAX_VALUES + 1] = {0};
      for (int i = 0; i < setting->num_values; i++) names[i] = setting->values[i].name;
      return err_set(err, "the setting %s has no value %.100s%s", piece, value, study_meant(value, names));
    }
    c->allowed[s] |= 1ull << v;
  }
  return true;
}

bool study_conditions_read(StudyConditions *c, const StudyPlan *p, char *text, Err *err) {
  char *piece;
  bool some = false;
  memset(c->allowed, 0xff, sizeof c->allowed);
  while ((piece = study_split(&text, ' '))) {
    if (!*piece) continue;
    some = true;
    if (!read_condition(c, p, piece, err)) return false;
  }
  return some || err_set(err, "expected SETTING=VALUE");
}

bool study_conditions_read_one(StudyConditions *c, const StudyPlan *p, char *text, Err *err) {
  if (!study_conditions_read(c, p, text, err)) return false;
  for (int s = 0; s < p->num_settings; s++)
    if (study_conditions_name(c, s) && __builtin_popcountll(c->allowed[s]) > 1)
      return err_set(err, "several values of %s: a figure is at one of them, NAME[%s=%s]", p->settings[s].name,
                     p->settings[s].name, p->settings[s].values[__builtin_ctzll(c->allowed[s])].name);
  return true;
}

bool study_conditions_name(const StudyConditions *c, int setting) {
  return c->allowed[setting] != any && c->allowed[setting] != 0;
}

bool study_conditions_hold(const StudyConditions *c, const StudyPlan *p, const StudyCell *cell) {
  for (int s = 0; s < p->num_settings; s++)
    if (study_conditions_name(c, s) && (cell->value[s] < 0 || !(c->allowed[s] >> cell->value[s] & 1))) return false;
  return true;
}

StudyCell study_cell_at(const StudyPlan *p, const StudyCell *cell, const StudyConditions *c) {
  StudyCell out = *cell;
  for (int s = 0; s < p->num_settings; s++)
    if (study_conditions_name(c, s)) out.value[s] = __builtin_ctzll(c->allowed[s]);
  for (int s = 0; s < p->num_settings; s++)
    if (!p->commands[out.value[STUDY_COMMAND]].uses[s]) out.value[s] = -1;
  return out;
}

bool study_cell_same_run(const StudyPlan *p, const StudyCell *a, const StudyCell *b) {
  bool same = true;
  for (int s = 0; same && s < p->num_settings; s++) same = p->settings[s].path || a->value[s] == b->value[s];
  return same;
}

bool study_cell_equal(const StudyPlan *p, const StudyCell *a, const StudyCell *b) {
  return !memcmp(a->value, b->value, (size_t)p->num_settings * sizeof a->value[0]);
}
