// An HTML page that the browser draws: facts as JSON, and beside them the style and the scripts that show them. It
// holds everything itself and may load pictures beside it, nothing else: a Content-Security-Policy forbids the rest,
// inline scripts of anybody else included.
#pragma once
#include "base/file.h"

typedef struct Document {
  AtomicFile out;
  FILE *f;
  char nonce[33]; // what marks the page's own scripts
} Document;

// Whether a page may take the place of what stands at the path, or is written as it: its name ends in .html or .htm,
// so that no checkpoint and no labels give way to one. What is no regular file, such as a pipe, has any name.
bool document_name_fits(const char *path, Err *err);
// Writes the page's head, and begins its facts, whose JSON the caller puts out by document_json.
bool document_begin(Document *d, const char *path, const char *title, Err *err);
// JSON, or a part of it. "<", which there stands in strings alone, is escaped, so that no text ends the script.
void document_json(Document *d, const char *json, size_t size);
void document_jsons(Document *d, const char *json); // up to its NUL
// Ends the facts, adds the scripts, a list of texts of page/page_files.h that ends with NULL, and replaces the file at
// the path as a whole.
bool document_end(Document *d, const char *const *const *scripts, Err *err);
