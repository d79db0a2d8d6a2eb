// A list of batch sizes, for --batches.
#pragma once
#include "base/error.h"

enum { MAX_BATCHES = 64, LARGEST_BATCH = 1024 };
typedef struct BatchList {
  int n;
  int size[MAX_BATCHES];
} BatchList;

// Numbers separated by commas. An ellipsis, "…" or "...", stands for the numbers between its neighbours: the two before
// it begin a geometric progression, as in 1,2,…,128, or otherwise an arithmetic one, as in 20,30,…,80, and the number
// after it must be part of that. False with an error.
bool batch_list_parse(BatchList *l, const char *text, Err *err);
