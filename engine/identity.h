// The identity of a run: everything that decides the weights of a step but is not in the model's configuration, as one
// JSON object of numbers, strings and booleans (training/identity.c makes it). A checkpoint holds that of its run.
#pragma once
#include "base/error.h"
#include "base/record.h"

// Whether a run goes on as the one that it resumes; false names the first difference and what to do,
// which depends on whether it is among the members that may be amended; NULL at the end.
bool identity_same(const char *was, const char *is, const char *const *amendable, Err *err);

// Whether two ranks of one run have the same identity; false names the first difference. As comm_agree calls it.
bool identity_agrees(const char *of_first, const char *other, Err *err);

// A number of a run's identity; false where it has none of that name.
bool identity_number(const char *identity, const char *name, double *value);

// Whether a run may go on otherwise than it began: only `amendable` members differ, and a step has as many images. Adds
// to `changes` a member for each difference, "lr":[0.01,0.005]; false names the first that may not be.
bool identity_amend(const char *was, const char *is, const char *const *amendable, Record *changes, Err *err);
