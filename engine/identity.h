// The identity of a run: everything that determines the weights of a step apart from the model's configuration, as a
// JSON object of numbers, strings and booleans (made by training/identity.c). A checkpoint stores that of its run.
#pragma once
#include "base/error.h"
#include "base/record.h"

// Whether a run is the same as the one that it resumes; false with a message that names the first difference and what
// to do, which depends on whether it is one of the members that may be amended: amendable ends with NULL.
bool identity_same(const char *was, const char *is, const char *const *amendable, Err *err);

// Whether a run of version 1.1 or older has it, which can no longer be resumed.
bool identity_is_older(const char *identity);

// Whether two ranks of one run have the same identity; false with a message that names the first difference. A CommSame
// function for comm_agree.
bool identity_agrees(const char *of_first, const char *other, Err *err);

// A number in a run's identity; false if there is none of that name.
bool identity_number(const char *identity, const char *name, double *value);
// The same for a boolean.
bool identity_flag(const char *identity, const char *name, bool *value);

// A text in a run's identity, malloc'ed; NULL: there is none of that name.
char *identity_text(const char *identity, const char *name);

// Whether a run may continue with these changes: only `amendable` members differ, and a step has as many images. Adds a
// member to `changes` for each difference, "lr":[0.01,0.005]; false, with a message that names the first difference
// that is not allowed.
bool identity_amend(const char *was, const char *is, const char *const *amendable, Record *changes, Err *err);
