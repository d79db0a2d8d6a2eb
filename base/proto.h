// Protocol Buffers' wire format (https://protobuf.dev/programming-guides/encoding/): a message as bytes that grow field
// by field. ONNX models and TensorBoard's events are written with it.
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef struct Proto {
  char *bytes; // owned
  size_t n, cap;
} Proto;

void proto_int(Proto *p, int field, int64_t value); // int32, int64, enum, bool; a repeated one that is not packed, too
void proto_float(Proto *p, int field, float value);
void proto_double(Proto *p, int field, double value);
void proto_bytes(Proto *p, int field, const void *bytes, size_t n);
void proto_text(Proto *p, int field, const char *text);
void proto_message(Proto *p, int field, Proto *part);     // frees the part
void proto_append(Proto *p, const void *bytes, size_t n); // fields that are encoded already
void proto_free(Proto *p);
