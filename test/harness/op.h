// For tests of ops: guarded tensors, read and written as double whatever their dtype; and the definition of Dest, to
// which any op that takes one can be held.
#pragma once
#include "nn/device.h"
#include "nn/ops.h"
#include "test/harness/test.h"

// Bounds the relative error of one operation: half the distance from 1 to the next number. In 16 bits ops compute in
// float, and round what they store once more: by at most stored_rounding, which is 0 in F32 and F64.
double unit_roundoff(DType type);
double stored_rounding(DType type, double value);

// Where tensors lie that are made from here on: in memory that dev and the host read and write. NULL: the host's.
void test_memory(Device *dev);
// There, filled with NaN, with guards on both sides that test_tensor_free checks.
Tensor test_tensor(DType type, int n, int h, int w, int c);
Tensor test_tensor_packed(DType type, int n, int c);
Tensor test_tensor_like(const Tensor *t); // same shape, own memory
void test_tensor_free(Tensor *t);

// Uniform in [low, high), padding lanes zero; rows past the count become NaN, which whoever reads them shows.
void test_fill(const Tensor *t, uint64_t key, double low, double high);
// The same, rounded to multiples of `step`: ties.
void test_fill_steps(const Tensor *t, uint64_t key, double low, double high, double step);

double get(const Tensor *t, int n, int y, int x, int c);
void put(const Tensor *t, int n, int y, int x, int c, double value);
int valid_rows(const Tensor *t);
void expect_padding_zero(const Tensor *t);        // of the valid rows
bool same_bits(const Tensor *a, const Tensor *b); // of the valid rows
// Of the valid rows: the numbers of `want`, which is F32; in 16 bits rounded once.
bool expect_rounded(const Tensor *got, const Tensor *want);

// An op is called twice: between op_measure, whose result the others take, and op_ready it says what workspace it
// needs, which is then filled with NaN; between op_ready and op_done, which waits for it, it runs.
size_t op_measure(Device *dev);
void op_ready(Device *dev, size_t reserved);
void op_done(Device *dev, size_t reserved);
// An op as the tests run it: everything but the destination is in `context`.
typedef void TestOp(Device *dev, void *context, const Dest *d);
// Measures, reserves workspace full of NaN, runs, waits.
void run_op(Device *dev, TestOp *op, void *context, const Dest *d);
// Runs the op into a plain destination of that shape and count; then through every combination of accumulate, relu,
// mask and addend, into poisoned memory, and compares with the definition applied to the plain result. One combination
// runs with one to three threads, and on a GPU each one twice, for the same bits. The plain result itself is for the
// caller to check.
void check_dests(Device *dev, TestOp *op, void *context, const Tensor *shape, uint64_t key);
// The same of an op that may compute otherwise for another Dest: by as much as `off`, F64, says for each element.
void check_dests_within(Device *dev, TestOp *op, void *context, const Tensor *shape, const Tensor *off, uint64_t key);
