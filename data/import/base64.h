// Bytes as text (RFC 4648).
#pragma once
#include <stddef.h>
#include <stdint.h>

// Decodes; white space and what precedes "base64," are passed. malloc'ed; NULL: it is none.
uint8_t *base64_decode(const char *text, size_t *size);
