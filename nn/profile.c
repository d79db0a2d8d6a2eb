#include "nn/profile.h"
#include <stdlib.h>
#include "nn/timing.h"

// ---- work ---------------------------------------------------------------------------------------------------------

// Share of a tensor's rows that hold data.
static double valid_share(const Graph *g, const Tensor *t) {
  if (!t->count) return 1;
  int rows;
  device_download(g->dev, &rows, t->count, sizeof rows);
  return (double)rows / t->n;
}

static double valid_bytes(const Graph *g, const Tensor *t) { return (double)tensor_bytes(t) * valid_share(g, t); }

static double param_bytes(const Tensor *t) { return (double)tensor_bytes(t); }

// What convolutions read of a filter, folded or not, has the activations' type.
static double filter_bytes(const Graph *g, const Node *n) {
  return (double)(tensor_elements(&n->filter->master) * dtype_size(g->act));
}

// Bytes of an input that its node reads at least: of a strided window's, the pixels that some output looks at.
static double input_bytes(const Graph *g, const Node *n, int i) {
  const Tensor *x = &n->in[i].v->x;
  double pixels = (double)tensor_pixels(x), share = 1;
  if (n->kind->gathers) return 0;
  if (n->kind->window && i < n->outs)
    share = MIN(1, (double)tensor_pixels(&n->out[i]->x) * n->kind->window(n) / pixels);
  return share * valid_bytes(g, x);
}

static double optional_bytes(const Graph *g, const Tensor *t) { return t ? valid_bytes(g, t) : 0; }

static bool trains(const Param *p) { return p && p->trainable; }

static double forward_bytes(const Graph *g, const Node *n) {
  double bytes = 0;
  for (int i = 0; i < n->ins; i++) bytes += input_bytes(g, n, i);
  for (int i = 0; i < n->outs; i++) bytes += valid_bytes(g, &n->out[i]->x);
  if (n->filter) bytes += filter_bytes(g, n);
  const Param *vectors[] = {n->bias, n->gamma, n->beta};
  for (int i = 0; i < COUNT(vectors); i++)
    if (vectors[i]) bytes += param_bytes(&vectors[i]->master);
  return bytes;
}

// Of dx: written, read before where it is added to, and what is added on the way. The mask is counted by the caller.
static double gradient_bytes(const Graph *g, const Tensor *dx, bool accumulate, const Tensor *addend) {
  return valid_bytes(g, dx) * (accumulate ? 2 : 1) + optional_bytes(g, addend);
}

static double backward_bytes(const Graph *g, const Node *n) {
  double bytes = 0;
  bool any = false, reads_in = n->kind->reads_in && (!n->filter || n->filter->trainable);
  for (int i = 0; i < n->outs; i++) {
    if (!n->kind->source) bytes += valid_bytes(g, &n->out[i]->dx);
    if (n->kind->reads_out) bytes += valid_bytes(g, &n->out[i]->x);
  }
  for (int i = 0; i < n->ins; i++) {
    const Input *in = &n->in[i];
    if (in->mask)
      bytes += valid_bytes(g, in->mask);
    else if (reads_in && in->flow != FLOW_IDENTITY)
      bytes += input_bytes(g, n, i);
    if (in->wanted) any = true, bytes += gradient_bytes(g, &in->v->dx, in->accumulate, in->addend);
  }
  if (n->filter && any) bytes += filter_bytes(g, n);
  const Param *params[] = {n->filter, n->bias, n->gamma, n->beta};
  for (int i = 0; i < COUNT(params); i++)
    if (trains(params[i])) bytes += param_bytes(&params[i]->grad) * (n->accumulate_params ? 2 : 1);
  for (int i = 0; i < n->copies; i++) {
    const GradCopy *c = &n->copy[i];
    bytes +=
        gradient_bytes(g, &c->v->dx, c->accumulate, c->addend) + optional_bytes(g, c->x) + optional_bytes(g, c->mask);
  }
  return bytes;
}

// What a pass over a node has to do with the rows that hold data now.
static Work node_work(const Graph *g, const Node *n, int pass) {
  Work w = {.bytes = pass ? backward_bytes(g, n) : forward_bytes(g, n)};
  if (n->kind->flops) w.flops = n->kind->flops(n, pass) * valid_share(g, &n->out[0]->x);
  return w;
}

// ---- timing -------------------------------------------------------------------------------------------------------

void profile_begin(Graph *g, int pass) {
  if (!g->marks) g->marks = xcalloc((size_t)g->nodes + 1, sizeof *g->marks);
  g->marked = 0;
  device_sync(g->dev);
  g->walk_start[pass] = now_seconds();
  profile_mark(g);
}

void profile_mark(Graph *g) { g->dev->memory->timing->mark(g->dev, &g->marks[g->marked++]); }

void profile_end(Graph *g, int pass) {
  device_sync(g->dev);
  double start = g->walk_start[pass];
  const Mark *m = g->marks;
  for (int i = 0; i < g->nodes; i++) {
    Node *n = g->node[pass ? g->nodes - 1 - i : i];
    if (pass && !n->runs_backward) continue;
    double seconds = g->dev->memory->timing->elapsed(g->dev, m, m + 1);
    Work w = node_work(g, n, pass);
    n->seconds[pass] += seconds, n->work[pass].flops += w.flops, n->work[pass].bytes += w.bytes;
    if (g->trace) trace_event(g->trace, pass ? TRACE_BACKWARD : TRACE_FORWARD, n->name, n->kind->name, start, seconds);
    start += seconds;
    m++;
  }
  CHECK(m == g->marks + g->marked - 1);
  g->walks += !pass;
}

