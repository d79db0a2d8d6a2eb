// The files in a training run's folder, each on disk before another depends on it: log.jsonl with evaluations among its
// records, checkpoints, the final model. Scores are computed and checkpoints written while steps continue.
#pragma once
#include "base/log.h"
#include "training/best.h"
#include "training/saver.h"
#include "training/scoring.h"

typedef struct RunFiles { // zero-initialise
  const char *folder;
  char *checkpoint, *previous, *final;     // paths
  char *evaluated;                         // a name for the state that is being scored
  int keep;                                // how many checkpoints are also kept under their steps' numbers
  const char *run, *trained_on, *held_out; // for RunState
  int64_t warmup;                          // for best_open
  double least_score;                      // for ReportTo
  DrawFolder page;                         // …
  Log log;
  Scoring scoring;
  Saver saver;
  char *numbered;       // numbered name of the state being saved; NULL = none
  const char *links[3]; // all its further names
  bool rotates;         // the last checkpoint becomes `previous`
  Best best;
  unsigned best_due;     // bits of best_take whose files are still to be named
  bool is_taken;         // the best has taken the scores that are under way
  bool is_retrying;      // best_due: the disk was full at the first try
  int64_t newest, older; // steps of checkpoint and previous; -1 = none
  bool newest_is_good;   // judged by the next step's loss: a bad checkpoint does not become `previous`
  double usual_loss;     // the largest loss of the first steps
  int seen;              // number of these steps so far
  char kept[2048];       // for messages: which files a failing run leaves behind
} RunFiles;

// Sets the paths. The folder's name must outlive them.
void files_name(RunFiles *f, const char *folder);
// Sets `kept`: what a run that fails leaves in its folder, by the files that exist.
void files_describe(RunFiles *f, char *text, size_t room);
// Makes the folder if necessary, locks it for this run, and removes unfinished files of a killed run. False, too, where
// there are files that the run would replace and that another program wrote, unless `force` (base/own_files.h). A run
// that `resumes` makes some of its files anew where they are damaged, so that these may hold anything.
bool files_lock(const RunFiles *f, bool resumes, bool force, Err *err);
// Opens the log of a run that begins at step `first`, from the checkpoint or, if `rolled_back`, from the previous one,
// which replaces it; -1: from scratch. `run` is not copied. task NULL: nothing is evaluated.
bool files_open(RunFiles *f, const char *run, int64_t first, bool rolled_back, const Task *task, Err *err);

// Logs the record of a step.
void files_record_step(RunFiles *f, const Engine *e, int64_t step, double rate, const StepResult *s);
// Takes the state after `step`, whose records are in the log, and writes it while steps continue; first finishes a save
// in progress. It is written once earlier evaluations have their scores in the log, also without blocking steps. The
// state of an evaluation is saved with `evaluated`, before files_score: it may turn out to be the best. False if the
// earlier save failed.
bool files_save(RunFiles *f, Engine *e, int64_t step, bool evaluated, Err *err);
// Whether a save is in progress for which files_save would have to wait.
bool files_saving(const RunFiles *f);
// Uses the checkpoint from which the run continues as the state of an evaluation.
bool files_reuse(RunFiles *f, Err *err);
// Scores the results of an evaluation after `step`, which began at `start`, on `cores` cores while steps continue, or
// synchronously if that is 0; first finishes scoring in progress. `before` as in scoring_start.
bool files_score(RunFiles *f, const Task *task, const Dataset *d, void *results, int cores, int64_t step, double start,
                 const Metrics *before, Err *err);
// Between two steps: finishes what has completed in the background, without waiting. False if it failed.
bool files_poll(RunFiles *f, Err *err);
// Waits until nothing is in progress. False if something failed.
bool files_settle(RunFiles *f, Err *err);
// The step of the last checkpoint, which may still be being written; -1: there is none.
int64_t files_last(const RunFiles *f);
// For a program that fails: waits for the checkpoint that is being written, so that it is not lost; `kept` then
// mentions it.
void files_wait(RunFiles *f);
// Writes the final model, weights only. Nothing may be in progress.
bool files_export(const RunFiles *f, Engine *e, int64_t step, Err *err);
void files_free(RunFiles *f);
