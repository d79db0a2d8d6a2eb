#include "nn/profile.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/clock.h"

// ---- work ---------------------------------------------------------------------------------------------------------

// Share of a tensor's rows that hold data.
static double valid_share(const Graph *g, const Tensor *t) {
  if (!t->count) return 1;
  int rows;
  device_download(g->dev, &rows, t->count, sizeof rows);
  return (double)rows / t->n;
}

// Of a slice its own channels.
static double valid_bytes(const Graph *g, const Tensor *t) {
  size_t lanes = (size_t)MIN(t->ldc, channel_pitch(t->c));
  return (double)(tensor_pixels(t) * lanes * dtype_size(t->dtype)) * valid_share(g, t);
}

static double param_bytes(const Tensor *t) { return (double)tensor_bytes(t); }

// What convolutions read of a filter, folded or not, has the activations' type.
static double filter_bytes(const Graph *g, const Param *p) {
  return (double)(tensor_elements(&p->master) * dtype_size(g->act));
}

static double value_bytes(const Graph *g, const Value *v) {
  return v->type == VALUE_TENSOR ? valid_bytes(g, &v->x) : 0; // records are not counted: floors are low, not high
}

static double gradient_bytes(const Graph *g, const Value *v) { return valid_bytes(g, &v->dx); }

// Bytes of an input that its node reads at least: of a strided window's, the pixels that some output looks at.
static double input_bytes(const Graph *g, const Node *n, int i) {
  const Value *v = n->in[i].v;
  double share = 1;
  if (n->type->gathers || v->type != VALUE_TENSOR) return 0;
  if (n->type->window && i < n->outs)
    share = (double)tensor_pixels(&n->out[i]->x) * n->type->window(n) / (double)tensor_pixels(&v->x);
  return MIN(1, share) * value_bytes(g, v);
}

static bool trains(const Param *p) { return p && p->trainable; }

static double forward_bytes(const Graph *g, const Node *n) {
  double bytes = 0;
  for (int i = 0; i < n->ins; i++) bytes += input_bytes(g, n, i);
  for (int i = 0; i < n->outs; i++) bytes += value_bytes(g, n->out[i]);
  for (int i = 0; i < n->uses; i++) {
    const Param *p = n->use[i].p;
    if (p) bytes += p->filter ? filter_bytes(g, p) : param_bytes(&p->master);
  }
  return bytes;
}

// Of dx: written, read before where it is added to, and what is added on the way. The mask is counted by the caller.
static double destination_bytes(const Graph *g, const Value *v, bool accumulate, const Value *addend) {
  return gradient_bytes(g, v) * (accumulate ? 2 : 1) + (addend ? gradient_bytes(g, addend) : 0);
}

static double backward_bytes(const Graph *g, const Node *n) {
  double bytes = 0, filters = 0;
  bool dgrad = false, reads_in = n->type->reads_in;
  for (int i = 0; i < n->uses; i++) {
    const Param *p = n->use[i].p;
    if (p && p->filter) {
      filters += filter_bytes(g, p);
      reads_in &= p->trainable; // for wgrad
    }
    if (trains(p)) bytes += param_bytes(&p->grad) * (n->use[i].accumulate ? 2 : 1);
  }
  for (int i = 0; i < n->outs && !n->type->source; i++) bytes += gradient_bytes(g, n->out[i]);
  for (int i = 0; i < n->ins; i++) {
    const Input *in = &n->in[i];
    if (in->mask)
      bytes += value_bytes(g, in->mask);
    else if (reads_in && in->flow == FLOW_DENSE)
      bytes += input_bytes(g, n, i);
    if (!in->wanted) continue;
    dgrad = true;
    bytes += destination_bytes(g, in->v, in->accumulate, in->addend);
  }
  if (dgrad) bytes += filters;
  for (int i = 0; i < n->copies; i++) {
    const GradCopy *c = &n->copy[i];
    bytes += destination_bytes(g, c->to, c->accumulate, c->addend);
    if (c->from) bytes += gradient_bytes(g, c->from);
    if (c->mask) bytes += value_bytes(g, c->mask);
  }
  return bytes;
}

