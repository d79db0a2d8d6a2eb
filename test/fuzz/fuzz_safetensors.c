// Catches safetensors files that crash their reader.
//
// Fuzzes the reader of safetensors files. Seeds: test/corpus/safetensors.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "weights/checkpoint.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  Checkpoint c = {0};
  Err err = {""};
  bool read = ckpt_parse(&c, bytes, size, "FILE", &err);
  CHECK(read || (*err.msg && !strchr(err.msg, '\n')));
  for (size_t i = 0; read && i < c.num_tensors; i++) {
    float *values = xmalloc(c.tensors[i].elements * sizeof *values);
    ckpt_read_floats(&c.tensors[i], values);
    free(values);
  }
  if (read) ckpt_close(&c);
  return 0;
}
