// Between the reader of checkpoints and the formats it knows.
#pragma once
#include "weights/checkpoint.h"

// Both append the tensors of c->bytes, at least eight of them, in any order; what a failure leaves, ckpt_close frees.
bool ckpt_is_torch(const Checkpoint *c);
bool ckpt_parse_torch(Checkpoint *c, const char *path, Err *err);
bool ckpt_parse_safetensors(Checkpoint *c, const char *path, Err *err);

void ckpt_add(Checkpoint *c, const CkptTensor *t);
void *ckpt_own(Checkpoint *c, void *memory); // frees it with the checkpoint; returns it
