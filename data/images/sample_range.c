#include "data/images/sample_range.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A number from 0 to 65535 at *at, which it moves past; -1: there is none.
static int take_value(const char **at) {
  char *end;
  if (!isdigit((unsigned char)**at)) return -1;
  const long value = strtol(*at, &end, 10);
  *at = end;
  return value < SAMPLE_VALUES ? (int)value : -1;
}

bool sample_range_parse(SampleRange *r, const char *text, Err *err) {
  *r = (SampleRange){0, SAMPLE_VALUES - 1};
  if (!strcmp(text, "type")) return true;
  const char *at = text;
  r->low = take_value(&at);
  const bool comma = *at++ == ',';
  r->high = comma ? take_value(&at) : -1;
  if (r->low >= 0 && r->high > r->low && !*at) return true;
  return err_set(err, "%s: give type, or LOW,HIGH with 0 <= LOW < HIGH <= %d, such as 0,4095", text, SAMPLE_VALUES - 1);
}

void sample_range_text(SampleRange r, char text[SAMPLE_RANGE_TEXT]) {
  snprintf(text, SAMPLE_RANGE_TEXT, "%d,%d", r.low, sample_range_high(r));
}