// What a pass over a node has to do with the rows that hold data at this moment.
static Work node_work(const Graph *g, const Node *n, Pass pass) {
  if (n->in_place) return (Work){0};
  Work w = {.bytes = pass == PASS_BACKWARD ? backward_bytes(g, n) : forward_bytes(g, n)};
  if (n->type->flops) w.flops = n->type->flops(n, pass) * valid_share(g, &n->out[0]->x);
  return w;
}

// ---- timing -------------------------------------------------------------------------------------------------------

static void mark(Profile *p, Graph *g) { g->dev->memory->timing->mark(g->dev, &p->marks[p->marked++]); }

static void begin(Observer *o, Graph *g, Pass pass) {
  Profile *p = (Profile *)o;
  p->marked = 0;
  device_sync(g->dev);
  p->walk_start[pass] = now_seconds();
  mark(p, g);
}

static void after(Observer *o, Graph *g, Node *n, Pass pass) {
  (void)n;
  (void)pass;
  mark((Profile *)o, g);
}

static void end(Observer *o, Graph *g, Pass pass) {
  static const TraceLane lane[PASSES] = {TRACE_FORWARD, TRACE_BACKWARD};
  Profile *p = (Profile *)o;
  device_sync(g->dev);
  double start = p->walk_start[pass];
  const Mark *m = p->marks;
  const Step *s = g->walk + (pass == PASS_BACKWARD ? g->forward_steps : 0);
  for (; m < p->marks + p->marked - 1; s++) {
    const Node *n = s->node;
    double seconds = g->dev->memory->timing->elapsed(g->dev, m, m + 1);
    Work w = node_work(g, n, s->pass);
    NodeProfile *sum = &p->node[n->id];
    sum->seconds[s->pass] += seconds;
    sum->work[s->pass].flops += w.flops;
    sum->work[s->pass].bytes += w.bytes;
    if (p->trace) trace_event(p->trace, lane[s->pass], n->name, n->type->name, start, seconds);
    start += seconds;
    m++;
  }
  CHECK(s - g->walk == (pass == PASS_BACKWARD ? g->steps : g->forward_steps));
  p->walks += pass == PASS_FORWARD;
}

void profile_start(Profile *p, Graph *g, Trace *trace) {
  if (!p->node) {
    p->node = xcalloc((size_t)g->nodes, sizeof *p->node);
    p->marks = xcalloc((size_t)g->steps + 1, sizeof *p->marks);
  }
  p->observer = (Observer){.begin = begin, .after = after, .end = end};
  p->trace = trace;
  graph_unobserve(g, &p->observer);
  graph_observe(g, &p->observer);
}

void profile_stop(Profile *p, Graph *g) { graph_unobserve(g, &p->observer); }

void profile_free(Profile *p, Graph *g) {
  for (int i = 0; p->marks && i <= g->steps; i++) g->dev->memory->timing->forget(g->dev, &p->marks[i]);
  profile_stop(p, g);
  free(p->marks);
  free(p->node);
  *p = (Profile){0};
}

// ---- printing -----------------------------------------------------------------------------------------------------

typedef struct ProfileRow { // of one pass, sums over the walks
  double seconds, floor;
  Work work;
  bool products; // bounded by arithmetic rather than by memory
} ProfileRow;

// The floor is the least time for the work at the device's ceilings, with operands of type `act`; 0 where they are not
// known.
static ProfileRow node_row(const NodeProfile *n, Pass pass, DType act, const Ceiling *c) {
  ProfileRow r = {.seconds = n->seconds[pass], .work = n->work[pass]};
  double flops = c->flops[act];
  double arithmetic = flops > 0 ? r.work.flops / flops : 0, memory = c->bytes > 0 ? r.work.bytes / c->bytes : 0;
  r.products = flops > 0 ? arithmetic > memory : r.work.flops > 0;
  r.floor = flops > 0 || !r.products ? MAX(arithmetic, memory) : 0;
  return r;
}

static void row_add(ProfileRow *sum, const ProfileRow *r) {
  sum->seconds += r->seconds;
  sum->floor += r->floor;
  sum->work.flops += r->work.flops;
  sum->work.bytes += r->work.bytes;
}

static void print_share(const ProfileRow *r, FILE *out) {
  if (r->floor > 0 && r->seconds > 0)
    fprintf(out, " %5.1f%%", 100 * r->floor / r->seconds);
  else
    fprintf(out, " %6s", "");
}

