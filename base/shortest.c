// A double in the range is m / 2^s, m < 2^53. At `digits` significant digits, with p of them behind the point, its
// decimal is D = m · 10^p / 2^s, rounded half to even as printf does; and D / 10^p reads as the double again when it is
// within half a unit of m, or at half of one where m is even. m · 10^p < 2^117 and D · 2^s are whole numbers of 128
// bits.
#include "base/shortest.h"
#include <math.h>
#include <stdint.h>
#include <string.h>

__extension__ typedef unsigned __int128 Wide;

static const double LEAST = 1e-3, END = 999999.5; // above, six digits are rounded to seven
enum { FEWEST = 6, MOST = 17, MANTISSA = 53 };

static uint64_t ten_to(int p) {
  static const uint64_t powers[] = {1,
                                    10,
                                    100,
                                    1000,
                                    10000,
                                    100000,
                                    1000000,
                                    10000000,
                                    100000000,
                                    1000000000,
                                    10000000000,
                                    100000000000,
                                    1000000000000,
                                    10000000000000,
                                    100000000000000,
                                    1000000000000000,
                                    10000000000000000,
                                    100000000000000000,
                                    1000000000000000000,
                                    10000000000000000000u};
  return powers[p];
}

// D; the power is a normal number's.
static uint64_t rounded(Wide scaled, int shift) {
  const Wide half = (Wide)1 << (shift - 1), rest = scaled & ((half << 1) - 1);
  const uint64_t d = (uint64_t)(scaled >> shift);
  return d + (rest > half || (rest == half && d % 2));
}

static bool reads_again(uint64_t d, Wide scaled, int shift, uint64_t power, bool even) {
  const Wide back = (Wide)d << shift, off = 2 * (back > scaled ? back - scaled : scaled - back);
  return off < power || (off == power && even);
}

// D / 10^p without trailing zeros.
static void write(char *text, uint64_t d, int p) {
  char digits[24];
  int n = 0;
  while (p > 0 && d % 10 == 0) {
    d /= 10;
    p--;
  }
  for (; d > 0 || n <= p; d /= 10) {
    if (n == p && p > 0) {
      digits[n++] = '.';
      p = -1;
    }
    digits[n++] = (char)('0' + d % 10);
  }
  while (n > 0) *text++ = digits[--n];
  *text = 0;
}

bool shortest_decimal(double value, char *text) {
  const double size = fabs(value);
  if (!(size >= LEAST && size < END)) return false;
  int exponent, whole = -2; // digits before the point, or less by the zeros behind it
  const uint64_t m = (uint64_t)ldexp(frexp(size, &exponent), MANTISSA);
  if (m == (uint64_t)1 << (MANTISSA - 1)) return false; // the next smaller number is half as far away
  const int shift = MANTISSA - exponent;
  for (double bound = 1e-2; size >= bound; bound *= 10) whole++;
  if (value < 0) *text++ = '-';
  for (int digits = FEWEST; digits <= MOST; digits++) {
    const int p = digits - whole;
    const uint64_t power = ten_to(p);
    const Wide scaled = (Wide)m * power;
    const uint64_t d = rounded(scaled, shift);
    if (digits < MOST && !reads_again(d, scaled, shift, power, m % 2 == 0)) continue;
    write(text, d, p);
    return true;
  }
  return false;
}
