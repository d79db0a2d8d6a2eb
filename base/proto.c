#include "base/proto.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

typedef enum WireType { WIRE_VARINT, WIRE_64, WIRE_LENGTH, WIRE_32 = 5 } WireType;

void proto_append(Proto *p, const void *bytes, size_t n) {
  array_reserve((void **)&p->bytes, &p->cap, p->n + n, 1);
  if (n) memcpy(p->bytes + p->n, bytes, n);
  p->n += n;
}

// Seven bits a byte, the lowest first; the eighth says that more follow.
static void append_varint(Proto *p, uint64_t value) {
  unsigned char bytes[10];
  size_t n = 0;
  for (; value >= 128; value >>= 7) bytes[n++] = (unsigned char)(value | 128);
  bytes[n++] = (unsigned char)value;
  proto_append(p, bytes, n);
}

static void append_tag(Proto *p, int field, WireType type) { append_varint(p, (uint64_t)field << 3 | type); }

// The lowest byte first, whatever the machine's order.
static void append_fixed(Proto *p, uint64_t bits, int bytes) {
  unsigned char at[8];
  for (int i = 0; i < bytes; i++) at[i] = (unsigned char)(bits >> 8 * i);
  proto_append(p, at, (size_t)bytes);
}

void proto_int(Proto *p, int field, int64_t value) {
  append_tag(p, field, WIRE_VARINT);
  append_varint(p, (uint64_t)value);
}

void proto_float(Proto *p, int field, float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  append_tag(p, field, WIRE_32);
  append_fixed(p, bits, 4);
}

void proto_double(Proto *p, int field, double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  append_tag(p, field, WIRE_64);
  append_fixed(p, bits, 8);
}

void proto_bytes(Proto *p, int field, const void *bytes, size_t n) {
  append_tag(p, field, WIRE_LENGTH);
  append_varint(p, n);
  proto_append(p, bytes, n);
}

void proto_text(Proto *p, int field, const char *text) { proto_bytes(p, field, text, strlen(text)); }

void proto_message(Proto *p, int field, Proto *part) {
  proto_bytes(p, field, part->bytes, part->n);
  proto_free(part);
}

void proto_free(Proto *p) {
  free(p->bytes);
  *p = (Proto){0};
}
