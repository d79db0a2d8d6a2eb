// Catches ops of the CPU whose results depend on the level of x86-64 they were compiled for, beyond what is documented:
// only convolutions at x86-64-v2 differ, which has no fused multiply-add, within the bound of test/ops/conv/.
#include "nn/ops.h"
#include "test/harness/small_engine.h"
#include "test/harness/test.h"

// Three steps, their parameters drawn. False: this CPU or build has no such level.
static bool train(Engine *e, int level, const Ops *ops) {
  char device[16];
  snprintf(device, sizeof device, "cpu-v%d", level);
  Device *dev = device_open(device, NULL);
  device_close(dev);
  if (!dev) return false;
  const ModelConfig c = small_config(NORM_GN, CLASSES);
  small_engine_on(e, device, &c);
  if (ops) e->dev->ops = ops;
  params_randomise(&e->params, 3);
  for (int i = 0; i < 3; i++) small_step(e, i);
  return true;
}

TEST(cpu_levels_with_fused_multiply_add_have_the_same_bits) {
  Engine v3, v4;
  if (!train(&v3, 3, NULL)) test_skip("this CPU or build has no x86-64-v3");
  if (train(&v4, 4, NULL)) {
    expect_same_params(&v3, &v4, true);
    engine_close(&v4);
  }
  engine_close(&v3);
}

TEST(cpu_levels_differ_in_convolutions_only) {
  Engine v3, v2;
  if (!train(&v3, 3, NULL)) test_skip("this CPU or build has no x86-64-v3");
  Ops ops = *ops_cpu_levels[2];
  ops.conv_forward = ops_cpu_levels[3]->conv_forward;
  ops.conv_dgrad = ops_cpu_levels[3]->conv_dgrad;
  ops.conv_wgrad = ops_cpu_levels[3]->conv_wgrad;
  CHECK(train(&v2, 3, &ops));
  expect_same_params(&v3, &v2, true);
  engine_close(&v2);
  engine_close(&v3);
}
