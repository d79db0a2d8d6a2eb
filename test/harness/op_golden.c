#include "test/harness/op_golden.h"
#include "weights/checkpoint.h"

static const CkptTensor *find(const char *name) {
  static Checkpoint file;
  Err err;
  if (!file.num_tensors && !ckpt_open(&file, "test/goldens/ops.safetensors", &err)) {
    printf("  %s\n", err.msg);
    return NULL;
  }
  return ckpt_find(&file, name);
}

void expect_op_golden(const char *name, const Tensor *got, double steps) {
  const CkptTensor *theirs = find(name);
  if (!EXPECT(theirs && theirs->type == CKPT_F64)) return;
  const int shape[] = {got->n, got->h, got->w, got->c};
  for (int i = 0; i < 4; i++)
    if (!EXPECT(theirs->ndim == 4 && theirs->dims[i] == shape[i])) return;
  const double *want = theirs->data;
  for (int n = 0; n < got->n; n++)
    for (int y = 0; y < got->h; y++)
      for (int x = 0; x < got->w; x++)
        for (int c = 0; c < got->c; c++, want++)
          if (!EXPECT_NEAR(get(got, n, y, x, c), *want, steps * unit_roundoff(got->dtype) * fmax(1, fabs(*want)))) {
            printf("  %s [%d, %d, %d, %d]\n", name, n, y, x, c);
            return;
          }
}
