// Parcel: bytes that one process packs and another one unpacks, of the same build on machines of one kind: native and
// without a version. Whatever arrives, nothing is read past its end.
#pragma once
#include <stdbool.h>
#include <stddef.h>

typedef struct Parcel { // zero-initialise
  char *data;
  size_t bytes, room;
} Parcel;
void parcel_put(Parcel *p, const void *from, size_t bytes);
void parcel_empty(Parcel *p); // keeps its room
void parcel_free(Parcel *p);

typedef struct Unpacking { // what is left of a parcel
  const char *at;
  size_t left;
} Unpacking;
// False when so much is not there; then nothing more can be taken.
bool parcel_take(Unpacking *u, void *to, size_t bytes);
// The next bytes as a parcel of their own.
bool parcel_take_part(Unpacking *u, Unpacking *part, size_t bytes);
