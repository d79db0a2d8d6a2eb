// Studies as tests run them: plans and what comes of them in a folder of the test's own.
#pragma once
#include "test/harness/test.h"

const char *study_tmp(void);                               // the folder, which is there
const char *study_put(const char *name, const char *text); // writes a file there; its path, until four more calls
char *study_text(const char *folder, const char *name);    // a file of a study there; "" where it is not. malloc'ed
int count_of(const char *text, const char *what);          // how often it occurs
// The plan's study in `folder` there; what it says is kept in *said, until the next command. Returns its exit status.
int study_of(const char *plan, const char *folder, const char *options, const char **said);

void expect_in(const char *text, const char *what, const char *file, int line);
#define EXPECT_IN(text, what) expect_in(text, what, __FILE__, __LINE__)
