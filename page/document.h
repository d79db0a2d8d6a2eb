// An HTML page that the browser draws: facts as JSON, with the style and the scripts that show them. It loads nothing
// but pictures from its own folder: a Content-Security-Policy forbids everything else, including inline scripts that
// are not the page's own.
#pragma once
#include "base/file.h"

typedef struct Document {
  AtomicFile out;
  FILE *f;
  char nonce[33]; // identifies the page's own scripts
} Document;

// Whether a page may be written to the path: the name ends in .html or .htm, so that no checkpoint or label file is
// overwritten by mistake. Paths that are not regular files, such as pipes, may have any name.
bool document_name_fits(const char *path, Err *err);
// Writes the page's head and begins its facts, whose JSON the caller writes with document_json. Waits up to 5 s for
// another program that writes the page.
bool document_begin(Document *d, const char *path, const char *title, Err *err);
// Writes JSON, or a part of it. "<", which occurs in JSON only within strings, is escaped, so that no string can end
// the script element.
void document_json(Document *d, const char *json, size_t size);
void document_jsons(Document *d, const char *json); // up to its NUL
// Ends the facts, adds the scripts (texts of page/page_files.h, ended by NULL), and replaces the file at the path
// atomically.
bool document_end(Document *d, const char *const *const *scripts, Err *err);
