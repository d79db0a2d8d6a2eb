// Commands with placeholders: "{batch}" is the text of a setting's value, of a given, the repeat, or a folder.
#pragma once
#include "tools/study/plan.h"

// Marks in `uses` the settings whose placeholders stand in the text. False when one is of nothing, which err then says.
bool study_template_check(const StudyPlan *p, const char *text, bool uses[STUDY_MAX_SETTINGS], Err *err);
// The text for a setting. out, study: what stands for {out} and {study}. malloc'ed.
char *study_template_expand(const StudyPlan *p, const char *text, const StudyCell *cell, int repeat, const char *out,
                            const char *study);
