// Jobs of several ranks as a user starts them: programs in a folder of test_tmp(), what they say, which processes are
// there, and what is left of them.
#pragma once
#include <stdbool.h>
#include <sys/types.h>

// A file of the folder.
const char *rank_job_file(const char *out, const char *file);
// Eight steps of two ranks, unless `more` says otherwise; a checkpoint after every second. `program`: train or
// faulty/train, whose GPUs are stand-ins. The exit status.
int rank_job_run(const char *program, const char *env, const char *out, const char *more, const char **said);
// The same in the background; what it says goes to OUT.said.
pid_t rank_job_start(const char *program, const char *env, const char *out, const char *more);
int rank_job_end(pid_t pid);          // waits for it: the exit status, or minus the signal
char *rank_job_said(const char *out); // of job_start; the caller frees it
// Its processes, at most `room` of them, by number.
int rank_job_processes(const char *out, pid_t *pid, int room);
// Waits until it has so many processes and the checkpoint of step `step` or a later one.
bool rank_job_reaches(const char *out, int processes, long step);
// The folder of the run that nobody interrupts, made once.
const char *rank_job_whole(const char *program);

int text_count(const char *text, const char *what);
void expect_no_process(const char *out); // ten seconds are what the last may take
// Exactly one line begins with the program's name: the one that says why.
void expect_one_reason(const char *said, const char *reason);
void expect_same_run(const char *out, const char *whole);
