// The identity of a run: everything that decides the weights of a step but is not in the model's configuration, as one
// JSON object of numbers, strings and booleans (setup_identity makes it). A checkpoint holds that of its run.
#pragma once
#include "base/record.h"
#include "base/util.h"

// Whether a run goes on as the one that it resumes; false names the first difference and what to do.
bool identity_same(const char *was, const char *is, Err *err);

// Whether a run may go on otherwise than it began: only how it learns and for how long differs, not its data, its order
// or its arithmetic. Adds to `changes` a member for each difference, "lr":[0.01,0.005]; false names the first that may
// not be.
bool identity_amend(const char *was, const char *is, Record *changes, Err *err);