static void print_pass(const ProfileRow *r, int walks, FILE *out) {
  fprintf(out, "  %9.3f ms", 1e3 * r->seconds / walks);
  if (r->products)
    fprintf(out, " %8.3f TFLOP/s", r->work.flops / r->seconds / 1e12);
  else if (r->work.bytes > 0)
    fprintf(out, " %8.1f GB/s   ", r->work.bytes / r->seconds / 1e9);
  else
    fprintf(out, " %16s", "");
  print_share(r, out);
}

static void print_node(const Profile *p, const Graph *g, const Node *n, const Ceiling *c, double total, FILE *out) {
  const NodeProfile *sum = &p->node[n->id];
  fprintf(out, "%-41s %-12s %-9s %5.1f%%", n->name, n->type->name, n->part,
          100 * (sum->seconds[PASS_FORWARD] + sum->seconds[PASS_BACKWARD]) / total);
  for (Pass pass = PASS_FORWARD; pass < PASSES && sum->seconds[pass] > 0; pass++) {
    ProfileRow r = node_row(sum, pass, g->act, c);
    print_pass(&r, p->walks, out);
  }
  fprintf(out, "\n");
}

// A sum has no rate of its own; it shows a lower bound of the time instead, the sum of its nodes' bounds.
static void print_sum(const char *name, const ProfileRow r[2], bool known, double total, int walks, FILE *out) {
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
  fprintf(out, "limits of %s:", g->dev->description);
  if (flops > 0)
    fprintf(out, " %.4g TFLOP/s", flops / 1e12);
  else
    fprintf(out, " FLOP rate unknown");
  fprintf(out, ", memory %.4g GB/s", c->bytes / 1e9);
  fprintf(out, "; above 100%%: data came from a cache\n");
}

// The sum over all nodes of a part and of a type; NULL: any.
static void sum_nodes(const Profile *p, const Graph *g, const char *part, const NodeType *type, const Ceiling *c,
                      ProfileRow sum[PASSES]) {
  memset(sum, 0, PASSES * sizeof *sum);
  for (int i = 0; i < g->nodes; i++) {
    if ((part && strcmp(g->node[i]->part, part)) || (type && g->node[i]->type != type)) continue;
    for (Pass pass = PASS_FORWARD; pass < PASSES; pass++) {
      ProfileRow r = node_row(&p->node[i], pass, g->act, c);
      row_add(&sum[pass], &r);
    }
  }
}

// Whether node i is the first of its type.
static bool begins_type(const Graph *g, int i) {
  for (int k = 0; k < i; k++)
    if (g->node[k]->type == g->node[i]->type) return false;
  return true;
}

void profile_print(const Profile *p, const Graph *g, FILE *out) {
  if (!p->walks) return;
  Ceiling c;
  g->dev->memory->timing->ceiling(g->dev, &c);
  ProfileRow all[PASSES], sum[PASSES];
  sum_nodes(p, g, NULL, NULL, &c, all);
  double total = all[PASS_FORWARD].seconds + all[PASS_BACKWARD].seconds;
  bool known = c.flops[g->act] > 0 && c.bytes > 0;
  print_ceiling(g, &c, out);
  fprintf(out, "%-41s %-12s %-9s %6s  %-36s  %s\n", "node", "type", "part", "share",
          "  forward: time, rate, % of limit", "  backward");
  for (int i = 0; i < g->nodes; i++) print_node(p, g, g->node[i], &c, total, out);
  for (int i = 0; i < g->nodes; i++) {
    if (!graph_begins_part(g, i)) continue;
    sum_nodes(p, g, g->node[i]->part, NULL, &c, sum);
    print_sum(g->node[i]->part, sum, known, total, p->walks, out);
  }
  for (int i = 0; i < g->nodes; i++) {
    char title[64];
    if (!begins_type(g, i)) continue;
    snprintf(title, sizeof title, "all %s", g->node[i]->type->name);
    sum_nodes(p, g, NULL, g->node[i]->type, &c, sum);
    print_sum(title, sum, known, total, p->walks, out);
  }
  print_sum("all nodes", all, known, total, p->walks, out);
  fprintf(out, "%.3f ms per step in all nodes (mean of %d)", 1e3 * total / p->walks, p->walks);
  if (known)
    fprintf(out, "; %.3f ms at the limits", 1e3 * (all[PASS_FORWARD].floor + all[PASS_BACKWARD].floor) / p->walks);
  fprintf(out, "\n");
}
