// Numbers texts: equal texts have equal numbers, from 0 in the order in which they were first seen.
#pragma once
#include <stddef.h>

typedef struct TextTable { // zero-initialise
  char **text;             // [n]
  int n;
  size_t cap;
  int *slot; // [slots] number + 1 of the text there; 0: free
  size_t slots;
} TextTable;

int text_table_add(TextTable *t, const char *text);        // the text's number; it is copied
int text_table_find(const TextTable *t, const char *text); // -1: it was not added
void text_table_free(TextTable *t);
