// Serialises data between processes of the same build on machines of the same type: native byte order, no version.
// Reads never pass the end, whatever arrives.
#pragma once
#include <stdbool.h>
#include <stddef.h>

typedef struct ByteBuffer { // zero-initialise
  char *data;
  size_t bytes, room;
} ByteBuffer;
void byte_buffer_put(ByteBuffer *p, const void *from, size_t bytes);
void byte_buffer_empty(ByteBuffer *p); // keeps its memory
void byte_buffer_free(ByteBuffer *p);

typedef struct ByteReader { // the unread rest of a buffer
  const char *at;
  size_t left;
} ByteReader;
// False if fewer bytes are left; then nothing more can be read.
bool byte_reader_take(ByteReader *u, void *to, size_t bytes);
// The next bytes as a separate reader.
bool byte_reader_part(ByteReader *u, ByteReader *part, size_t bytes);
