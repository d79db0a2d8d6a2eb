// Sources of named images: files, folders and a list on standard input, in the order given.
#pragma once
#include <stdint.h>
#include "base/error.h"

typedef struct Sources Sources;

// A name is an image, a folder, which stands for its .jpg, .jpeg and .png files sorted by name (without subfolders and
// hidden files), or "-" for a list: one path a line, or each ended by NUL as from find -print0, read from `list` as
// they arrive, so that the writer may keep it open. A file called "-" is "./-". A line may also name a folder, which is
// read when the line arrives; one without images is returned by its own name. Folders named as arguments are read at
// once. NULL with a message if one cannot be read or holds no image, or if two lists are named.
Sources *sources_open(const char *const *names, int n, int list, Err *err);
// The paths of all images except a list's; valid until the sources are closed.
const char *const *sources_files(const Sources *s, int *n);
bool sources_has_list(const Sources *s);

typedef enum SourceState { SOURCE_IMAGE, SOURCE_WAITS, SOURCE_ENDS, SOURCE_FAILS } SourceState;
// The path of the next image; the caller frees it. SOURCE_WAITS: the writer of the list has written nothing more within
// `wait` seconds. SOURCE_FAILS: the list cannot be read, with a message. One thread at a time.
SourceState sources_next(Sources *s, double wait, char **path, Err *err);
void sources_close(Sources *s);
