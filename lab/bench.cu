// bench conv: every convolution of the network by the rungs of the ladder and by cuDNN, one JSON object for
// each (layer, op, rung). bench gemm: one matrix product in the same way, as a 1 × 1 convolution. bench ladder: the
// lessons of cuda/conv/lessons/ compared with the rungs and cuDNN. bench sustained: forward for half a second each,
// with the energy used.
//
// Results are checked against the naive rung's before timing. Then all candidates take turns, so that they see the same
// clocks and every round has its own ratio; before each run the L2 cache is swept. The figures are medians.
#include <stdio.h>
#include <string.h>
#include "base/output.h"
#include "lab/bench_sustained.cuh"
extern "C" {
#include "base/alloc.h"
}

enum { WARMUP = 2 };
static const double slow_us = 20e3; // one that takes longer runs three times only

// ---- running --------------------------------------------------------------------------------------------------------

static void run_rung(ConvBench *b, BenchCase *c, ConvOp op, const Rung *rung) {
  Device *dev = b->dev;
  dev->conv_rung = rung;
  Dest out = dest_of(c, op);
  FilterGrad dw = {c->dw};
  if (op == CONV_FORWARD) dev->ops->conv_forward(dev, &c->conv, 1, &c->x, &c->w, &out);
  if (op == CONV_DGRAD) dev->ops->conv_dgrad(dev, &c->conv, 1, &c->y, &c->w, &out);
  if (op == CONV_WGRAD) dev->ops->conv_wgrad(dev, &c->conv, 1, &c->x, &c->y, &dw);
}

static void run(ConvBench *b, BenchCase *c, ConvOp op, const Contender *who) {
  b->dev->conv_tile = who->tile;
  if (who->rung) return run_rung(b, c, op, who->rung);
  Dest out = dest_of(c, op);
  const Dest *to = op == CONV_WGRAD ? NULL : &out;
  void *workspace = device_workspace(b->dev, cudnn_workspace(&who->plan, to)),
       *w = (op == CONV_WGRAD ? c->dw_peer : c->w).data;
  if (!b->dev->measuring) cudnn_run(b->dev, &who->plan, op, c->x.data, w, c->y.data, to, workspace);
}

// Runs the op into a separate result tensor, from the operands or from their magnitudes.
static void *naive_result(ConvBench *b, BenchCase *c, ConvOp op, bool magnitude) {
  Tensor *result = result_of(c, op, false);
  void *own = result->data, *copy = allocate(b->dev, tensor_bytes(result));
  fill_operands(b->dev, c, op, magnitude);
  result->data = copy;
  b->dev->conv_tile = NULL;
  run_rung(b, c, op, &rung_naive);
  result->data = own;
  return copy;
}

// Runs all candidates; false, with a line, if one is wrong.
static bool verify(ConvBench *b, BenchCase *c, ConvOp op, Contender *all, int count) {
  void *bound = naive_result(b, c, op, true), *want = naive_result(b, c, op, false);
  bool ok = true;
  for (int i = 0; i < count; i++) {
    bool peer = !all[i].rung, twice = peer && b->fused && all[i].plan.finish;
    Tensor *t = result_of(c, op, peer);
    CUDA_CHECK(cudaMemsetAsync(t->data, 0xFF, tensor_bytes(t),
                               stream_of(b->dev))); // NaN: reveals elements that are never written
    run(b, c, op, &all[i]);
    unsigned long long wrong = count_wrong(b->dev, c, op, peer, twice, want, bound);
    if (wrong)
      fprintf(stderr, "bench: %s %s %s of %s: %llu of %zu elements differ from the naive rung\n", name_of(&all[i]),
              all[i].tile ? all[i].tile : "", op_names[op], c->layer->name, wrong, tensor_elements(t));
    all[i].wrong = wrong > 0;
    ok &= !wrong;
  }
  device_free(b->dev, bound);
  device_free(b->dev, want);
  return ok;
}

