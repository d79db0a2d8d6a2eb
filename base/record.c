// Writing JSON objects (RFC 8259), one line each.
#include "base/record.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/shortest.h"
#include "base/utf8.h"

static void append(Record *r, const char *bytes, size_t n) {
  array_reserve((void **)&r->text, &r->cap, r->len + n + 1, 1);
  memcpy(r->text + r->len, bytes, n);
  r->len += n;
  r->text[r->len] = 0;
}

static void append_text(Record *r, const char *s) { append(r, s, strlen(s)); }

static void append_string(Record *r, const char *s) {
  const char *end = s + strlen(s);
  append(r, "\"", 1);
  while (*s) {
    unsigned char c = (unsigned char)*s;
    size_t n = utf8_length(s, end);
    if (n == 0) {
      append_text(r, "\\ufffd");
    } else if (c == '"' || c == '\\') {
      append(r, (char[]){'\\', *s}, 2);
    } else if (c < 0x20) {
      char escape[8];
      snprintf(escape, sizeof escape, "\\u%04x", c);
      append_text(r, escape);
    } else {
      append(r, s, n);
    }
    s += MAX(n, 1);
  }
  append(r, "\"", 1);
}

static void append_key(Record *r, const char *key) {
  if (r->len > 1) append(r, ",", 1);
  append_string(r, key);
  append(r, ":", 1);
}

void record_begin(Record *r) {
  r->len = 0;
  append(r, "{", 1);
}

void record_raw(Record *r, const char *key, const char *json) {
  append_key(r, key);
  append_text(r, json);
}

void record_int(Record *r, const char *key, int64_t value) {
  char text[NUMBER_TEXT];
  snprintf(text, sizeof text, "%" PRId64, value);
  record_raw(r, key, text);
}

void record_num(Record *r, const char *key, double value) {
  char text[NUMBER_TEXT];
  record_raw(r, key, isfinite(value) ? number_text(value, text) : "null");
}

void record_bool(Record *r, const char *key, bool value) { record_raw(r, key, value ? "true" : "false"); }

void record_str(Record *r, const char *key, const char *value) {
  append_key(r, key);
  if (value)
    append_string(r, value);
  else
    append_text(r, "null");
}

void record_strings(Record *r, const char *key, const char *const *values, int n) {
  append_key(r, key);
  append(r, "[", 1);
  for (int i = 0; i < n; i++) {
    if (i) append(r, ",", 1);
    append_string(r, values[i]);
  }
  append(r, "]", 1);
}

const char *record_end(Record *r) {
  append(r, "}", 1);
  return r->text;
}

void record_free(Record *r) {
  free(r->text);
  *r = (Record){0};
}

void record_list_add(RecordList *l) {
  const char *item = record_end(&l->item);
  const size_t n = strlen(item);
  array_reserve((void **)&l->text, &l->cap, l->len + n + 2, 1);
  if (l->len) l->text[l->len++] = ',';
  memcpy(l->text + l->len, item, n + 1);
  l->len += n;
}

void record_list_end(RecordList *l, Record *to, const char *key) {
  char *text = xasprintf("[%s]", l->text ? l->text : "");
  record_raw(to, key, text);
  record_free(&l->item);
  free(l->text);
  free(text);
  *l = (RecordList){0};
}

const char *number_text(double value, char text[NUMBER_TEXT]) {
  if (shortest_decimal(value, text)) return text;
  for (int digits = 6; digits <= 17; digits++) {
    snprintf(text, NUMBER_TEXT, "%.*g", digits, value);
    if (strtod(text, NULL) == value) break;
  }
  return text;
}

double float_decimal(float value) {
  char text[NUMBER_TEXT];
  for (int digits = 6; digits <= 9; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, (double)value);
    if (strtof(text, NULL) == value) break;
  }
  return strtod(text, NULL);
}
