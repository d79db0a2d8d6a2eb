// Digests: 64 bits by which damage to a weights file is found, not forgery.
//
// A multiply-rotate hash in eight lanes of 64 bits, as xxHash64 has four (https://github.com/Cyan4973/xxHash). Word w
// of a block of 1 MiB goes into lane w mod 8: lane = rotate((lane ^ word) * odd, 29). The step is one-to-one in the
// lane for a given word, and in the word for a given lane, and so is all that follows: damage within one aligned word,
// such as a flipped bit, always changes the digest. Other damage leaves it as it was with a chance of 2^-64.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DIGEST_DIGITS = 16 };

uint64_t digest_all(const void *bytes, size_t n);
// The same by parts, for several threads: of each block, then of the blocks' digests in order.
size_t digest_blocks(size_t n);
uint64_t digest_block(const void *bytes, size_t n, size_t block);
uint64_t digest_join(const uint64_t *parts, size_t n);
// As lower-case hexadecimal digits, without an end. Reading fails on anything else.
void digest_write(uint64_t digest, char digits[DIGEST_DIGITS]);
bool digest_read(const char *digits, uint64_t *digest);
