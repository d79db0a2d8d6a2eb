#include "evaluation/byte_buffer.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

void byte_buffer_put(ByteBuffer *p, const void *from, size_t bytes) {
  if (!bytes) return;
  array_reserve((void **)&p->data, &p->room, p->bytes + bytes, 1);
  memcpy(p->data + p->bytes, from, bytes);
  p->bytes += bytes;
}

void byte_buffer_empty(ByteBuffer *p) { p->bytes = 0; }

void byte_buffer_free(ByteBuffer *p) {
  free(p->data);
  *p = (ByteBuffer){0};
}

bool byte_reader_part(ByteReader *u, ByteReader *part, size_t bytes) {
  if (bytes > u->left) {
    *u = (ByteReader){0};
    return false;
  }
  *part = (ByteReader){u->at, bytes};
  u->at += bytes;
  u->left -= bytes;
  return true;
}

bool byte_reader_take(ByteReader *u, void *to, size_t bytes) {
  ByteReader part;
  if (!byte_reader_part(u, &part, bytes)) return false;
  if (bytes) memcpy(to, part.at, bytes);
  return true;
}
