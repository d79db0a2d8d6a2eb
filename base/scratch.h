// Memory that a thread takes piece by piece and gives back all at once, and keeps for the next time: once it has met
// the largest of its tasks, it allocates nothing.
#pragma once
#include <stddef.h>
#include "base/error.h"

typedef struct Scratch { // zero-initialise
  char *block;           // where pieces come from
  size_t room, used;
  struct ScratchMore *more; // what did not fit; becomes part of the block at the next reset
  size_t more_bytes;
  size_t lacking; // bytes asked for since the last reset that memory had no room for; 0: none
} Scratch;

// Zeroed, aligned for any type; NULL when there is not enough memory.
void *scratch_take(Scratch *s, size_t bytes);
// A piece of `bytes`, beginning with the `old` bytes of p, of which it takes the place; the rest is not zeroed. p may
// be NULL. Costs no copy where p was taken last. NULL when there is not enough memory: p stays.
void *scratch_resize(Scratch *s, void *p, size_t old, size_t bytes);
// The whole of a file; NULL with a message when it cannot be read.
void *scratch_read_file(Scratch *s, const char *path, size_t *size, Err *err);
void scratch_reset(Scratch *s); // gives back all pieces
void scratch_free(Scratch *s);
