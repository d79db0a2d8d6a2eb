// The log of a run: progress for people on stderr, records for machines in DIR/log.jsonl, one JSON object a line.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "base/error.h"
#include "base/record.h"

typedef struct Progress {
  int64_t step, steps; // steps done, and to be done in all
  int64_t images;      // seen since this process started
  double loss;         // total of the step last read back
  double learning_rate;
} Progress;

typedef struct Lines { // of the log, each with its newline
  char *text;
  size_t bytes, cap;
} Lines;

typedef struct Log {
  double images_per_second, steps_per_second; // running means over about ten seconds; 0 until known
  FILE *people;                               // stderr
  bool terminal;                              // it is one: a single line is kept up to date
  int file;                                   // log.jsonl, for reading its state and fsync; -1: no records are kept
  char *path;                                 // its name; NULL: no records are kept
  int64_t length;                             // of the records in it, in bytes
  bool is_torn;                               // bytes of a write that failed could not be cut off
  Record record;
  bool line_open;       // the terminal shows a progress line that has no newline yet
  double opened;        // now_seconds() at log_open
  int64_t session;      // the step that the run resumes at; 0 of a fresh one
  double last_seen;     // when the last report that counts for the speeds came, and
  double last_shown;    // when one was last printed: now_seconds(), 0 = never
  int64_t images, step; // of that report
  int64_t evaluated;    // step of the last "eval" record that log_open kept, or -1
  bool holding;
  Lines held;      // wait behind the next one
  Lines unwritten; // wait until they can be written
} Log;

// Opens DIR/log.jsonl, which must not be open elsewhere, and keeps those of its records that belong to steps ≤ resume,
// as log_keep of base/log_kept.h does. If another program replaces, moves, cuts or extends it later, a note says so,
// and no record that it left is lost. A fresh run passes resume = -1: nothing is kept. dir NULL: no records (all ranks
// but the first). Write what belongs to a step before the checkpoint of that step, and it is kept.
bool log_open(Log *log, const char *dir, int64_t resume, Err *err);
// Whether all records that are not held back are in the file, and tries again to write those that are not; false with
// the reason in errno, too. fsync of log.file then puts them on disk, before a checkpoint that follows from them.
bool log_written(Log *log, Err *err);
// Ends the progress line. False when a record could not be written.
bool log_close(Log *log, Err *err);

// To be called every step: keeps the speeds, and shows a line often enough for people: ten times a second on a
// terminal, every ten seconds elsewhere, and the first and the last step in any case.
void log_progress(Log *log, const Progress *p);
// A line for people that stays, such as an evaluation's result.
void log_note(Log *log, const char *fmt, ...) PRINTF_LIKE(2, 3);

// Starts a record, which begins {"step":STEP,"kind":KIND; add members with record_*, then log_commit. Steps must not
// decrease from one record to the next. A record that cannot be written (the disk is full) is said once, waits in
// memory and is written before the next one that can be; no part of it stays in the file.
Record *log_begin(Log *log, int64_t step, const char *type);
void log_commit(Log *log);

// For a record that takes time to compute while later steps go on: from log_hold to log_release records wait in memory,
// and what waited is written behind the first record that is committed after that.
void log_hold(Log *log);
void log_release(Log *log);
