// inspect: verifies a weights file by its digests and lists its contents: safetensors, or PyTorch's .pth, in which
// nothing is executed.
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/cli.h"
#include "base/output.h"
#include "base/record.h"
#include "data/batches/holdout.h"
#include "weights/checkpoint.h"

// ---- a tensor's values ----------------------------------------------------------------------------------------------

typedef struct TensorStats {
  double min, max, mean;       // of the finite values
  size_t infinite, not_number; // how many
} TensorStats;

// The element at `at`; integers above 2^53 are rounded.
static double value_of(const CkptTensor *t, size_t at) {
  const char *p = (const char *)t->data + at * ckpt_type_size(t->type);
  uint64_t bits = 0;
  memcpy(&bits, p, ckpt_type_size(t->type));
  float f;
  double d;
  switch (t->type) {
  case CKPT_F64: memcpy(&d, p, sizeof d); return d;
  case CKPT_I64: return (double)(int64_t)bits;
  case CKPT_I32: return (int32_t)bits;
  case CKPT_I16: return (int16_t)bits;
  case CKPT_I8: return (int8_t)bits;
  case CKPT_F32:
  case CKPT_F16:
  case CKPT_BF16:
    CHECK(ckpt_read_floats(&(CkptTensor){.type = t->type, .elements = 1, .bytes = ckpt_type_size(t->type), .data = p},
                           &f));
    return f;
  default: return (double)bits; // unsigned, bool
  }
}

static TensorStats stats_of(const CkptTensor *t) {
  TensorStats s = {.min = INFINITY, .max = -INFINITY};
  double sum = 0;
  for (size_t i = 0; i < t->elements; i++) {
    double v = value_of(t, i);
    if (isfinite(v)) {
      s.min = fmin(s.min, v);
      s.max = fmax(s.max, v);
      sum += v;
    } else {
      s.infinite += isinf(v) != 0;
      s.not_number += isnan(v) != 0;
    }
  }
  size_t finite = t->elements - s.infinite - s.not_number;
  s.mean = finite ? sum / (double)finite : NAN;
  return s;
}

// ---- output -----------------------------------------------------------------------------------------------------

static void shape_text(const CkptTensor *t, char *text, size_t size) {
  size_t used = (size_t)snprintf(text, size, "[");
  for (int i = 0; i < t->ndim; i++)
    used += (size_t)snprintf(text + used, size - used, i ? ", %" PRId64 : "%" PRId64, t->dims[i]);
  snprintf(text + used, size - used, "]");
}

static void print_text(const CkptTensor *t, int width, bool stats) {
  char shape[CKPT_MAX_DIMS * 22 + 3];
  shape_text(t, shape, sizeof shape);
  text_print(stdout, "%-*s  %-4s %-20s %12zu B", width, t->name, ckpt_type_name(t->type), shape, t->bytes);
  if (stats) {
    TensorStats s = stats_of(t);
    if (s.min <= s.max) printf("  min %.6g  mean %.6g  max %.6g", s.min, s.mean, s.max);
    if (s.infinite || s.not_number)
      printf("  %zu infinite, %zu NaN", s.infinite, s.not_number);
    else
      printf("  all finite");
  }
  putchar('\n');
}

static void print_json(const CkptTensor *t, bool stats, Record *j) {
  char shape[CKPT_MAX_DIMS * 22 + 3];
  shape_text(t, shape, sizeof shape);
  record_begin(j);
  record_str(j, "name", t->name);
  record_str(j, "dtype", ckpt_type_name(t->type));
  record_raw(j, "shape", shape);
  record_int(j, "bytes", (int64_t)t->bytes);
  if (stats) {
    TensorStats s = stats_of(t);
    record_num(j, "min", s.min);
    record_num(j, "mean", s.mean);
    record_num(j, "max", s.max);
    record_int(j, "infinite", (int64_t)s.infinite);
    record_int(j, "nan", (int64_t)s.not_number);
  }
  puts(record_end(j));
}

