#include "base/text_table.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/digest.h"

// The slot that holds the text, or the free one where it belongs. There always is a free slot.
static size_t slot_of(const TextTable *t, const char *text) {
  size_t at = (size_t)digest_text(0, text) % t->slots;
  while (t->slot[at] && strcmp(t->text[t->slot[at] - 1], text)) at = (at + 1) % t->slots;
  return at;
}

static void grow(TextTable *t) {
  free(t->slot);
  t->slots = MAX(2 * t->slots, 64);
  t->slot = xcalloc(t->slots, sizeof *t->slot);
  for (int i = 0; i < t->n; i++) t->slot[slot_of(t, t->text[i])] = i + 1;
}

int text_table_find(const TextTable *t, const char *text) { return t->slots ? t->slot[slot_of(t, text)] - 1 : -1; }

int text_table_add(TextTable *t, const char *text) {
  if (2 * ((size_t)t->n + 1) > t->slots) grow(t);
  const size_t at = slot_of(t, text);
  if (!t->slot[at]) {
    array_reserve((void **)&t->text, &t->cap, (size_t)t->n + 1, sizeof *t->text);
    t->text[t->n++] = xstrdup(text);
    t->slot[at] = t->n;
  }
  return t->slot[at] - 1;
}

void text_table_free(TextTable *t) {
  for (int i = 0; i < t->n; i++) free(t->text[i]);
  free(t->text);
  free(t->slot);
  *t = (TextTable){0};
}
