// The identity of a run: everything that decides the weights of a step but is not in the model's configuration, as one
// JSON object of numbers, strings and booleans (setup_identity makes it). A checkpoint holds that of its run.
#pragma once
#include "base/error.h"
#include "base/record.h"

// Whether a run goes on as the one that it resumes; false names the first difference and what to do.
bool identity_same(const char *was, const char *is, Err *err);

// Whether two ranks of one run have the same identity; false names the first difference. As comm_agree calls it.
bool identity_agrees(const char *of_first, const char *other, Err *err);

// A number of a run's identity; false where it has none of that name.
bool identity_number(const char *identity, const char *name, double *value);

// Whether a run may go on otherwise than it began: only how it learns, for how long and on how many ranks differs, with
// as many images a step, not its data, its order or its arithmetic but for the order of sums over ranks. Adds to
// `changes` a member for each difference, "lr":[0.01,0.005]; false names the first that may not be.
bool identity_amend(const char *was, const char *is, Record *changes, Err *err);
