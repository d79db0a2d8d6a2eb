// What a training run leaves in its folder, each thing on disk before another follows from it: log.jsonl, evaluations
// among its records, checkpoints, the final model. Scores are computed and checkpoints written beside the steps.
#pragma once
#include "base/log.h"
#include "training/best.h"
#include "training/saver.h"
#include "training/scoring.h"

typedef struct RunFiles { // zero-initialise
  const char *folder;
  char *checkpoint, *previous, *final; // paths
  char *evaluated;                     // a name of the state that is being scored
  int keep;                            // how many checkpoints also stay under their steps' numbers
  const char *run, *trained_on;        // of RunState
  int64_t warmup;                      // of best_open
  double least_score;                  // of ReportTo
  DrawFolder *draw;                    // …
  Log log;
  Scoring scoring;
  Saver saver;
  char *numbered;       // name of the state under way; NULL = none
  const char *links[3]; // all its further names
  bool rotates;         // the checkpoint before it becomes `previous`
  Best best;
  unsigned best_due;     // bits of best_take whose file waits for the state to be written
  int64_t newest, older; // steps of checkpoint and previous; -1 = none
  bool newest_is_good;   // as far as the step after it tells: one that is not does not become `previous`
  double usual_loss;     // the largest of the first steps
  int seen;              // how many of these there were
  char kept[512];        // for messages: what a failure leaves
} RunFiles;

// The paths. The folder's name must outlive them.
void files_name(RunFiles *f, const char *folder);
// What a run that fails leaves in its folder, by its files: as `kept`.
void files_describe(RunFiles *f, char *text, size_t room);
// Makes the folder, if need be, and this run's alone, and removes what a killed one had not finished.
bool files_lock(const RunFiles *f, Err *err);
// Opens the log of a run that begins at step `first`, taken from the checkpoint or, `rolled_back`, from the one before
// it, which takes its place; -1: from scratch. `run` is not copied. task NULL: nothing is evaluated.
bool files_open(RunFiles *f, const char *run, int64_t first, bool rolled_back, const Task *task, Err *err);

// The record of a step.
void files_record_step(RunFiles *f, const Engine *e, int64_t step, double rate, const StepResult *s);
// Takes the state after `step`, whose records are in the log, and has it written beside the steps that follow; a save
// that is under way ends first. Scores of earlier evaluations, which the log of a checkpoint holds, are waited for
// beside the steps, too. The state of an evaluation is saved with `evaluated`, before files_score: it may turn out to
// be the best. False when that earlier save failed.
bool files_save(RunFiles *f, Engine *e, int64_t step, bool evaluated, Err *err);
// Whether a save is under way that files_save would have to wait for.
bool files_saving(const RunFiles *f);
// The state that the run goes on from is that of an evaluation.
bool files_reuse(RunFiles *f, Err *err);
// Has results of an evaluation after `step`, which began at `start`, scored on `cores` cores beside the steps that
// follow, or here where that is 0; scores that are under way end first. `before` as in scoring_start.
bool files_score(RunFiles *f, const Task *task, const Dataset *d, void *results, int cores, int64_t step, double start,
                 const Metrics *before, Err *err);
// Between two steps: takes what has come to its end beside them, and waits for nothing. False when it failed.
bool files_poll(RunFiles *f, Err *err);
// Waits until nothing is under way. False when something failed.
bool files_settle(RunFiles *f, Err *err);
// The step of the last checkpoint, which may still be under way; -1: there is none.
int64_t files_last(const RunFiles *f);
// For a program that fails: waits for the checkpoint that is being written, so that it is not lost; `kept` says so.
void files_wait(RunFiles *f);
// Writes the final model, weights alone. Nothing may be under way.
bool files_export(const RunFiles *f, Engine *e, int64_t step, Err *err);
void files_free(RunFiles *f);