void profile_free(Graph *g) {
  for (int i = 0; g->marks && i <= g->nodes; i++) g->dev->memory->timing->forget(g->dev, &g->marks[i]);
  free(g->marks);
}

// ---- printing -----------------------------------------------------------------------------------------------------

typedef struct Row { // of one pass, sums over the walks
  double seconds, floor;
  Work work;
  bool products; // bounded by arithmetic rather than by memory
} Row;

// The floor is the least time for the work at the device's ceilings, with operands of type `act`; 0 where they are not
// known.
static Row node_row(const Node *n, int pass, DType act, const Ceiling *c) {
  Row r = {.seconds = n->seconds[pass], .work = n->work[pass]};
  double flops = c->flops[act];
  double arithmetic = flops > 0 ? r.work.flops / flops : 0, memory = c->bytes > 0 ? r.work.bytes / c->bytes : 0;
  r.products = flops > 0 ? arithmetic > memory : r.work.flops > 0;
  r.floor = flops > 0 || !r.products ? MAX(arithmetic, memory) : 0;
  return r;
}

static void row_add(Row *sum, const Row *r) {
  sum->seconds += r->seconds, sum->floor += r->floor;
  sum->work.flops += r->work.flops, sum->work.bytes += r->work.bytes;
}

static void print_share(const Row *r, FILE *out) {
  if (r->floor > 0 && r->seconds > 0)
    fprintf(out, " %5.1f%%", 100 * r->floor / r->seconds);
  else
    fprintf(out, " %6s", "");
}

static void print_pass(const Row *r, int walks, FILE *out) {
  fprintf(out, "  %9.3f ms", 1e3 * r->seconds / walks);
  if (r->products)
    fprintf(out, " %8.3f TFLOP/s", r->work.flops / r->seconds / 1e12);
  else if (r->work.bytes > 0)
    fprintf(out, " %8.1f GB/s   ", r->work.bytes / r->seconds / 1e9);
  else
    fprintf(out, " %16s", "");
  print_share(r, out);
}

static void print_node(const Graph *g, const Node *n, const Ceiling *c, double total, FILE *out) {
  Row r[2] = {node_row(n, 0, g->act, c), node_row(n, 1, g->act, c)};
  fprintf(out, "%-41s %-12s %-9s %5.1f%%", n->name, n->kind->name, part_names[n->part],
          100 * (r[0].seconds + r[1].seconds) / total);
  for (int pass = 0; pass < 2 && r[pass].seconds > 0; pass++) print_pass(&r[pass], g->walks, out);
  fprintf(out, "\n");
}

// A sum has no rate of its own; in its place stands its floor, the sum of those of its nodes.
static void print_sum(const char *name, const Row r[2], bool known, double total, int walks, FILE *out) {
  fprintf(out, "%-64s %5.1f%%", name, 100 * (r[0].seconds + r[1].seconds) / total);
  for (int pass = 0; pass < 2 && r[pass].seconds > 0; pass++) {
    fprintf(out, "  %9.3f ms", 1e3 * r[pass].seconds / walks);
    if (!known) continue;
    fprintf(out, " min %8.3f ms ", 1e3 * r[pass].floor / walks);
    print_share(&r[pass], out);
  }
  fprintf(out, "\n");
}

static void print_ceiling(const Graph *g, const Ceiling *c, FILE *out) {
  double flops = c->flops[g->act];
  fprintf(out, "ceiling of %s:", g->dev->description);
  if (flops > 0)
    fprintf(out, " products %.4g TFLOP/s", flops / 1e12);
  else
    fprintf(out, " products not known");
  fprintf(out, ", memory %.4g GB/s", c->bytes / 1e9);
  fprintf(out, "; a share above 100%% was fed from a cache\n");
}

void profile_print(const Graph *g, FILE *out) {
  if (!g->walks) return;
  Ceiling c;
  g->dev->memory->timing->ceiling(g->dev, &c);
  Row part[PARTS][2] = {0}, all[2] = {0};
  for (int i = 0; i < g->nodes; i++)
    for (int pass = 0; pass < 2; pass++) {
      Row r = node_row(g->node[i], pass, g->act, &c);
      row_add(&part[g->node[i]->part][pass], &r);
      row_add(&all[pass], &r);
    }
  double total = all[0].seconds + all[1].seconds;
  bool known = c.flops[g->act] > 0 && c.bytes > 0;
  print_ceiling(g, &c, out);
  fprintf(out, "%-41s %-12s %-9s %6s  %-36s  %s\n", "node", "kind", "part", "share",
          "  forward: time, rate, of ceiling", "  backward");
  for (int i = 0; i < g->nodes; i++) print_node(g, g->node[i], &c, total, out);
  for (int p = 0; p < PARTS; p++) print_sum(part_names[p], part[p], known, total, g->walks, out);
  print_sum("all nodes", all, known, total, g->walks, out);
  fprintf(out, "a step takes %.3f ms in its nodes, mean of %d", 1e3 * total / g->walks, g->walks);
  if (known) fprintf(out, "; at the ceilings %.3f ms", 1e3 * (all[0].floor + all[1].floor) / g->walks);
  fprintf(out, "\n");
}
