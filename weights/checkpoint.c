// The types of tensors in safetensors files.
#include "weights/checkpoint.h"

static const struct {
  const char *name;
  size_t size;
} types[CKPT_TYPES] = {
    [CKPT_F64] = {"F64", 8},   [CKPT_I64] = {"I64", 8}, [CKPT_U64] = {"U64", 8}, [CKPT_F32] = {"F32", 4},
    [CKPT_I32] = {"I32", 4},   [CKPT_U32] = {"U32", 4}, [CKPT_F16] = {"F16", 2}, [CKPT_BF16] = {"BF16", 2},
    [CKPT_I16] = {"I16", 2},   [CKPT_U16] = {"U16", 2}, [CKPT_I8] = {"I8", 1},   [CKPT_U8] = {"U8", 1},
    [CKPT_BOOL] = {"BOOL", 1},
};

size_t ckpt_type_size(CkptType type) { return types[type].size; }
const char *ckpt_type_name(CkptType type) { return types[type].name; }