static double time_once(ConvBench *b, BenchCase *c, ConvOp op, const Contender *who) {
  cudaStream_t stream = stream_of(b->dev);
  sweep_l2(stream, b->sweep, b->sweeps++);
  CUDA_CHECK(cudaEventRecord(b->begin, stream));
  run(b, c, op, who);
  CUDA_CHECK(cudaEventRecord(b->end, stream));
  CUDA_CHECK(cudaEventSynchronize(b->end));
  float ms;
  CUDA_CHECK(cudaEventElapsedTime(&ms, b->begin, b->end));
  return 1e3 * ms;
}

// ---- one op of one layer --------------------------------------------------------------------------------------------

// Requests workspace for all candidates, including the naive rung.
static void reserve(ConvBench *b, BenchCase *c, ConvOp op, const Contender *all, int count) {
  b->dev->workspace_bytes = 0;
  b->dev->measuring = true;
  for (int i = 0; i < count; i++) run(b, c, op, &all[i]);
  run_rung(b, c, op, &rung_naive);
  b->dev->measuring = false;
  Err err;
  if (!device_reserve_workspace(b->dev, &err)) die(EXIT_RUN, "%s", err.msg);
}

// The number of cuDNN's fastest engine from a record; -1: not recorded.
static int engine_known(const ConvBench *b, const BenchCase *c, ConvOp op) {
  const ConvCase *l = c->layer;
  KnownEngine want = {.n = c->x.n, .h = c->x.h, .w = c->x.w, .cin = l->cin, .cout = l->cout, .k = l->k};
  want.version = cudnn_version(b->dev);
  snprintf(want.bench, sizeof want.bench, "%s", bench_name(b));
  snprintf(want.layer, sizeof want.layer, "%s", l->name);
  snprintf(want.op, sizeof want.op, "%s", op_names[op]);
  snprintf(want.dtype, sizeof want.dtype, "%s", precision_names[b->dtype]);
  snprintf(want.fused, sizeof want.fused, "%s", fused_names[b->fused]);
  return known_engine(&b->known, &want);
}

// If cuDNN no longer has the recorded engine, the search is repeated.
static CudnnPlan peer_plan(ConvBench *b, BenchCase *c, ConvOp op) {
  Dest out = dest_of(c, op);
  int known = engine_known(b, c, op);
  auto plan = [&](int search) {
    return cudnn_plan(b->dev, op, &c->conv, &c->x, &c->w, &c->y, op == CONV_WGRAD ? NULL : &out, (CudnnSearch)search);
  };
  CudnnPlan one = known >= 0 ? plan(CUDNN_ONE + known) : CudnnPlan{};
  return one.engine.plan ? one : plan(b->any ? CUDNN_ANY : b->sustained ? CUDNN_QUICK : CUDNN_THOROUGH);
}

// cuDNN first, if it has an engine, then the rungs that support the op; `sustained`: with each of their tiles, too.
static int contenders(ConvBench *b, BenchCase *c, ConvOp op, Contender all[MAX_CONTENDERS]) {
  int count = 0;
  CudnnPlan plan = peer_plan(b, c, op);
  if (plan.engine.plan) all[count++] = {NULL, plan};
  for (int i = 0; i < b->num_chosen; i++) {
    const Rung *rung = b->chosen[i];
    if (!rung->supports(b->dev, op, &c->conv, operand_of(c, op), op == CONV_WGRAD ? &c->dw : &c->w)) continue;
    all[count++] = {rung};
    const bool tiles = b->sustained && rung->tiles && c->x.dtype != F32;
    for (int k = 0; tiles && rung->tiles[k]; k++) {
      CHECK(count < MAX_CONTENDERS);
      all[count++] = {rung, {}, rung->tiles[k]};
    }
  }
  return count;
}

