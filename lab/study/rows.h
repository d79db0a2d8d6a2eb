// What runs have given: the lines of results.jsonl, and the values that measures read from their records.
#pragma once
#include "lab/study/cells.h"

typedef enum StudyState { STUDY_OK, STUDY_NO_VALUE, STUDY_OUT_OF_MEMORY, STUDY_FAILED } StudyState;
extern const char *const study_states[]; // as they are written; the last is NULL

typedef struct StudyRow {
  StudyCell cell; // what is found in records included
  int repeat;
  StudyState state;
  char *why;      // of one that is not ok; NULL: nothing is known
  char *ran;      // the command, as study_template_kept has it
  char *swept;    // the text of the value that it swept; NULL: it swept none, or the line does not say
  double seconds; // NaN: its share of a sweep that failed, which nobody knows
  char *line;     // as it stands in the file
  char **records; // that the command has printed, of those the ones that are kept
  int num_records;
  double *values; // by measure; NaN: computed, of other commands, or not there
  char *machine;  // processor, GPUs, driver and toolkit
  char *commit;   // of the build that was measured
  const char *file;
  int number; // of the line
} StudyRow;

typedef struct StudyLeft {
  StudyCell cell;
  int repeat;
} StudyLeft;

typedef struct StudyRows {
  StudyRow *rows;
  int num_rows;
  size_t cap;
  StudyLeft *left; // without figures by a sweep that failed: they run by themselves
  int num_left;
  size_t cap_left;
  int changed;   // rows of the study's own that study_row_changed
  int of_others; // lines whose command, setting or value the plan does not have
} StudyRows;

// Adds the runs of a file; of a cell and repeat that come twice in it the last counts, and lines that are there already
// are left out. Values of settings that are found are added to the plan. A last line that a kill has cut is left out.
// path: stays the caller's.
bool study_rows_read(StudyRows *r, StudyPlan *p, const char *path, Err *err);
void study_rows_free(StudyRows *r);
// Puts the values that were found in the order of their names, numbers in them as numbers (strverscmp).
void study_rows_sort_values(StudyRows *r, StudyPlan *p);
// Leaves out the rows that `drop` is true for.
void study_rows_drop(StudyRows *r, const StudyPlan *p, bool (*drop)(const StudyPlan *p, const StudyRow *row));
// Whether the plan would run the row by another command, or by another text of the value that it swept.
bool study_row_changed(const StudyPlan *p, const StudyRow *row);

// Whether the record is of the cell: all are, but of a sweep those alone that have the swept setting's value as their
// member of its name.
bool study_record_is_of(const StudyPlan *p, const StudyCell *cell, const char *record);
// The value of a measure that is read, from the records of one run; NaN, and why in err, where there is none.
double study_measure_value(const StudyPlan *p, int measure, const StudyCell *cell, int repeat, char *const *records,
                           int num_records, double seconds, Err *err);
// The record, by index, that a measure is read from; -1: none.
int study_measure_record(const StudyPlan *p, int measure, const StudyCell *cell, int repeat, char *const *records,
                         int num_records);
