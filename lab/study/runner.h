// One run of a command by sh, in a process group of its own that does not outlive this program.
#pragma once
#include "base/error.h"

typedef struct StudyOutcome {
  int exit, signal; // exit status; the signal that ended it, 0: none
  bool late;        // it took longer than it may, and was ended
  bool interrupted; // this program was asked to end (base/interrupt.h), and ended it
  double seconds;
} StudyOutcome;

// Standard output and error go to files; there is no input. Waits for its end. On `timeout` seconds or an interrupt all
// of its processes get SIGTERM, and SIGKILL ten seconds later; when this program is killed, SIGKILL. False when it
// cannot be started.
bool study_run(const char *command, const char *out, const char *errors, double timeout, StudyOutcome *o, Err *err);
