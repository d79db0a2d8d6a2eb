// The ranks of a run as processes of a test, which meet over TCP on this host.
#pragma once
#include <stdbool.h>
#include "comm/comm.h"

typedef void RankWork(Comm *c, void *context);

// Forks `world` ranks, each of which does the work with one thread; of one, c is NULL. Checks of the harness that fail
// in a rank are printed by it and end it with 3. Returns the largest exit status, 128 + the signal's number where one
// ended a rank; `said`, where it is not NULL, is all that the ranks wrote to stderr, valid until the next call.
int run_ranks(int world, RankWork *work, void *context, const char **said);
// Expects of every rank that it ends with 0 and says nothing.
void expect_ranks(int world, RankWork *work, void *context);

// Runs `run` on each of so many ranks; whether it was true on all of them. World 1: no Comm, and no process either.
bool true_on_ranks(int world, bool (*run)(Comm *c, void *context), void *context);
