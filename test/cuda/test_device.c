// Catches GPU copies and collectives that overtake the computation, and the wrong code loaded for a GPU.
#include <pthread.h>
#include "base/alloc.h"
#include "cuda/conv/ladder.h"
#include "test/harness/gpu.h"

// `make test-ptx` is nothing unless PTX is what runs.
TEST(cuda_code_is_ptx_where_forced) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  const char *forced = getenv("CUDA_FORCE_PTX_JIT");
  bool from_ptx = strstr(gpu->description, "PTX compiled by the driver") != NULL;
  printf("  %s\n", gpu->description);
  if (forced && !strcmp(forced, "1")) EXPECT(from_ptx);
  EXPECT(!from_ptx || !gpu->wgmma);
}

// Code without wgmma leaves every problem to the rungs below, though the GPU be Hopper's.
TEST(cuda_code_decides_on_wgmma) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  const Conv conv = {1, 1};
  const Tensor in = tensor(BF16, 2, 16, 16, 64), w = tensor(BF16, 64, 3, 3, 64);
  for (const Rung *const *rung = gpu->conv_rungs; *rung; rung++)
    for (int op = 0; op < CONV_OPS && !strcmp((*rung)->name, "wgmma"); op++)
      EXPECT_INT((*rung)->supports(gpu, (ConvOp)op, &conv, &in, &w), gpu->wgmma);
}

static void *wait_for_save(void *gpu) { return device_save_wait(gpu) ? gpu : NULL; }

// What is saved is what stood there when the copy was queued, behind the ops before it; ops queued afterwards, which it
// must not wait for, are not seen.
TEST(cuda_save_copies_during_the_computation) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  enum { BYTES = 32 << 20, ROUNDS = 8 };
  uint8_t *host = device_host_alloc(gpu, BYTES), *value = device_host_alloc(gpu, BYTES);
  void *master = device_alloc(gpu, BYTES), *copy = device_alloc(gpu, BYTES);
  if (!EXPECT(host && value && master && copy)) return;
  for (int round = 0; round < ROUNDS; round++) {
    memset(value, 'a' + round, BYTES);
    device_upload(gpu, master, value, BYTES);
    device_copy(gpu, copy, master, BYTES);
    device_save(gpu, host, copy, BYTES);
    for (int i = 0; i < 20; i++) device_zero(gpu, master, BYTES); // the step after it
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, wait_for_save, gpu));
    void *there = NULL;
    CHECK(!pthread_join(thread, &there));
    EXPECT(there && !memcmp(host, value, BYTES));
  }
  device_sync(gpu);
  device_free(gpu, master);
  device_free(gpu, copy);
  device_host_free(gpu, host);
  device_host_free(gpu, value);
}

// Queues rounds of: an op writes `made`; beside it is copied to `sent`, for which later ops wait, that copy it to
// `back` and write `made` anew. Copies beside are long, so that who did not wait would be too early.
enum { TURN_BYTES = 32 << 20 };
typedef struct TurnBuffers {
  void *value[3], *made, *sent, *back[3];
} TurnBuffers;
static void queue_turns(Device *gpu, const TurnBuffers *b) {
  Device side_stream = *gpu;
  side_stream.stream = gpu->side_stream;
  for (int i = 0; i < COUNT(b->value); i++) {
    device_copy(gpu, b->made, b->value[i], TURN_BYTES);
    device_fork(gpu);
    for (int again = 0; again < 10; again++) device_copy(&side_stream, b->sent, b->made, TURN_BYTES);
    device_zero(gpu, b->back[i], TURN_BYTES); // runs meanwhile
    device_join(gpu);
    device_zero(gpu, b->made, TURN_BYTES);
    device_copy(gpu, b->back[i], b->sent, TURN_BYTES);
  }
}

static void check_turns(Device *gpu, const TurnBuffers *b, uint8_t *host) {
  for (int i = 0; i < COUNT(b->value); i++) {
    device_download(gpu, host, b->back[i], TURN_BYTES);
    bool right = true;
    for (size_t at = 0; at < TURN_BYTES; at++) right &= host[at] == 'a' + i;
    EXPECT(right);
    device_zero(gpu, b->back[i], TURN_BYTES);
  }
}

TEST(cuda_fork_and_join_order_two_queues) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  TurnBuffers b = {.made = device_alloc(gpu, TURN_BYTES), .sent = device_alloc(gpu, TURN_BYTES)};
  uint8_t *host = xmalloc(TURN_BYTES);
  for (int i = 0; i < COUNT(b.value); i++) {
    b.value[i] = device_alloc(gpu, TURN_BYTES);
    b.back[i] = device_alloc(gpu, TURN_BYTES);
    memset(host, 'a' + i, TURN_BYTES);
    device_upload(gpu, b.value[i], host, TURN_BYTES);
    device_sync(gpu);
  }
  queue_turns(gpu, &b);
  check_turns(gpu, &b, host);
  if (EXPECT(device_record(gpu))) {
    queue_turns(gpu, &b);
    void *program = device_record_end(gpu);
    for (int run = 0; run < 3; run++) {
      device_replay(gpu, program);
      check_turns(gpu, &b, host);
    }
    device_forget(gpu, program);
  }
  for (int i = 0; i < COUNT(b.value); i++) {
    device_free(gpu, b.value[i]);
    device_free(gpu, b.back[i]);
  }
  device_free(gpu, b.made);
  device_free(gpu, b.sent);
  free(host);
}

TEST(cuda_grants_all_multiprocessors_at_first) {
  Device *dev = gpu_device() ? device_open("cuda", NULL) : NULL;
  if (!dev) return;
  char words[32];
  snprintf(words, sizeof words, " %d SMs", dev->multiprocessors);
  EXPECT(dev->multiprocessors > 0 && strstr(dev->description, words));
  EXPECT_INT(dev->granted, dev->multiprocessors);
  device_close(dev);
}
