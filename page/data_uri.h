// Data URIs, for pictures inside a page.
#pragma once
#include <stddef.h>
#include <stdint.h>

// The bytes of a JPEG file as "data:image/jpeg;base64,…" (RFC 4648). Caller frees.
char *data_uri(const uint8_t *bytes, size_t size);
