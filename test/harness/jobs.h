// Runs tests in several processes at a time.
#pragma once
#include <stdbool.h>
#include "test/harness/test.h"

typedef enum Outcome { PASSED, FAILED, SKIPPED, OUTCOMES } Outcome;

typedef struct Verdict {
  Outcome outcome;
  char first[512]; // the first failure
} Verdict;

// Forks `jobs` processes, each with a scratch folder of its own, which take the tests in turn: those of higher tiers
// first, because they take longest, and at the end, one at a time, those of the GPU. What a test prints, to stdout and
// stderr, is printed to stdout when it has ended. A process that crashes or hangs fails its test, and another goes on.
// Hangup, interrupt and termination end all processes and the program, and remove the scratch folder. Returns false,
// having said why, when a process fails after its tests, as by a leak.
bool jobs_run(Test **tests, int count, int jobs, void (*run)(const Test *t, Verdict *v), Verdict *verdicts);

// In main.c. Scratch folders, one inside the other: of the program, of a process of it, of a test. What is the
// process's from here on lies in what was so far.
void tmp_create(void);
void tmp_set_process(int process);
void tmp_remove(void);