typedef struct RepeatedForward {
  ConvBench *b;
  BenchCase *c;
  const Contender *who;
} RepeatedForward;
static void queue_forward(void *context) {
  const RepeatedForward *r = (const RepeatedForward *)context;
  run(r->b, r->c, CONV_FORWARD, r->who);
}

static void sustain(ConvBench *b, BenchCase *c, Contender *all, int count) {
  const SustainedTimes times = {.rest = 0.2, .settle = 0.2, .window = b->seconds};
  for (int i = 0; i < count; i++) {
    if (all[i].wrong) continue;
    RepeatedForward r = {b, c, &all[i]};
    const Sustained s = sustained_measure(b->dev, b->meter, &times, queue_forward, &r);
    print_sustained(c, &all[i], &s);
    if (b->file) record_sustained(b, c, &all[i], &s);
  }
}

static bool bench_op(ConvBench *b, BenchCase *c, ConvOp op) {
  Contender all[MAX_CONTENDERS];
  int count = contenders(b, c, op, all);
  reserve(b, c, op, all, count);
  bool ok = verify(b, c, op, all, count);
  if (b->sustained) sustain(b, c, all, count);
  if (b->sustained || (!ok && !b->ladder)) return ok; // one wrong lesson does not end the comparison
  for (int round = -WARMUP; round < b->rounds; round++)
    for (Contender *who = all; who < all + count; who++) {
      if (who->wrong || (who->slow && (round < 0 || who->runs >= 3))) continue;
      double t = time_once(b, c, op, who);
      if (round >= 0) who->us[who->runs++] = t;
      who->slow = t > slow_us;
    }
  const Contender *peer = count && !all[0].rung && !all[0].wrong ? &all[0] : NULL;
  for (int i = 0; i < count; i++)
    if (!all[i].wrong) report(b, c, op, &all[i], peer);
  return ok;
}

// Whether one of --layer's texts occurs in a name.
static bool name_wanted(const ConvBench *b, const char *name) {
  char texts[512];
  bool wanted = !b->layer;
  snprintf(texts, sizeof texts, "%s", b->layer ? b->layer : "");
  for (char *rest = texts, *text; (text = strtok_r(rest, ",", &rest)) && !wanted;) wanted = strstr(name, text);
  return wanted;
}
static bool layer_wanted(const ConvBench *b, const ConvCase *l) { return name_wanted(b, l->name); }
static bool op_wanted(const ConvBench *b, const ConvCase *l, int op) {
  return b->wanted[op] && (op == CONV_FORWARD || l->frozen < l->count);
}

// ---- a bottleneck ---------------------------------------------------------------------------------------------------

// Frozen bottlenecks, which one kernel computes, against the sum of cuDNN's times for their convolutions.
static const struct ResBlock {
  const char *name;
  int count;
  const char *conv[BOTTLENECK_CONVS]; // of conv_cases
} blocks[] = {{"res2.block.first", 1, {"res2.1x1.out", "res2.1x1.first", "res2.3x3", "res2.1x1.out"}},
              {"res2.block", 2, {NULL, "res2.1x1.in", "res2.3x3", "res2.1x1.out"}}};
static const Fused block_fused[BOTTLENECK_CONVS] = {PLAIN, BIAS_RELU, BIAS_RELU, BIAS_ADD_RELU};

typedef struct BlockCase {
  BenchCase conv[BOTTLENECK_CONVS];
  Contender peer[BOTTLENECK_CONVS]; // cuDNN
  Bottleneck block;
  Tensor y;
} BlockCase;

static void block_new(ConvBench *b, BlockCase *c, const ResBlock *of) {
  for (int i = 0; i < BOTTLENECK_CONVS; i++)
    for (const ConvCase &l : conv_cases) {
      if (!of->conv[i] || strcmp(l.name, of->conv[i])) continue;
      c->conv[i] = case_new(b->dev, precision_dtypes[b->dtype], block_fused[i], &l, b->batch,
                            blocks_for(b->height, l.size), blocks_for(b->width, l.size));
      c->block.w[i] = c->conv[i].w;
      c->block.bias[i] = c->conv[i].bias.data;
    }
  c->y = allocated(b->dev, c->conv[BOTTLENECK_EXPAND].y);
}
static void block_free(ConvBench *b, BlockCase *c) {
  for (BenchCase &conv : c->conv) case_free(b->dev, &conv);
  device_free(b->dev, c->y.data);
}

