// A list of batch sizes, as --batches has it.
#pragma once
#include "base/error.h"

enum { MAX_BATCHES = 64, LARGEST_BATCH = 1024 };
typedef struct BatchList {
  int n;
  int size[MAX_BATCHES];
} BatchList;

// Numbers with commas between them. An ellipsis, "…" or "...", stands for those between its neighbours: the two before
// it begin a geometric progression, as in 1,2,…,128, or else an arithmetic one, as in 20,30,…,80, on which the number
// behind it lies. False with what is wrong.
bool batch_list_parse(BatchList *l, const char *text, Err *err);
