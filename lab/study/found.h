// What a path finds in a record of JSON: "latency.p99", "losses.0".
#pragma once
#include <stdbool.h>
#include <stddef.h>

typedef struct StudyFound {
  bool there;
  double number; // NaN: it is none; true and false are 1 and 0
  char *text;    // of a scalar, as people would write it; NULL: null, an object or an array; malloc'ed
} StudyFound;

// The first member of that path. Names of members may have dots themselves. json: one whole object. Free found.text.
StudyFound study_find(const char *json, size_t size, const char *path);
// "img_s, step_ms, …": the names of an object's members, at most so many characters of them.
void study_members(const char *json, size_t size, char *text, size_t room);
