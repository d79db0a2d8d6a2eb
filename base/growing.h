// A text file that is whole after every piece that is added to it: an array of JSON, lines. Until it is committed it is
// called FILE.partial and holds, whatever ends the program between two pieces, all that was added; what stood at FILE
// stays. Each piece is one write of the system's, the end of the text included, which a kill hardly ever cuts. A pipe
// or device gets the pieces as they come and the end when it is closed.
#pragma once
#include <stdint.h>
#include "base/file.h"

typedef struct GrowingFile {
  AtomicFile file;
  const char *opening; // of a pipe: what its first piece begins with; "" once that is written
  const char *closing; // what stands behind the last piece to make the text whole
  char *partial;       // what it is called until it is committed; owned
  char *kept;          // what the partial file of a run before is called from here on; NULL: there was none; owned
  int64_t end;         // bytes that stay: the next piece goes there, over `closing`
} GrowingFile;

// Begins with the text `opening`. Neither is copied. What a run before has left at FILE.partial, if there is a piece in
// it, gets the name FILE.partial-1 or, where there is such a file, the next number; that is then said in `kept`.
bool growing_open(GrowingFile *g, const char *path, const char *opening, const char *closing, Err *err);
// All of it or nothing: what a write that failed has left is cut off. Then nothing more can be added.
bool growing_add(GrowingFile *g, const char *text, size_t size, Err *err);
// All is there: it takes the place of FILE. Releases the file in any case.
bool growing_commit(GrowingFile *g, Err *err);
void growing_keep(GrowingFile *g);  // leaves the partial file
void growing_abort(GrowingFile *g); // removes it
