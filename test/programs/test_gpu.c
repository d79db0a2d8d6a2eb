// Catches programs that work on the CPU but not on a GPU.
#include "base/alloc.h"
#include "test/harness/command.h"
#include "test/harness/gpu.h"

// Steps are recorded and replayed; under --sync-nodes they run node by node. Interrupted or not, the bits are the same.
TEST_TIER(cuda_program_trains_resumes_and_infers, 1) {
  static const char *const precisions[] = {"off", "bf16", "fp16"};
  const char *said;
  char out[64], more[128];
  if (!gpu_device()) return;
  for (int i = 0; i < COUNT(precisions); i++) {
    static const char *const runs[] = {"whole", "parts", "nodes"};
    for (int run = 0; run < COUNT(runs); run++) {
      snprintf(out, sizeof out, "gpu-%s-%s", precisions[i], runs[run]);
      snprintf(more, sizeof more, "--device cuda --amp=%s %s", precisions[i],
               run == 1   ? "--stop-after 4"
               : run == 2 ? "--sync-nodes"
                          : "");
      if (!EXPECT_INT(train_shapes("", out, more), 0)) return;
      if (run != 1) continue;
      snprintf(more, sizeof more, "--device cuda --amp=%s --resume", precisions[i]);
      if (!EXPECT_INT(train_shapes("", out, more), 0)) return;
    }
    char first[64];
    snprintf(first, sizeof first, "gpu-%s-whole/checkpoint.safetensors", precisions[i]);
    for (int run = 1; run < COUNT(runs); run++) {
      snprintf(out, sizeof out, "gpu-%s-%s/checkpoint.safetensors", precisions[i], runs[run]);
      if (!EXPECT(same_file(in_tmp(out), in_tmp(first)))) printf("    %s\n", out);
    }
    EXPECT_INT(command(&said, "%s --device cuda --amp=%s --weights %s --data %s --score 0.01 --eval --out %s",
                       tool("infer"), precisions[i], in_tmp(first), shapes_set(), in_tmp("gpu-found")),
               0);
    EXPECT(strstr(said, "mask AP 0."));
  }
}

// Scores are computed beside the steps, but a run with a target waits for them, so that no step follows the evaluation.
TEST_TIER(cuda_program_ends_at_a_target, 1) {
  const char *said;
  if (!gpu_device()) return;
  EXPECT_INT(train_shapes("", "gpu-target", "--device cuda --eval-every 2 --target-bbox 0 --target-segm 0"), 0);
  EXPECT_INT(command(&said, "cat %s", in_tmp("gpu-target/time-to-target.json")), 0);
  EXPECT(strstr(said, "\"reached\":true,") && strstr(said, "\"step\":2,") && strstr(said, "\"evaluations\":1,"));
  EXPECT_INT(command(&said, "grep -c '\"kind\":\"train\"' %s", in_tmp("gpu-target/log.jsonl")), 0);
  EXPECT_STR(said, "2\n");
}

// The same of a classifier that drops out, is augmented and learns by Adam, on a set with a single batch shape.
TEST_TIER(cuda_program_trains_classifiers, 1) {
  static const char *const precisions[] = {"off", "bf16", "fp16"};
  static const char *const runs[][2] = {{"", NULL}, {"--stop-after 5", "--resume"}, {"--sync-nodes", NULL}};
  const char *said;
  if (!gpu_device()) return;
  CHECK(!command(&said, "%s --idx --out %s --train 512 --val 128", tool("shapes"), in_tmp("gpu-idx")));
  for (int i = 0; i < COUNT(precisions); i++)
    for (int run = 0; run < COUNT(runs); run++) {
      char out[64], first[64];
      snprintf(out, sizeof out, "gpu-classes-%s-%d", precisions[i], run);
      snprintf(first, sizeof first, "gpu-classes-%s-0/checkpoint.safetensors", precisions[i]);
      for (int part = 0; part < 2 && runs[run][part]; part++)
        if (!EXPECT_INT(command(&said,
                                "%s --data %s --model vgg-28 --phases 1@1e-3,1@1e-4 --augment standard --augment-after "
                                "1 --batch 64 --seed 3 "
                                "--val-loss --device cuda --amp=%s --out %s %s",
                                tool("train"), in_tmp("gpu-idx"), precisions[i], in_tmp(out), runs[run][part]),
                        0))
          printf("    %s\n", said);
      strcat(out, "/checkpoint.safetensors");
      if (!EXPECT(same_file(in_tmp(out), in_tmp(first)))) printf("    %s\n", out);
    }
}

// A folder as a stream, in batches of one and of many: the same detections. And in any precision, by any kernels.
TEST_TIER(cuda_program_streams_images, 1) {
  static const char *const ways[] = {"--batch 1", "--batch 24", "", "--tf32", "--conv naive", "--amp"};
  const char *said;
  if (!gpu_device()) return;
  if (!EXPECT_INT(train_shapes("", "gpu-stream", "--device cuda --norm frozen-bn"), 0)) return;
  char *model = xstrdup(in_tmp("gpu-stream/model.safetensors")),
       *first = xstrdup(in_tmp("gpu-stream-0/detections.json"));
  for (int i = 0; i < COUNT(ways); i++) {
    EXPECT_INT(command(&said, "%s --device cuda --weights %s --score 0.01 --overlays 1 %s --out %s-%d %s/train",
                       tool("infer"), model, ways[i], in_tmp("gpu-stream"), i, shapes_set()),
               0);
    EXPECT(strstr(said, "image_id counts the images"));
    char *found = xasprintf("%s-%d/detections.json", in_tmp("gpu-stream"), i);
    if (i < 3) EXPECT(same_file(found, first));
    free(found);
  }
  free(first);
  free(model);
}
