// The shortest decimal of 6 to 17 significant digits that reads as the number again, by whole numbers alone.
#pragma once
#include <stdbool.h>

// Writes what printf's %.*g does with the fewest digits, from 6 on, that strtod reads as `value` again, and a zero
// byte: 24 bytes at most. For magnitudes from 10^-3 to just below 10^6, of which results have millions; false: another
// one, and nothing is written.
bool shortest_decimal(double value, char *text);
