// The fixture of the ops' tests: a device with guarded memory that the host reads and writes, too. What an op must do
// is said once, of a Fixture, and TEST_OP has it checked on every device that the build and the machine have.
#pragma once
#include <float.h>
#include "base/rng.h"
#include "nn/device.h"
#include "nn/ops.h"
#include "test/harness/gpu.h"
#include "test/harness/op.h"
#include "test/harness/test.h"

enum { FIXTURE_BLOCKS = 256 };
typedef struct Fixture {
  Device *dev;
  DType type; // of activations: the device's real type, or what TEST_TYPES is at
  struct FixtureBlock {
    char *data;
    size_t bytes;
    bool frozen;
    uint64_t before; // of a frozen one: hash of its bytes
  } blocks[FIXTURE_BLOCKS];
  int n;
  size_t reserved; // GPU: its workspace, while an op is measured
} Fixture;

// TEST_OP(name) { … } has a Fixture *f. It is the test `name`, of the CPU in float and in double, and cuda_name, of the
// first GPU, which is skipped where there is none. Memory is checked and freed behind it.
#define TEST_OP_TIER(id, level)                                                                                        \
  static void of_##id(Fixture *f);                                                                                     \
  TEST_TIER(id, level) { on_cpus("cpu cpu64", of_##id); }                                                              \
  TEST_TIER(cuda_##id, level) { on_gpu(of_##id); }                                                                     \
  static void of_##id(Fixture *f)
#define TEST_OP(id) TEST_OP_TIER(id, 0)
// TEST_TYPES(name) { … }: the same; on the GPU once with activations in F32, once in BF16 and once in F16.
#define TEST_TYPES(id)                                                                                                 \
  static void of_##id(Fixture *f);                                                                                     \
  TEST(id) { on_cpus("cpu cpu64", of_##id); }                                                                          \
  TEST(cuda_##id) { on_gpu_types(of_##id); }                                                                           \
  static void of_##id(Fixture *f)
// TEST_GPU(cuda_name) { … }: of the GPU alone, for kernels against the reference; TEST_GPU_TYPES in all three types.
#define TEST_GPU_TIER(id, level)                                                                                       \
  static void of_##id(Fixture *f);                                                                                     \
  TEST_TIER(id, level) { on_gpu(of_##id); }                                                                            \
  static void of_##id(Fixture *f)
#define TEST_GPU(id) TEST_GPU_TIER(id, 0)
#define TEST_GPU_TYPES(id)                                                                                             \
  static void of_##id(Fixture *f);                                                                                     \
  TEST(id) { on_gpu_types(of_##id); }                                                                                  \
  static void of_##id(Fixture *f)
// TEST_CPUS(name) { … }: of the CPU alone, where a kernel takes other types or the definition needs doubles.
#define TEST_CPUS_TIER(id, level, devices)                                                                             \
  static void of_##id(Fixture *f);                                                                                     \
  TEST_TIER(id, level) { on_cpus(devices, of_##id); }                                                                  \
  static void of_##id(Fixture *f)
#define TEST_CPUS(id) TEST_CPUS_TIER(id, 0, "cpu cpu64")
#define TEST_DOUBLE(id) TEST_CPUS_TIER(id, 0, "cpu64")
typedef void FixtureTest(Fixture *f);
void on_cpus(const char *devices, FixtureTest *test); // of "cpu cpu64"
void on_gpu(FixtureTest *test);
void on_gpu_types(FixtureTest *test);

// Memory of the fixture, between guards, all ones: NaN as a float, -1 as an int. What an op leaves alone is seen.
void *fixture_alloc(Fixture *f, size_t bytes);
void *fixture_copy(Fixture *f, size_t bytes, const void *from);
// Of what has been allocated so far, which an op only reads: checked to be the same when it is freed.
void fixture_freeze(Fixture *f);
// Checks guards and frozen blocks, and frees. Loops over cases call it; on_cpus and on_gpu do at the end.
void fixture_clear(Fixture *f);

Tensor fixture_tensor(Fixture *f, Tensor shape);                          // its memory; count as there
Tensor fixture_map(Fixture *f, int n, int h, int w, int c);               // of f->type
Tensor fixture_typed(Fixture *f, DType type, int n, int h, int w, int c); // of any
Tensor fixture_packed(Fixture *f, int n, int c);                          // real, ldc = c
Tensor fixture_single(Fixture *f, int n, int h, int w);                   // real, one channel, ldc = 1
Tensor fixture_floats(Fixture *f, const Tensor *t);                       // t's values as F32, for the reference
int *fixture_count(Fixture *f, int rows);                                 // for Tensor.count
int *fixture_ints(Fixture *f, int n);
Boxes fixture_boxes(Fixture *f, int groups, int capacity);
Rois fixture_rois(Fixture *f, int capacity);

// Calls an op as the graph does: measured first, then with the workspace that it asked for, full of NaN. Waits.
#define RUN(f, op, ...)                                                                                                \
  do {                                                                                                                 \
    fixture_measure(f);                                                                                                \
    (f)->dev->ops->op((f)->dev, __VA_ARGS__);                                                                          \
    fixture_ready(f);                                                                                                  \
    (f)->dev->ops->op((f)->dev, __VA_ARGS__);                                                                          \
    fixture_done(f);                                                                                                   \
  } while (0)
void fixture_measure(Fixture *f);
void fixture_ready(Fixture *f);
void fixture_done(Fixture *f);
// The CPU's op in float on a GPU's operands, which have to be F32: what the kernels are held to.
#define REFERENCE(op, ...) cpu_device()->ops->op(cpu_device(), __VA_ARGS__)

// A GPU's result against the reference's: runs the op on the CPU in float, `floats` being the same context with its
// operands as F32, and expects equal bits in F32, one rounding of them in 16 bits. Does nothing on the CPU.
void expect_reference(Fixture *f, TestOp *op, void *floats, const Tensor *got);

// Elements in the order of memory; boxes as four of them.
double get_at(const Tensor *t, size_t i);
void set_at(const Tensor *t, size_t i, double value);
void set_box(const Tensor *t, int row, double x1, double y1, double x2, double y2);
void get_box(const Tensor *t, int row, double box[4]);
size_t pixel(const Tensor *t, int n, int y, int x);
double epsilon(const Fixture *f); // of the device's real type

// Counts, and of the valid rows indices, scores and boxes, bit for bit. The first difference is told.
bool same_boxes(const Boxes *got, const Boxes *want, const char *what);

// ---- random numbers -------------------------------------------------------------------------------------------------

typedef struct Draw {
  uint64_t key, i;
} Draw;
Draw draw_begin(int seed);
double uniform(Draw *d, double low, double high);
int below(Draw *d, int n);
// Random values in the logical lanes, zeros in the padding.
void fill_random(Draw *d, const Tensor *t, double low, double high);
void fill_normal(Draw *d, const Tensor *t, double scale); // normal · scale
// A box with corners on whole pixels of an h × w canvas, partly beyond it if `slack` > 0. Whole numbers make areas
// exact, so that equal overlaps are equal in every precision.
void random_box(Draw *d, int h, int w, int slack, double box[4]);
// A box inside h × w, its sides between a pixel and a `share` of the canvas's; of floats.
void draw_box(Draw *d, int h, int w, double share, double box[4]);
