// The interface between the checkpoint reader and the file formats.
#pragma once
#include "weights/checkpoint.h"

enum { CKPT_PREFIX = 8 }; // bytes before a safetensors header: its length

bool ckpt_is_torch(const Checkpoint *c); // by its first bytes
// Both append the tensors found in c->bytes (at least eight bytes), in any order; after a failure ckpt_close frees what
// was allocated.
bool ckpt_parse_torch(Checkpoint *c, const char *path, Err *err);
bool ckpt_parse_safetensors(Checkpoint *c, const char *path, Err *err);

void ckpt_add(Checkpoint *c, const CkptTensor *t);
void *ckpt_own(Checkpoint *c, void *memory); // hands `memory` to the checkpoint, which frees it; returns it
