// What a plan asks for (docs/studies.md is its language): settings and their values, commands, measures, and the views
// of them: tables, plots, and the figures of others.
#pragma once
#include <stdint.h>
#include "lab/study/text.h"

enum { STUDY_MAX_SETTINGS = 16, STUDY_MAX_VALUES = 64, STUDY_MAX_COMMANDS = 64, STUDY_MAX_PATHS = 4 };
enum { STUDY_MOST_CELLS = 100000 }; // combinations of a plan
enum { STUDY_COMMAND = 0 }; // the setting whose values are the commands' names; it is there even if there is one alone

typedef struct StudyValue {
  char *name, *text; // as it stands in tables, and in commands
  double number;     // that the name is; NaN: it is none
} StudyValue;

typedef struct StudySetting {
  const char *name, *label, *unit; // unit: NULL where there is none
  StudyValue *values;
  int num_values;
  size_t cap;
  const char *path; // its values are found in records, here, and added as they come; NULL: it is crossed
  int line;
} StudySetting;

// One combination: for each setting an index of its values; -1: the command has no use for the setting, or, of one that
// is found, nothing is known.
typedef struct StudyCell {
  int value[STUDY_MAX_SETTINGS];
} StudyCell;

// For each setting the values that are meant, a bit each; all bits: any. StudyConditions that are all zero are none.
typedef struct StudyConditions {
  uint64_t allowed[STUDY_MAX_SETTINGS];
} StudyConditions;

// Arithmetic over measures, a list in the order in which a stack machine computes: lab/study/expression.h.
typedef enum StudyTermKind {
  TERM_NUMBER,
  TERM_SETTING,   // the number that the value's name is
  TERM_MEASURE,   // its mean
  TERM_LEAST,     // of its runs
  TERM_MOST,      //
  TERM_RUNS,      // how many there are
  TERM_PUBLISHED, // of a block
  TERM_NEGATE,    // the last value
  TERM_ADD,       // the last two, and so the others
  TERM_SUBTRACT,
  TERM_MULTIPLY,
  TERM_DIVIDE,
} StudyTermKind;

typedef struct StudyTerm {
  StudyTermKind kind;
  double number;
  int index, block;    // of the setting or measure; of the published figures
  StudyConditions *at; // where else the measure is taken; NULL: in the cell itself
} StudyTerm;

typedef struct StudyExpression {
  StudyTerm *terms;
  int num_terms, depth; // depth: values on the stack at most
  size_t cap;
} StudyExpression;

typedef struct StudyCommand {
  const char *name, *label, *run, *prepare; // prepare: NULL where there is nothing to
  double timeout;                           // seconds
  int sweep;                                // the setting of which it takes all values at once; STUDY_COMMAND: none
  bool uses[STUDY_MAX_SETTINGS];            // the placeholders that stand in run
  int line;
} StudyCommand;

typedef struct StudyMember {
  const char *path, *value; // value: with placeholders
} StudyMember;

typedef struct StudyMeasure {
  const char *name, *label, *unit; // unit: NULL where there is none
  bool computed;                   // from `value`; else read
  StudyExpression value;
  const char *paths[STUDY_MAX_PATHS]; // the first that a record has counts
  int num_paths;
  StudyMember *where;
  int num_where;
  size_t cap;
  uint64_t of; // commands that have it, a bit each
  int better;  // 1: higher, -1: lower, 0: neither
  int digits;  // behind the point; -1: as many as the error has
  int line;
} StudyMeasure;

typedef struct StudyShown {
  int measure;
  StudyConditions at; // for these alone
} StudyShown;

typedef struct StudyShows {
  StudyShown *items;
  int n;
  size_t cap;
} StudyShows;

typedef struct StudyTable {
  const char *name, *title;
  int rows[STUDY_MAX_SETTINGS], num_rows, columns[STUDY_MAX_SETTINGS], num_columns;
  int best[STUDY_MAX_SETTINGS], num_best; // settings among whose values the best is named
  StudyShows shows;
} StudyTable;

