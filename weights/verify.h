// Whether a weights file is as it was written: its metadata hold digests of its header and of every tensor.
//
// "digests" are those of the tensors in the order of the header, "digest", the first key, is that of the header and of
// what stands before it, without the digest's own digits. A file is ours if its metadata have a key of ours, and then
// needs digests, so that damage to the keys is found, too. Files of format 1 had none yet.
#pragma once
#include "weights/checkpoint.h"

static const char digest_key[] = "digest", digests_key[] = "digests";
// Keys of our files' metadata, besides "config.<field>" and a "format" that begins with maskrcnn.c; the last is NULL.
extern const char *const verify_keys[];

// The digest of a file's bytes before `end` without the digits that begin at `at`.
uint64_t verify_digest(const unsigned char *file, size_t at, size_t end);

// Compares a header that has been parsed with its digest, and sets the digests of the tensors, which are still in the
// header's order. A file of ours of format 1 without digests gets a note; another program's is taken as it is.
bool verify_header(Checkpoint *c, const char *path, Err *err);
// Compares the tensors with their digests, on all cores.
bool verify_tensors(const Checkpoint *c, const char *path, Err *err);
