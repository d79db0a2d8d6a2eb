// Catches batch norm statistics that differ on several ranks.
#include "test/harness/command.h"
#include "test/harness/test.h"
#include "weights/checkpoint.h"

// One step of four images; the path of its weights.
static const char *step_of(const char *program, const char *out, const char *more) {
  const char *said;
  char *stub = realpath(tool("libnccl_stub.so"), NULL), file[64];
  const int status =
      command(&said,
              "env OMP_NUM_THREADS=1 MASKRCNN_NCCL=%s FAULTY_GPUS=4 %s --data %s --out %s --model tiny "
              "--size 64 --iters 1 --seed 5 --threads 1 --device %s %s",
              stub, tool(program), shapes_set(), in_tmp(out), strcmp(program, "train") ? "cuda" : "cpu", more);
  if (!EXPECT_INT(status, 0)) printf("    %s\n", said);
  free(stub);
  snprintf(file, sizeof file, "%s/model.safetensors", out);
  return in_tmp(file);
}

// The largest difference of all tensors whose names end so, and how many they are.
static double apart(const char *one, const char *other, const char *ending, int *count) {
  Checkpoint a, b;
  Err err;
  double most = 0;
  *count = 0;
  if (!EXPECT(ckpt_open(&a, one, &err))) return INFINITY;
  if (!EXPECT(ckpt_open(&b, other, &err))) return INFINITY;
  for (size_t i = 0; i < a.num_tensors; i++) {
    const CkptTensor *t = &a.tensors[i], *u = ckpt_find(&b, t->name);
    const size_t length = strlen(t->name), end = strlen(ending);
    if (length < end || strcmp(t->name + length - end, ending) != 0) continue;
    ++*count;
    if (!EXPECT(u && u->elements == t->elements && t->type == CKPT_F32)) continue;
    for (size_t j = 0; j < t->elements; j++)
      most = fmax(most, fabs((double)((const float *)t->data)[j] - ((const float *)u->data)[j]));
  }
  ckpt_close(&a);
  ckpt_close(&b);
  return most;
}

// Of one rank with all four images, and of two with two each.
static void two_ways(const char *program, const char *norm, char whole[600], char parts[600]) {
  char more[96], out[64];
  snprintf(more, sizeof more, "--norm %s --gpus 1 --batch 4", norm);
  snprintf(out, sizeof out, "norm-%s-%c-1", norm, *program);
  snprintf(whole, 600, "%s", step_of(program, out, more));
  snprintf(more, sizeof more, "--norm %s --gpus 2 --batch 2", norm);
  snprintf(out, sizeof out, "norm-%s-%c-2", norm, *program);
  snprintf(parts, 600, "%s", step_of(program, out, more));
}

TEST_TIER(ranks_syncbn_is_bn_of_the_whole_batch, 1) {
  static const char *const programs[] = {"train", "faulty/train"};
  char whole[600], parts[600];
  for (int i = 0; i < COUNT(programs); i++) {
    int means, variances;
    two_ways(programs[i], "syncbn", whole, parts);
    EXPECT(apart(whole, parts, ".running_mean", &means) < 1e-6);
    EXPECT(apart(whole, parts, ".running_var", &variances) < 1e-5);
    EXPECT(means > 5 && variances == means);
  }
}

// Each rank normalises by its own images; what it keeps for inference is the mean over ranks. The first layer's input
// does not depend on a norm, so its means are those of the whole batch.
TEST_TIER(ranks_bn_keeps_the_mean_over_ranks, 1) {
  char whole[600], parts[600];
  int layers;
  two_ways("train", "bn", whole, parts);
  EXPECT(apart(whole, parts, ".body.bn1.running_mean", &layers) < 1e-6 && layers == 1);
  EXPECT(apart(whole, parts, ".running_var", &layers) > 1e-3 && layers > 5);
}