// The convolutions one by one by our rung, each on what the one before has written.
static void run_convolutions(ConvBench *b, BlockCase *c) {
  BenchCase *all = c->conv;
  const Tensor *x = &all[BOTTLENECK_REDUCE].x;
  const Tensor *in[] = {x, x, &all[BOTTLENECK_REDUCE].y, &all[BOTTLENECK_MIDDLE].y};
  for (int i = 0; i < BOTTLENECK_CONVS; i++) {
    if (!all[i].layer) continue;
    Dest out = dest_of(&all[i], CONV_FORWARD);
    if (i == BOTTLENECK_EXPAND) out.addend = all[BOTTLENECK_PROJECT].layer ? &all[BOTTLENECK_PROJECT].y : x;
    b->dev->ops->conv_forward(b->dev, &all[i].conv, 1, in[i], &all[i].w, &out);
  }
}

// Requests workspace for all that is timed.
static void reserve_block(ConvBench *b, BlockCase *c) {
  b->dev->workspace_bytes = 0;
  b->dev->measuring = true;
  run_convolutions(b, c);
  for (int i = 0; i < BOTTLENECK_CONVS; i++)
    if (c->conv[i].layer) run(b, &c->conv[i], CONV_FORWARD, &c->peer[i]);
  b->dev->measuring = false;
  Err err;
  if (!device_reserve_workspace(b->dev, &err)) die(EXIT_RUN, "%s", err.msg);
}

// cuDNN's engines are held against the naive rung; the bottleneck against our convolutions, bit by bit.
static bool verify_block(ConvBench *b, BlockCase *c) {
  bool ok = true;
  for (int i = 0; i < BOTTLENECK_CONVS; i++) {
    Contender all[MAX_CONTENDERS];
    if (!c->conv[i].layer) continue;
    b->fused = block_fused[i];
    if (!contenders(b, &c->conv[i], CONV_FORWARD, all) || all[0].rung) die(EXIT_RUN, "cuDNN has no engine for a block");
    c->peer[i] = all[0];
    reserve(b, &c->conv[i], CONV_FORWARD, all, 1);
    ok &= verify(b, &c->conv[i], CONV_FORWARD, &c->peer[i], 1);
  }
  b->fused = PLAIN;
  b->dev->conv_rung = NULL; // the device's own choice
  reserve_block(b, c);
  run_convolutions(b, c);
  const Tensor *want = &c->conv[BOTTLENECK_EXPAND].y;
  CUDA_CHECK(cudaMemsetAsync(c->y.data, 0xFF, tensor_bytes(&c->y), stream_of(b->dev)));
  b->dev->ops->conv_bottleneck(b->dev, &c->block, &c->conv[BOTTLENECK_REDUCE].x, &c->y);
  void *ours = xmalloc(tensor_bytes(want)), *theirs = xmalloc(tensor_bytes(want));
  device_download(b->dev, ours, c->y.data, tensor_bytes(want));
  device_download(b->dev, theirs, want->data, tensor_bytes(want));
  const bool same = !memcmp(ours, theirs, tensor_bytes(want));
  if (!same) fprintf(stderr, "bench: a bottleneck differs from its convolutions\n");
  free(ours);
  free(theirs);
  return ok && same;
}

