// Label Studio's run-length code of brush masks.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Decodes into bytes[size], the pixels' red, green, blue and alpha one after the other; missing ones are 0. False: the
// code is for another size, or ends too early.
bool brush_decode(uint8_t *bytes, size_t size, const uint8_t *code, size_t length);
