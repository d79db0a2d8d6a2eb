// Values of a JSON text in any order, for formats whose members refer to one another: a value is a piece of the text,
// which stays in memory. All of a file is checked by value_read, so that looking into it cannot fail.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "base/error.h"
#include "base/json.h"

typedef struct JsonValue {
  const char *begin, *end; // NULL: absent
} JsonValue;

// The whole of a text file, as file_read. What is not UTF-8, as Python writes it on Windows, is taken as Latin-1.
char *text_read(const char *path, size_t *size, bool *latin1, Err *err);
// The value that a whole text consists of. NaN and Infinity are numbers. False with "FILE:LINE:COLUMN: …".
bool value_read(JsonValue *v, const char *file, const char *text, size_t size, Err *err);
JsonType value_type(JsonValue v); // JSON_NULL where it is absent, too
JsonValue value_of(JsonValue object,
                   const char *key);          // absent: this is no object, or has no such key; the first of several
char *value_text(JsonValue v);                // malloc'ed; NULL: it is no string
char *value_word(JsonValue v);                // a string, or a number, as text; malloc'ed; NULL: it is neither
bool value_is(JsonValue v, const char *text); // a string that equals it
double value_number(JsonValue v, double otherwise); // otherwise: it is no number
bool value_truth(JsonValue v);                      // true, or a number other than 0
// Up to `room` numbers of a list of numbers; returns how many the list has, or -1 if not all are finite numbers.
int value_numbers(JsonValue list, double *numbers, int room);
// Points [x, y], malloc'ed in *xy (also without any); returns how many, or -1 if not all are pairs of finite numbers.
int value_points(JsonValue list, double **xy);

// for (ValueWalk w = value_walk(v); value_next(&w);) … over the elements of an array or the members of an object.
typedef struct ValueWalk {
  Json json;
  bool object, array;
  JsonValue value;
  char *key; // of a member; owned by the walk
} ValueWalk;
ValueWalk value_walk(JsonValue v);
bool value_next(ValueWalk *w); // at the end releases the walk
void value_stop(ValueWalk *w); // to be called where a walk is left before its end
