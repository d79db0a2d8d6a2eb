#include "data/import/value.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/utf8.h"

char *text_read(const char *path, size_t *size, bool *latin1, Err *err) {
  char *text = file_read(path, size, err);
  *latin1 = text && strlen(text) == *size && !utf8_is(text);
  if (!*latin1) return text;
  char *utf8 = xmalloc(2 * *size + 1), *to = utf8;
  for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
    if (*p >= 0x80) *to++ = (char)(0xc0 | *p >> 6);
    *to++ = (char)(*p >= 0x80 ? 0x80 | (*p & 0x3f) : *p);
  }
  *to = '\0';
  *size = (size_t)(to - utf8);
  free(text);
  return utf8;
}

static Json open_value(JsonValue v) {
  Json j;
  json_open(&j, "", v.begin ? v.begin : "", v.begin ? (size_t)(v.end - v.begin) : 0);
  j.takes_nonfinite = true;
  return j;
}

// The end of the string that begins at p.
static const char *skip_string(const char *p, const char *end) {
  while (++p < end && (p = memchr(p, '"', (size_t)(end - p)))) {
    const char *before = p;
    while (before[-1] == '\\') before--;
    if ((p - before) % 2 == 0) return p + 1;
  }
  return end;
}

// The end of the value that begins at p, in text that was checked and ends with a zero byte; without the cost of
// checking it again.
static const char *skip_value(const char *p, const char *end) {
  int depth = 0;
  while (p < end) {
    if (*p == '"') {
      p = skip_string(p, end);
    } else if (*p == '[' || *p == '{') {
      depth++;
      p++;
    } else if (*p == ']' || *p == '}') {
      depth--;
      p++;
    } else {
      p += depth > 0 ? MAX(strcspn(p, "\"[]{}"), 1) : strcspn(p, ",]} \t\r\n"); // 1: a zero byte
    }
    if (depth <= 0) break;
  }
  return MIN(p, end);
}

// The next value, which is passed.
static JsonValue pass(Json *j) {
  json_peek(j); // passes white space
  const char *begin = j->at;
  j->at = skip_value(begin, j->end);
  return j->at == begin ? (JsonValue){0} : (JsonValue){begin, j->at};
}

bool value_read(JsonValue *v, const char *file, const char *text, size_t size, Err *err) {
  Json j;
  json_open(&j, file, text, size);
  j.takes_nonfinite = true;
  json_peek(&j); // passes white space
  const char *begin = j.at;
  json_skip(&j);
  *v = (JsonValue){begin, j.at};
  const bool ok = json_done(&j);
  if (!ok) err_set(err, "%s", j.err.msg);
  json_close(&j);
  return ok;
}

JsonType value_type(JsonValue v) {
  if (!v.begin) return JSON_NULL;
  Json j = open_value(v);
  return json_peek(&j);
}

JsonValue value_of(JsonValue object, const char *key) {
  JsonValue found = {0};
  if (value_type(object) != JSON_OBJECT) return found;
  Json j = open_value(object);
  json_begin_object(&j);
  for (const char *k; !found.begin && (k = json_key(&j));) {
    const bool is = !strcmp(k, key);
    const JsonValue v = pass(&j);
    if (is) found = v;
  }
  json_close(&j);
  return found;
}

char *value_text(JsonValue v) {
  if (value_type(v) != JSON_STRING) return NULL;
  Json j = open_value(v);
  size_t length; // a NUL ends the text
  char *text = xstrdup(json_string(&j, &length));
  json_close(&j);
  return text;
}

char *value_word(JsonValue v) {
  return value_type(v) == JSON_NUMBER ? xasprintf("%.*s", (int)(v.end - v.begin), v.begin) : value_text(v);
}

bool value_is(JsonValue v, const char *text) {
  char *own = value_text(v);
  const bool is = own && !strcmp(own, text);
  free(own);
  return is;
}

double value_number(JsonValue v, double otherwise) {
  if (value_type(v) != JSON_NUMBER) return otherwise;
  Json j = open_value(v);
  const double number = json_number(&j);
  json_close(&j);
  return number;
}

bool value_truth(JsonValue v) { return value_type(v) == JSON_BOOL ? *v.begin == 't' : value_number(v, 0) != 0; }

int value_numbers(JsonValue list, double *numbers, int room) {
  if (value_type(list) != JSON_ARRAY) return -1;
  Json j = open_value(list);
  int n = 0;
  bool ok = true;
  json_begin_array(&j);
  while (json_next(&j)) {
    double number = NAN;
    if (json_peek(&j) == JSON_NUMBER)
      number = json_number(&j);
    else
      json_skip(&j);
    ok = ok && isfinite(number);
    if (n < room) numbers[n] = number;
    n += n < INT32_MAX;
  }
  json_close(&j);
  return ok ? n : -1;
}

int value_points(JsonValue list, double **xy) {
  size_t cap = 0;
  int n = value_type(list) == JSON_ARRAY ? 0 : -1;
  *xy = NULL;
  array_reserve((void **)xy, &cap, 2, sizeof **xy);
  for (ValueWalk w = value_walk(list); value_next(&w);) {
    double point[2];
    array_reserve((void **)xy, &cap, 2 * ((size_t)MAX(n, 0) + 1), sizeof **xy);
    if (n >= 0) n = value_numbers(w.value, point, 2) == 2 && n < INT32_MAX / 2 ? n + 1 : -1;
    if (n > 0) memcpy(*xy + 2 * ((size_t)n - 1), point, sizeof point);
  }
  return n;
}

ValueWalk value_walk(JsonValue v) {
  const JsonType type = value_type(v);
  ValueWalk w = {.json = open_value(v), .object = type == JSON_OBJECT, .array = type == JSON_ARRAY};
  if (w.object) json_begin_object(&w.json);
  if (w.array) json_begin_array(&w.json);
  return w;
}

bool value_next(ValueWalk *w) {
  free(w->key);
  w->key = NULL;
  const char *key = w->object ? json_key(&w->json) : NULL;
  if (w->object ? !key : !w->array || !json_next(&w->json)) {
    value_stop(w);
    return false;
  }
  if (key) w->key = xstrdup(key);
  w->value = pass(&w->json);
  return true;
}

void value_stop(ValueWalk *w) {
  free(w->key);
  w->key = NULL;
  json_close(&w->json);
}
