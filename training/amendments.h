// What was changed on the way: a run's records of kind "amend", which --amend and a rollback leave.
#pragma once
#include <stdint.h>

// step: after which it holds. changes: an object as text, the old and the new value of each member.
typedef void AmendmentFn(void *context, int64_t step, const char *changes);
// Calls `each` for those of a log.jsonl, in their order; none of one that cannot be read.
void amendments_read(const char *path, AmendmentFn *each, void *context);