static double time_block(ConvBench *b, BlockCase *c) {
  sweep_l2(stream_of(b->dev), b->sweep, b->sweeps++);
  CUDA_CHECK(cudaEventRecord(b->begin, stream_of(b->dev)));
  b->dev->ops->conv_bottleneck(b->dev, &c->block, &c->conv[BOTTLENECK_REDUCE].x, &c->y);
  CUDA_CHECK(cudaEventRecord(b->end, stream_of(b->dev)));
  CUDA_CHECK(cudaEventSynchronize(b->end));
  float ms;
  CUDA_CHECK(cudaEventElapsedTime(&ms, b->begin, b->end));
  return 1e3 * ms;
}

static bool bench_block(ConvBench *b, const ResBlock *of) {
  BlockCase c = {};
  block_new(b, &c, of);
  if (!b->dev->ops->conv_bottlenecks(b->dev, &c.block, &c.conv[BOTTLENECK_REDUCE].x)) {
    block_free(b, &c);
    return true;
  }
  const bool ok = verify_block(b, &c);
  double ours[MAX_ROUNDS], theirs[MAX_ROUNDS], ratio[MAX_ROUNDS];
  for (int round = -WARMUP; ok && round < b->rounds; round++) {
    double us = time_block(b, &c), sum = 0;
    for (int i = 0; i < BOTTLENECK_CONVS; i++)
      if (c.conv[i].layer) sum += time_once(b, &c.conv[i], CONV_FORWARD, &c.peer[i]);
    if (round < 0) continue;
    ours[round] = us;
    theirs[round] = sum;
    ratio[round] = sum / us;
  }
  if (ok)
    report_block(b, of->name, of->count, &c.y, latency_summary(ours, b->rounds).median,
                 latency_summary(theirs, b->rounds).median, latency_summary(ratio, b->rounds).median);
  block_free(b, &c);
  return ok;
}

static bool blocks_wanted(const ConvBench *b) {
  return !b->sustained && !b->fused && !b->rungs && b->wanted[CONV_FORWARD] && b->dtype == BENCH_BF16;
}
static bool bench_blocks(ConvBench *b) {
  bool ok = true;
  for (const ResBlock &of : blocks)
    if (name_wanted(b, of.name)) ok &= bench_block(b, &of);
  return ok;
}

// ---- all of them ----------------------------------------------------------------------------------------------------

static bool bench_layer(ConvBench *b, const ConvCase *l, int n, int h, int w) {
  BenchCase c = case_new(b->dev, precision_dtypes[b->dtype], (Fused)b->fused, l, n, h, w);
  c.rectified = b->sustained;
  bool ok = true;
  for (int op = 0; op < CONV_OPS; op++)
    if (op_wanted(b, l, op)) ok &= bench_op(b, &c, (ConvOp)op);
  case_free(b->dev, &c);
  return ok;
}

// Unless --layer excludes it.
static bool bench_climbed_gemm(ConvBench *b) {
  return !layer_wanted(b, &climbed_gemm) || bench_layer(b, &climbed_gemm, 8192 / 256, 16, 16);
}

static bool bench_network(ConvBench *b) {
  const int boxes = b->batch * (b->sustained ? SUSTAINED_BOXES : b->rois),
            masks = b->sustained ? b->batch * SUSTAINED_MASKS : boxes / MASKS_OF;
  bool ok = true;
  for (const ConvCase &l : conv_cases) {
    if (!layer_wanted(b, &l)) continue;
    if (l.on == ON_MAP)
      ok &= bench_layer(b, &l, b->batch, blocks_for(b->height, l.size), blocks_for(b->width, l.size));
    else
      ok &= bench_layer(b, &l, l.on == ON_BOXES ? boxes : masks, l.size, l.size);
  }
  if (b->sustained) ok &= bench_climbed_gemm(b);
  return blocks_wanted(b) ? ok & bench_blocks(b) : ok;
}

static bool bench_ladder(ConvBench *b) {
  bool ok = true;
  for (const char *name : climbed_layers)
    for (const ConvCase &l : conv_cases)
      if (!strcmp(l.name, name) && layer_wanted(b, &l))
        ok &= bench_layer(b, &l, b->batch, blocks_for(b->height, l.size), blocks_for(b->width, l.size));
  ok &= bench_climbed_gemm(b);
  print_climb(&b->climb);
  draw_climb(&b->climb);
  return ok;
}

