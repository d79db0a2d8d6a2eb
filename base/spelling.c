#include "base/spelling.h"
#include <string.h>
#include "base/basics.h"

// Wagner, Fischer, "The string-to-string correction problem", 1974.
int edit_distance(const char *a, size_t na, const char *b, size_t nb) {
  const int rows = (int)MIN(na, (size_t)SPELLING_MOST), columns = (int)MIN(nb, (size_t)SPELLING_MOST);
  int row[SPELLING_MOST + 1];
  for (int j = 0; j <= columns; j++) row[j] = j;
  for (int i = 1; i <= rows; i++) {
    int diagonal = row[0];
    row[0] = i;
    for (int j = 1; j <= columns; j++) {
      int replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = MIN(replaced, MIN(row[j], row[j - 1]) + 1);
    }
  }
  return row[columns];
}

int spelling_distance(const char *typed, size_t length, const char *known) {
  const size_t n = strlen(known);
  return n > length && !memcmp(known, typed, length) ? 1 : edit_distance(typed, length, known, n);
}
