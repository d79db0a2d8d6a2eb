// Catches convolutions joined into one that no longer give the bits of each alone.
#include <string.h>
#include "base/alloc.h"
#include "nn/layers.h"
#include "test/harness/gpu.h"

enum { LEVELS = 2, CHANNELS = 64, FIRST = 12, SECOND = 3 };

// Bit for bit, pixel by pixel: channels [first, first + c) of the whole, on the host.
static bool same_channels(Device *dev, const Tensor *whole, int first, const Tensor *part) {
  const size_t size = dtype_size(whole->dtype);
  char *a = xmalloc(tensor_bytes(whole)), *b = xmalloc(tensor_bytes(part));
  device_download(dev, a, whole->data, tensor_bytes(whole));
  device_download(dev, b, part->data, tensor_bytes(part));
  bool same = true;
  for (size_t i = 0; i < tensor_pixels(whole); i++)
    same = same && !memcmp(a + (i * (size_t)whole->ldc + (size_t)first) * size, b + i * (size_t)part->ldc * size,
                           (size_t)part->c * size);
  free(a);
  free(b);
  return same;
}

static void fill_input(Device *dev, const Tensor *x) {
  float *values = xcalloc(tensor_elements(x), sizeof *values);
  uint16_t *half = xcalloc(tensor_elements(x), sizeof *half);
  for (size_t i = 0; i < tensor_elements(x); i++) {
    values[i] = (float)((int)(i * 2654435761u >> 20) % 257 - 128) * 0x1p-7f; // eight bits: the same in bfloat16
    uint32_t bits;
    memcpy(&bits, &values[i], sizeof bits);
    half[i] = (uint16_t)(bits >> 16);
  }
  device_upload(dev, x->data, x->dtype == F32 ? (const void *)values : half, tensor_bytes(x));
  free(values);
  free(half);
}

static void check_joined(Device *dev, DType type) {
  Params params;
  Graph g;
  Err err;
  params_init(&params, dev, type);
  graph_init(&g, dev, &params, false);
  ConvLayer conv = {
      .k = FIRST, .r = 1, .s = 1, .stride = 1, .bias = true, .init = INIT_LINEAR, .bias_init = INIT_LINEAR};
  Value *x[LEVELS], *first[LEVELS], *second[LEVELS], *whole[LEVELS];
  for (int l = 0; l < LEVELS; l++) {
    x[l] = graph_value(&g, graph_name(&g, "x%d", l), tensor(g.act, 2, 37 >> l, 29 >> l, CHANNELS));
    x[l]->keep = true;
  }
  layer_conv_shared(&g, "first", LEVELS, x, first, &conv);
  conv.k = SECOND;
  layer_conv_shared(&g, "second", LEVELS, x, second, &conv);
  conv.k = FIRST;
  conv.sibling = "second";
  conv.sibling_k = SECOND;
  layer_conv_shared(&g, "first", LEVELS, x, whole, &conv);
  for (int l = 0; l < LEVELS; l++) first[l]->keep = second[l]->keep = whole[l]->keep = true;
  graph_plan(&g);
  CHECK(params_allocate(&params, &err));
  params_randomise(&params, 7);
  void *arena = device_alloc(dev, g.bytes);
  CHECK(arena);
  graph_bind(&g, arena);
  for (int round = 0; round < 2; round++) {
    for (int l = 0; l < LEVELS; l++) fill_input(dev, &x[l]->x);
    graph_forward(&g);
    for (int l = 0; l < LEVELS; l++) {
      EXPECT_INT(whole[l]->x.c, FIRST + SECOND);
      EXPECT(same_channels(dev, &whole[l]->x, 0, &first[l]->x));
      EXPECT(same_channels(dev, &whole[l]->x, FIRST, &second[l]->x));
    }
    // A change of either is followed.
    const float bias[SECOND] = {3, -5, 7};
    param_import(&params, params_find(&params, "second.bias"), &params_find(&params, "second.bias")->master, bias);
    params_refresh(&params);
  }
  device_free(dev, arena);
  graph_free(&g);
  params_free(&params);
}

TEST(conv_joined) { check_joined(cpu_device(), F32); }

TEST(cuda_conv_joined) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  check_joined(gpu, F32);
  check_joined(gpu, BF16);
}