// The rows of the left operand become pixels, in images of 16 × 16 if possible.
static bool bench_gemm(ConvBench *b) {
  ConvCase l = {"gemm", ON_MAP, 1, b->k, b->n, 1, 1, 0, 1, 0};
  return b->m % 256 ? bench_layer(b, &l, 1, 1, b->m) : bench_layer(b, &l, b->m / 256, 16, 16);
}

// ---- the command line -----------------------------------------------------------------------------------------------

static void choose(ConvBench *b, const Rung *rung) {
  if (b->num_chosen == MAX_RUNGS) die(EXIT_USAGE, "--rungs: at most %d, and %s is one more", MAX_RUNGS, rung->name);
  b->chosen[b->num_chosen++] = rung;
}

// All but the naive rung, which is slow and timed only on request, and cuDNN, which always runs. For ladder and
// sustained only the rungs on tensor cores.
static void choose_unasked(ConvBench *b) {
  for (const Rung *const *lesson = conv_lessons; b->ladder && *lesson; lesson++) choose(b, *lesson);
  for (const Rung *const *rung = conv_rungs; *rung; rung++)
    if (*rung != &rung_naive && *rung != &rung_cudnn &&
        !((b->ladder || b->sustained) && !strcmp((*rung)->name, "im2col")))
      choose(b, *rung);
}

static void parse_rungs(ConvBench *b) {
  char names[512], known[256] = "";
  if (!b->rungs) choose_unasked(b);
  snprintf(names, sizeof names, "%s", b->rungs ? b->rungs : "");
  rung_names(conv_rungs, &rung_cudnn, known, sizeof known);
  for (char *name = strtok(names, ","); name; name = strtok(NULL, ",")) {
    const Rung *rung = rung_find(conv_rungs, name);
    if (!rung) rung = rung_find(conv_lessons, name);
    if (!rung || rung == &rung_cudnn)
      die(EXIT_USAGE, "--rungs %s: choose from %s, or the lessons of cuda/conv/lessons", name, known);
    choose(b, rung);
  }
}

static void parse_ops(ConvBench *b) {
  char names[64];
  bool any = false;
  snprintf(names, sizeof names, "%s",
           b->ops                                  ? b->ops
           : b->fused || b->ladder || b->sustained ? "fwd"
                                                   : "fwd,dgrad,wgrad");
  for (char *name = strtok(names, ","); name; name = strtok(NULL, ",")) {
    int op = 0;
    while (op < CONV_OPS && strcmp(op_names[op], name)) op++;
    if (op == CONV_OPS) die(EXIT_USAGE, "--ops %s: choose from fwd, dgrad and wgrad", name);
    if (b->fused && op != CONV_FORWARD)
      die(EXIT_USAGE, "--ops %s with --fused %s: only fwd is fused with what follows it; drop one", name,
          fused_names[b->fused]);
    if ((b->ladder || b->sustained) && op != CONV_FORWARD)
      die(EXIT_USAGE, "--ops %s: %s is of fwd alone; drop it", name, bench_name(b));
    any = b->wanted[op] = true;
  }
  if (!any) die(EXIT_USAGE, "--ops \"%s\" names none: choose from fwd, dgrad and wgrad", b->ops);
}

static void check_climbed(const ConvBench *b) {
  bool any = layer_wanted(b, &climbed_gemm);
  for (const char *name : climbed_layers) any |= name_wanted(b, name);
  if (!any) die(EXIT_USAGE, "--layer %s: ladder climbs p2.3x3, p5.3x3 and gemm.8192; choose of these", b->layer);
  if (b->dtype != BENCH_BF16) die(EXIT_USAGE, "--dtype %s: lessons are in bf16; drop it", precision_names[b->dtype]);
}

