// A plan as text: sections of lines "name: value". What the values mean is lab/study/plan.h's.
#pragma once
#include "base/error.h"

typedef struct StudyLine {
  const char *key; // NULL: the line is a row, as in [skip]
  char *value;     // without comments and blanks around it
  int line;        // of the file, from 1
} StudyLine;

typedef struct StudySection {
  const char *kind; // "setting"; "plan" for the lines before the first section
  char *name;       // NULL: the kind has none
  int line;
  StudyLine *lines;
  int num_lines;
  size_t cap;
} StudySection;

typedef struct StudyText {
  const char *path;
  char *text; // as it stands in the file
  StudySection *sections;
  int num_sections;
  size_t cap;
} StudyText;

// `path` stays the caller's. False with FILE:LINE and what is wrong: sections and names that are not or come twice.
// Release with study_text_free in any case.
bool study_text_read(StudyText *t, const char *path, Err *err);
void study_text_free(StudyText *t);

// NULL: the section has no such line.
const StudyLine *study_line(const StudySection *s, const char *key);
// "PATH:LINE: …" into err. Returns false.
bool study_fail(const StudyText *t, int line, Err *err, const char *fmt, ...) PRINTF_LIKE(4, 5);
// The name among `names` (the last is NULL) that somebody may have meant by `typed`, as ", did you mean X?"; "" where
// none is near. Static memory, until the next call.
const char *study_meant(const char *typed, const char *const *names);

// The next piece of *rest up to `separator` outside of double quotes, without blanks around it, in place; *rest NULL:
// that was the last. NULL: there is none. Quotes stay.
char *study_split(char **rest, char separator);
bool study_is_name(const char *text); // letters, digits and _, begins with a letter
