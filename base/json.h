// A streaming JSON reader (RFC 8259): one pass, no tree, depth-limited; positions for messages people can act on.
// Every reading function is safe after a failure: it does nothing and returns false, 0, "" or NULL, so that callers
// check once at the end (json_done). Keys may repeat; what that means is the caller's business.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

enum { JSON_MAX_DEPTH = 256 };

typedef enum JsonType { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT, JSON_ERROR } JsonType;

typedef struct Json {
  const char *file;             // for messages
  const char *begin, *at, *end; // the text; need not be NUL-terminated
  int64_t lines_before;         // of the file, before the text
  int depth;
  bool first; // nothing yet read in the innermost container
  bool failed;
  bool takes_nonfinite; // set after json_open: NaN, Infinity, -Infinity and numbers beyond 1.8e308 are numbers
  Err err;              // "FILE:LINE:COLUMN: expected X, found Y"; the first failure stays
  char *scratch;        // the last unescaped string
  size_t scratch_cap;
} Json;

void json_open(Json *j, const char *file, const char *text, size_t size);
void json_close(Json *j);

JsonType json_peek(Json *j); // type of the next value; JSON_ERROR at the end of input or on a stray byte

// Containers: `if (json_begin_array(j)) while (json_next(j)) {…read one value…}` — json_next consumes commas and the
// closing bracket, and is false at the end or on failure. Objects: `const char *key; while ((key = json_key(j)))`.
bool json_begin_array(Json *j);
bool json_next(Json *j);
bool json_begin_object(Json *j);
const char *json_key(Json *j); // valid until the next json call that reads a string; one with a NUL is refused

// Scalars. On a wrong type they fail with a message and return 0 / false / "".
double json_number(Json *j); // correctly rounded (as strtod)
// As many of the innermost array's next elements as are numbers in plain digits, at most `max`: the fast way through
// lists of coordinates. Stops before anything else, which json_next and json_number then read or refuse.
size_t json_numbers(Json *j, double *values, size_t max);
// Reads a number and returns whether it is whole, as for json_int, where a file may have others.
bool json_is_int(Json *j, int64_t *value);
int64_t json_int(Json *j); // a whole number, exact in 64 bits; written as 1.0 or 1e3, below 2^53
bool json_bool(Json *j);   // also accepts 0 and 1, as iscrowd is written
// UTF-8, escapes resolved; valid until the next string is read. len NULL: the caller takes a NUL for its end, and a
// string with one is refused.
const char *json_string(Json *j, size_t *len);
void json_skip(Json *j); // one value of any type, validated; its keys and strings may hold NUL
bool json_done(Json *j); // true when nothing but white space is left and nothing has failed
bool json_fail(Json *j, const char *fmt, ...) PRINTF_LIKE(2, 3); // records a failure at the present position
