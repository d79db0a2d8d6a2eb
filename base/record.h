// A record: one JSON object as one line of text, built member by member. Logs, results and file headers are made of
// these. Keys are not checked for being unique.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Record { // zero-initialise; the buffer is reused from one record to the next
  char *text;           // NUL-terminated
  size_t len, cap;
} Record;

void record_begin(Record *r); // empties it
void record_int(Record *r, const char *key, int64_t value);
void record_num(Record *r, const char *key, double value); // null unless finite: JSON has no other way to say it
void record_bool(Record *r, const char *key, bool value);
void record_str(Record *r, const char *key, const char *value); // NULL becomes null; bytes that are no UTF-8, U+FFFD
void record_strings(Record *r, const char *key, const char *const *values, int n); // an array
void record_raw(Record *r, const char *key, const char *json); // `json` as it is: a nested object or an array
const char *record_end(Record *r);                             // closes the object; valid until the next record_begin
void record_free(Record *r);

typedef struct RecordList { // of objects, to be a member; zero-initialise
  Record item;              // the one under way: record_begin, members
  char *text;               // the others, without brackets; NULL: none
  size_t len, cap;
} RecordList;
void record_list_add(RecordList *l);                              // closes the item and adds it
void record_list_end(RecordList *l, Record *to, const char *key); // makes the list a member, and frees it

enum { NUMBER_TEXT = 32 };
// The fewest digits, at least six where they are needed, that read back as the same double. Returns `text`.
const char *number_text(double value, char text[NUMBER_TEXT]);
// A float as the double that its shortest decimal form means: 0.001, not 0.0010000000474974513.
double float_decimal(float value);