// Prints in short which images training held out; false for other metadata, or if it cannot be read.
static bool print_held_out(const CkptMeta *m) {
  Holdout h;
  if (strcmp(m->key, "held_out") || !holdout_read(&h, m->value, NULL)) return false;
  line_print(stdout, "%s = %s of split %s: %d images held out (%s%s), %d trained on; --json has all names", m->key,
             h.by, h.split, h.held, h.held ? h.val[0].name : "", h.held > 1 ? ", …" : "", h.trained);
  holdout_free(&h);
  return true;
}

static void print_meta(const Checkpoint *c, bool json, Record *j) {
  if (json) {
    record_begin(j);
    for (size_t i = 0; i < c->num_meta; i++) record_str(j, c->meta[i].key, c->meta[i].value);
    char *members = xstrdup(record_end(j));
    record_begin(j);
    record_raw(j, "metadata", members);
    record_bool(j, "verified", c->has_digests);
    puts(record_end(j));
    free(members);
  } else {
    for (size_t i = 0; i < c->num_meta; i++)
      if (!print_held_out(&c->meta[i])) line_print(stdout, "%s = %s", c->meta[i].key, c->meta[i].value);
  }
}

static void print_all(const Checkpoint *c, bool json, Record *j) {
  int width = 0;
  size_t elements = 0, bytes = 0;
  for (size_t i = 0; i < c->num_tensors; i++) {
    width = MAX(width, (int)strlen(c->tensors[i].name));
    elements += c->tensors[i].elements;
    bytes += c->tensors[i].bytes;
  }
  print_meta(c, json, j);
  for (size_t i = 0; i < c->num_tensors; i++)
    if (json)
      print_json(&c->tensors[i], false, j);
    else
      print_text(&c->tensors[i], MIN(width, 80), false);
  if (!json)
    printf("%zu tensors, %zu elements, %.1f MB; %s\n", c->num_tensors, elements, (double)bytes / 1e6,
           c->has_digests ? "whole: the header and all tensors match their digests"
                          : "not verified: it has no digests");
}

// clang-format off
#define INSPECT_OPTIONS(X)                                                                                             \
  X(FLAG, json, false, "print one JSON object per line: metadata, then tensors")
// clang-format on

typedef struct InspectOptions {
  OPTION_FIELDS(INSPECT_OPTIONS)
} InspectOptions;

int main(int argc, char **argv) {
  InspectOptions o = {OPTION_DEFAULTS(INSPECT_OPTIONS)};
  OPTION_TABLE(table, InspectOptions, INSPECT_OPTIONS);
  Cli cli = {.usage = "FILE [TENSOR…] [options]",
             .about =
                 "Verifies the digests of a weights file and lists its metadata and tensors, or prints statistics of "
                 "the named tensors.",
             .options = table,
             .num_options = COUNT(table),
             .values = &o,
             .positional = "FILE [TENSOR…]"};
  cli_parse_or_exit(&cli, argc, argv);
  if (!cli.num_args) die(EXIT_USAGE, "no weights file given; --help shows the usage");
  Checkpoint c;
  Record j = {0};
  Err err;
  if (!ckpt_open(&c, cli.args[0], &err)) die(EXIT_USAGE, "%s", err.msg);
  if (c.note) line_print(stderr, "%s: %s", cli.args[0], c.note);
  if (cli.num_args == 1) print_all(&c, o.json, &j);
  for (int i = 1; i < cli.num_args; i++) {
    const CkptTensor *t = ckpt_find(&c, cli.args[i]);
    if (!t) die(EXIT_USAGE, "%s has no tensor %s; leave the names out to list all", cli.args[0], cli.args[i]);
    if (o.json)
      print_json(t, true, &j);
    else
      print_text(t, 0, true);
  }
  record_free(&j);
  ckpt_close(&c);
  stdout_close();
  return 0;
}
