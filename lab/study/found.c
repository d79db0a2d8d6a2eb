#include "lab/study/found.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/json.h"
#include "base/record.h"

static void read_scalar(Json *j, StudyFound *f) {
  char text[NUMBER_TEXT];
  f->there = true;
  switch (json_peek(j)) {
  case JSON_NUMBER:
    f->number = json_number(j);
    if (j->failed) f->number = NAN;
    f->text = xstrdup(j->failed ? "beyond 1.8e308" : number_text(f->number, text));
    break;
  case JSON_BOOL:
    f->number = json_bool(j);
    f->text = xstrdup(f->number > 0 ? "true" : "false");
    break;
  case JSON_STRING: f->text = xstrdup(json_string(j, NULL)); break;
  default: json_skip(j);
  }
}

// What is left of the path behind the name, with which it begins; NULL: it does not.
static const char *behind(const char *path, const char *name) {
  const size_t n = strlen(name);
  if (strncmp(path, name, n) || (path[n] && path[n] != '.')) return NULL;
  return path + n + (path[n] == '.');
}

// Reads the whole value.
static void find(Json *j, const char *path, StudyFound *f) {
  if (!*path) {
    read_scalar(j, f);
    return;
  }
  const JsonType type = json_peek(j);
  const char *key;
  if (type == JSON_OBJECT && json_begin_object(j)) {
    while ((key = json_key(j))) {
      const char *rest = f->there ? NULL : behind(path, key);
      if (rest)
        find(j, rest, f);
      else
        json_skip(j);
    }
  } else if (type == JSON_ARRAY && json_begin_array(j)) {
    char index[16];
    for (int i = 0; json_next(j); i++) {
      snprintf(index, sizeof index, "%d", i);
      const char *rest = f->there ? NULL : behind(path, index);
      if (rest)
        find(j, rest, f);
      else
        json_skip(j);
    }
  } else {
    json_skip(j);
  }
}

StudyFound study_find(const char *json, size_t size, const char *path) {
  StudyFound f = {.number = NAN};
  Json j;
  json_open(&j, "record", json, size);
  if (*path) find(&j, path, &f);
  json_close(&j);
  return f;
}

void study_members(const char *json, size_t size, char *text, size_t room) {
  Json j;
  const char *key;
  size_t n = 0;
  *text = '\0';
  json_open(&j, "record", json, size);
  if (json_begin_object(&j)) {
    while ((key = json_key(&j))) {
      if (n < room) n += (size_t)snprintf(text + n, room - n, "%s%s", n ? ", " : "", key);
      json_skip(&j);
    }
  }
  json_close(&j);
  if (n >= room && room > 4) strcpy(text + room - 4, "…");
}