// An empty table would look like a result.
static void check_layers(const ConvBench *b) {
  if (b->ladder) return check_climbed(b);
  if (b->sustained && layer_wanted(b, &climbed_gemm)) return;
  for (const ResBlock &of : blocks)
    if (blocks_wanted(b) && name_wanted(b, of.name)) return;
  const ConvCase *named = NULL;
  for (const ConvCase &l : conv_cases) {
    if (!layer_wanted(b, &l)) continue;
    named = &l;
    for (int op = 0; op < CONV_OPS; op++)
      if (op_wanted(b, &l, op)) return;
  }
  if (!named) die(EXIT_USAGE, "--layer %s: no layer has this in its name; lab/conv_layers.h lists them", b->layer);
  die(EXIT_USAGE, "--ops %s: %s is frozen and has no gradients; add fwd", b->ops, named->name);
}

static void parse(ConvBench *b, int argc, char **argv) {
  OPTION_TABLE(table, ConvBench, BENCH_OPTIONS);
  Cli cli = {.usage = "conv|gemm|ladder|sustained [options]",
             .about = "Times the convolutions of Mask R-CNN R50-FPN on the GPU, a matrix product, the climb of the "
                      "lessons against cuDNN, or what all these do for long, with the energy that they take.",
             .options = table,
             .num_options = COUNT(table),
             .values = b,
             .positional = "conv|gemm|ladder|sustained"};
  cli_parse_or_exit(&cli, argc, argv);
  const char *what = cli.num_args == 1 ? cli.args[0] : "";
  b->gemm = !strcmp(what, "gemm");
  b->ladder = !strcmp(what, "ladder");
  b->sustained = !strcmp(what, "sustained");
  if (!b->gemm && !b->ladder && !b->sustained && strcmp(what, "conv"))
    die(EXIT_USAGE, "what to bench: conv, gemm, ladder or sustained");
  char rest;
  if (b->size && (sscanf(b->size, "%dx%d%c", &b->height, &b->width, &rest) != 2 || b->height < 64 || b->width < 64))
    die(EXIT_USAGE, "--size %s: expected HEIGHTxWIDTH, 64 at least, such as 800x1344", b->size);
  if (b->engines && b->any)
    die(EXIT_USAGE,
        "--any with --engines: one widens the search among cuDNN's engines, the other leaves it out; drop one");
  if (b->engines && b->fused)
    die(EXIT_USAGE,
        "--fused with --engines: an engine's number is of one graph, and cuDNN's fused and plain ones are two; "
        "drop one");
  if (b->engines) b->known = known_engines_read(b->engines);
  parse_rungs(b);
  parse_ops(b);
  if (!b->gemm) check_layers(b);
}

int main(int argc, char **argv) {
  static ConvBench b = {OPTION_DEFAULTS(BENCH_OPTIONS)};
  b.height = 800;
  b.width = 1344;
  parse(&b, argc, argv);
  Err err;
  if (!(b.dev = device_open("cuda", &err))) die(EXIT_USAGE, "%s", err.msg);
  b.dev->tf32 = b.dtype == BENCH_TF32;
  if (b.out && !(b.file = fopen(b.out, "a"))) die(EXIT_USAGE, "--out %s: cannot be written", b.out);
  if (b.out) commit_warn();
  b.sweep = allocate(b.dev, sweep_bytes);
  CUDA_CHECK(cudaEventCreate(&b.begin));
  CUDA_CHECK(cudaEventCreate(&b.end));
  const Timing *timing = b.dev->memory->timing;
  if (b.sustained) b.meter = timing->meter_open(b.dev);
  bool ok = b.ladder ? bench_ladder(&b) : b.gemm ? bench_gemm(&b) : bench_network(&b);
  if (!b.ladder && !b.sustained) print_totals(&b);
  if (b.meter) timing->meter_close(b.meter);
  device_close(b.dev);
  stdout_close();
  return ok ? 0 : EXIT_RUN;
}
