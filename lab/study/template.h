// Commands with placeholders: "{batch}" is the text of a setting's value, of a given, the repeat, or a folder.
#pragma once
#include "lab/study/plan.h"

// Marks in `uses` the settings whose placeholders stand in the text. False when one is of nothing, which err then says.
bool study_template_check(const StudyPlan *p, const char *text, bool uses[STUDY_MAX_SETTINGS], Err *err);
typedef struct StudyFill {
  const StudyCell *cell;
  int repeat;
  const char *out, *study; // what stands for {out} and {study}
  const char *swept;       // and for the setting that the cell's command sweeps; NULL: the cell's own value
} StudyFill;

// malloc'ed.
char *study_template_expand(const StudyPlan *p, const char *text, StudyFill fill);
// The cell's command as results keep it, whatever folder and sweep it ran in: {out}, {study} and the setting that it
// sweeps stand as in the plan. malloc'ed.
char *study_template_kept(const StudyPlan *p, const StudyCell *cell, int repeat);
