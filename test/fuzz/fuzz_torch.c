// Catches PyTorch files that crash their reader, or the use of their tensors.
//
// Fuzzes the reader of PyTorch's files and the use of their tensors: names and a model's configuration. Seeds:
// test/corpus/torch.
#include <stdlib.h>
#include <string.h>
#include "models/torchvision.h"

// Every byte that a checkpoint says it has must be there; sanitizers watch.
static volatile unsigned char sink;
static void read_all(const Checkpoint *c) {
  for (size_t i = 0; i < c->num_tensors; i++)
    for (size_t k = 0; k < c->tensors[i].bytes; k++) sink = ((const unsigned char *)c->tensors[i].data)[k];
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  Checkpoint c = {0};
  ModelConfig config;
  Err err = {""};
  bool read = ckpt_parse(&c, bytes, size, "FILE", &err);
  CHECK(read || (*err.msg && !strchr(err.msg, '\n')));
  if (!read) return 0;
  read_all(&c);
  if (torchvision_rename(&c, "FILE", &err)) torchvision_config(&c, &config, &err);
  CHECK(!strchr(err.msg, '\n'));
  ckpt_close(&c);
  return 0;
}
