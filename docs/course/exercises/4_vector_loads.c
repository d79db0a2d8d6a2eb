// Exercise 4 of docs/course/conv/04_vector_loads.md: counting bank conflicts. Word w of shared memory lies in bank
// w % BANKS. Among the lanes served together, the bank with the most different words decides; a read of 8 or 16 bytes
// needs two or four words.
#include "docs/course/exercises/conv.h"

int shared_accesses(int bytes, const int address[LANES]) {
  int accesses = 0;
  // ---- your code ----
  // ---- end of your code ----
  return accesses;
}
