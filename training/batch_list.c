#include "training/batch_list.h"
#include <stdlib.h>
#include <string.h>

// ---- progressions -------------------------------------------------------------------------------------------------

// The number of terms between b, which follows a, and `last` in a geometric progression; -1: `last` is not part of it.
static int between_by_factor(int a, int b, int last) {
  const int factor = b / a;
  int n = -1;
  if (b % a || factor < 2) return -1;
  for (; b < last; b *= factor) n++;
  return b == last ? n : -1;
}

// The same for an arithmetic progression.
static int between_by_difference(int a, int b, int last) {
  const int step = b - a;
  return step > 0 && last > b && (last - b) % step == 0 ? (last - b) / step - 1 : -1;
}

// Appends the terms between the list's last two numbers and `last`.
static bool fill(BatchList *l, int last) {
  if (l->n < 2) return false;
  const int a = l->size[l->n - 2], b = l->size[l->n - 1];
  const int by_factor = between_by_factor(a, b, last);
  const int n = by_factor < 0 ? between_by_difference(a, b, last) : by_factor;
  if (n < 0 || l->n + n >= MAX_BATCHES) return false;
  for (int i = 0; i < n; i++, l->n++)
    l->size[l->n] = by_factor < 0 ? l->size[l->n - 1] + (b - a) : l->size[l->n - 1] * (b / a);
  return true;
}

// ---- text ---------------------------------------------------------------------------------------------------------

static size_t ellipsis_length(const char *at) {
  static const char *const ellipses[] = {"…", "..."};
  for (int i = 0; i < COUNT(ellipses); i++)
    if (!strncmp(at, ellipses[i], strlen(ellipses[i]))) return strlen(ellipses[i]);
  return 0;
}

bool batch_list_parse(BatchList *l, const char *text, Err *err) {
  *l = (BatchList){0};
  for (const char *at = text;; at++) {
    const size_t dots = ellipsis_length(at);
    if (dots && at[dots] != ',') return err_set(err, "'%s': expected a number after the ellipsis", text);
    if (dots) at += dots + 1;
    char *end = NULL;
    const long size = *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : 0;
    if (size < 1 || size > LARGEST_BATCH || (*end != ',' && *end != '\0'))
      return err_set(err, "'%s': expected numbers from 1 to %d separated by commas, such as 1,2,…,128", text,
                     LARGEST_BATCH);
    if (dots && !fill(l, (int)size))
      return err_set(err, "'%s': continuing the two numbers before the ellipsis does not reach %ld", text, size);
    if (l->n == MAX_BATCHES) return err_set(err, "'%s': more than %d numbers", text, MAX_BATCHES);
    l->size[l->n++] = (int)size;
    at = end;
    if (*at == '\0') return true;
  }
}
