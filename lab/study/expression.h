// Arithmetic over measures: "img_s / img_s[gpus=1]". Read into a list in the order in which a stack machine computes.
#pragma once
#include "base/error.h"

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

struct StudyPlan;
struct StudyConditions;

typedef struct StudyTerm {
  StudyTermKind kind;
  double number;
  int index, block;           // of the setting or measure; of the published figures
  struct StudyConditions *at; // where else the measure is taken; NULL: in the cell itself
} StudyTerm;

typedef struct StudyExpression {
  StudyTerm *terms;
  int num_terms, depth; // depth: values on the stack at most
  size_t cap;
} StudyExpression;

// Of measure number `measure`, which may name those before it. False with what is wrong, without where that is.
bool study_expression_read(StudyExpression *e, const struct StudyPlan *p, int measure, const char *text, Err *err);
void study_expression_free(StudyExpression *e);
