// What --split means for weights whose training held out a part of its data (data/batches/holdout.h): val and train are
// then the two sides of that data; other names are splits on disk.
#pragma once
#include "data/batches/holdout.h"
#include "inference/infer_task.h"

typedef struct HeldOut {
  bool used;         // false: --split is a split on disk
  Holdout holdout;   // …
  HoldoutUse use;    // for opening the data
  const char *split; // the split on disk to open
} HeldOut;

// Of annotations named by --val-json all images are used unless --split is given, too. Exits if the weights cannot be
// read.
void held_out_find(HeldOut *h, const InferRun *run);
// Prints which images are used, on the rank that prints.
void held_out_print(const HeldOut *h, const InferRun *run, int images);
// Ends the program, by a message that says why training data are opened.
NORETURN void held_out_die(const HeldOut *h, const InferRun *run, const char *why);
// The same where the split to open is not in --data.
NORETURN void held_out_die_absent(const HeldOut *h, const InferRun *run, const char *why);
void held_out_free(HeldOut *h);
