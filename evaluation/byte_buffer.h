// Bytes that one process packs and another one unpacks, of the same build on the same type of machine: in native order
// and without a version. Whatever arrives, nothing is read past its end.
#pragma once
#include <stdbool.h>
#include <stddef.h>

typedef struct ByteBuffer { // zero-initialise
  char *data;
  size_t bytes, room;
} ByteBuffer;
void byte_buffer_put(ByteBuffer *p, const void *from, size_t bytes);
void byte_buffer_empty(ByteBuffer *p); // keeps its room
void byte_buffer_free(ByteBuffer *p);

typedef struct ByteReader { // what is left of a buffer
  const char *at;
  size_t left;
} ByteReader;
// False when so much is not there; then nothing more can be taken.
bool byte_reader_take(ByteReader *u, void *to, size_t bytes);
// The next bytes as a reader of their own.
bool byte_reader_part(ByteReader *u, ByteReader *part, size_t bytes);