typedef struct StudyPlot {
  const char *name, *title;
  int x, panels; // settings; panels: -1 for none
  StudyShows y;
  bool log_x, log_y, bars;
} StudyPlot;

typedef struct StudyPublishedRow {
  StudyCell cell;       // -1: any
  const char **figures; // by measure, as they are written; NULL: none
} StudyPublishedRow;

typedef struct StudyPublished {
  const char *name, *label;
  StudyPublishedRow *rows;
  int num_rows;
  size_t cap;
} StudyPublished;

typedef struct StudyGiven {
  const char *name;
  char *value;
} StudyGiven;

typedef struct StudyPlan {
  StudyText text;
  const char *title, *about; // about: NULL where nothing is said
  int repeats;
  int64_t seed;
  double timeout;
  StudyGiven *givens;
  StudySetting *settings; // [0]: the commands
  StudyCommand *commands;
  StudyMeasure *measures;
  StudyTable *tables;
  StudyPlot *plots;
  StudyPublished *published;
  StudyConditions *skips;
  int num_givens, num_settings, num_commands, num_measures, num_tables, num_plots, num_published, num_skips;
} StudyPlan;

// `path` and `set` stay the caller's. set: "NAME=VALUE …" in place of givens, or NULL. False with FILE:LINE and what is
// wrong. Release with study_plan_free in any case.
bool study_plan_read(StudyPlan *p, const char *path, const char *set, Err *err);
void study_plan_free(StudyPlan *p);

int study_setting_find(const StudyPlan *p, const char *name); // -1: none
int study_measure_find(const StudyPlan *p, const char *name);
int study_published_find(const StudyPlan *p, const char *name);
int study_value_find(const StudySetting *s, const char *name);
const StudyGiven *study_given_find(const StudyPlan *p, const char *name); // NULL: none
// A number and its text are equal however the number is written.
bool study_same_value(const char *a, const char *b);
int study_value_add(StudySetting *s, const char *name, const char *text); // its index
int study_swept(const StudyPlan *p, const StudyCell *cell); // the setting that its command sweeps; STUDY_COMMAND: none
// The value's name; "–" for -1.
const char *study_value_name(const StudyPlan *p, const StudyCell *cell, int setting);

// "gpus=8 batch=8,16", in place. False with what is wrong, without where that is.
bool study_conditions_read(StudyConditions *c, const StudyPlan *p, char *text, Err *err);
// For a figure at another setting: each condition names one value.
bool study_conditions_read_one(StudyConditions *c, const StudyPlan *p, char *text, Err *err);
bool study_conditions_hold(const StudyConditions *c, const StudyPlan *p, const StudyCell *cell);
bool study_conditions_name(const StudyConditions *c, int setting);
// The cell with what the conditions name replaced by the first value that they allow, and -1 for what its command then
// has no use for.
StudyCell study_cell_at(const StudyPlan *p, const StudyCell *cell, const StudyConditions *c);
// The same command and settings, whatever was found in records.
bool study_cell_same_run(const StudyPlan *p, const StudyCell *a, const StudyCell *b);
bool study_cell_equal(const StudyPlan *p, const StudyCell *a, const StudyCell *b);

// Of the block, for the setting; NaN where it has none. The other as it is written, NULL where there is none.
double study_published_figure(const StudyPlan *p, int block, const StudyCell *cell, int measure);
const char *study_published_text(const StudyPlan *p, int block, const StudyCell *cell, int measure);

// Whether any of its rows names the setting; else its figures are of all values.
bool study_published_names(const StudyPlan *p, int block, int setting);

// Parts of study_plan_read: tables, plots and published figures; a table of all where the plan has none.
bool study_views_read(StudyPlan *p, Err *err);
void study_views_free(StudyPlan *p);
