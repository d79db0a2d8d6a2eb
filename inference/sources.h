// Where loose images come from: files, folders and a list on standard input, in the order in which they were named.
#pragma once
#include <stdint.h>
#include "base/error.h"

typedef struct Sources Sources;

// A name is an image, a folder, which stands for its .jpg, .jpeg and .png files in the order of their names (not those
// of folders below it, nor hidden ones), or "-" for a list: one path a line, or each ended by NUL as find -print0 does,
// read from `list` as they come, so that whoever writes it may keep it open. A file called "-" is "./-". A line may
// name a folder, too, which is read when the line comes; one without images is handed out by its own name. Folders that
// are named here are read at once. NULL with a message when one cannot be read or holds no image, or when two lists are
// named.
Sources *sources_open(const char *const *names, int n, int list, Err *err);
// The paths of all images, those of a list not among them; valid until the sources are closed.
const char *const *sources_files(const Sources *s, int *n);
bool sources_has_list(const Sources *s);

typedef enum SourceState { SOURCE_IMAGE, SOURCE_WAITS, SOURCE_ENDS, SOURCE_FAILS } SourceState;
// The path of the next image; the caller frees it. SOURCE_WAITS: whoever writes the list has written no more within
// `wait` seconds. SOURCE_FAILS: the list cannot be read, with a message. By one thread at a time.
SourceState sources_next(Sources *s, double wait, char **path, Err *err);
void sources_close(Sources *s);
