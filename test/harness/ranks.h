// The ranks of a run as processes of a test, which meet over TCP on this host.
#pragma once
#include <stdbool.h>
#include "comm/comm.h"

typedef void RankWork(Comm *c, void *context);

// Forks `world` ranks, each of which does the work with one thread; of one, c is NULL. Checks of the harness that fail
// in a rank are printed by it and end it with 3. Expects that the largest exit status is `expected`, where 128 + its
// number stands for a signal, and prints each rank's and what they said if it is not. *said: all that the ranks wrote
// to stderr, valid until the next call.
bool run_ranks(int world, RankWork *work, void *context, int expected, const char **said);
// Expects of every rank that it ends with 0 and says nothing.
void expect_ranks(int world, RankWork *work, void *context);

// Runs `run` on each of so many ranks; whether it was true on all of them. World 1: no Comm, and no process either.
bool true_on_ranks(int world, bool (*run)(Comm *c, void *context), void *context);
