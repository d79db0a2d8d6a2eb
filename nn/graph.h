// Graph: a flat list of nodes over tensors of fixed shape. A step walks the list forward, then backward; both are fixed
// when the list is planned: which gradient contribution writes (=), which adds (+=), which is the last and applies the
// ReLU mask, and where every tensor lives.
#pragma once
#include <stdbool.h>
#include "base/trace.h"
#include "nn/arena.h"
#include "nn/device.h"
#include "nn/ops.h"
#include "nn/params.h"
#include "nn/tensor.h"

typedef struct Graph Graph;
typedef struct Node Node;

// An activation.
typedef struct Value {
  const char *name;
  Tensor x, dx;          // dx as x, of the gradient
  bool relu;             // x is a ReLU's output: the last contribution to dx is masked by x > 0
  bool keep;             // a result: x is left alone after its last reader
  bool needs_grad;       // something trainable stands before it
  int contributions;     // to dx, by nodes that run backward
  struct Value *alias;   // dx is that value's dx: the only contribution was an identity
  int *const *count;     // where the device pointer of the row count will stand once planned; NULL = all rows valid
  int block, grad_block; // in Graph.blocks; -1 = none
} Value;

// How an input takes part in the backward walk.
typedef enum Flow {
  FLOW_NONE,     // no gradient: indices, boxes
  FLOW_DENSE,    // the node's backward writes dx through node_dest
  FLOW_IDENTITY, // the contribution is dy of the node's output itself: the walk hands it on as an addend, no pass is made
} Flow;

typedef struct Input {
  Value *v;
  Flow flow;
  // resolved by graph_plan for the backward walk
  bool wanted; // dx is to be written by this node
  bool accumulate;
  const Tensor *addend, *mask;
} Input;

// An identity contribution that no dense one can carry becomes a copy after its node's backward.
typedef struct GradCopy {
  Value *v;
  const Tensor *x, *addend, *mask; // x NULL: zero
  bool accumulate;
} GradCopy;

typedef enum Part { PART_INPUT, PART_BACKBONE, PART_FPN, PART_RPN, PART_ROI, PARTS } Part;
extern const char *const part_names[PARTS];

// What a pass cannot do without: arithmetic, and every operand read once, every result written once.
typedef struct Work {
  double flops, bytes;
} Work;

// One row per kind of node.
typedef struct NodeKind {
  const char *name;
  void (*forward)(Graph *g, Node *n);
  void (*backward)(Graph *g, Node *n);      // NULL: nothing flows back
  bool source;                              // starts the backward walk (a loss)
  bool reads_in, reads_out;                 // backward reads x of its inputs, of its outputs
  double (*flops)(const Node *n, int pass); // of its matrix products, every row holding data; NULL = none
  int (*window)(const Node *n); // pixels of input i that one of output i looks at; NULL = the input is read whole
  bool gathers;                 // reads a few places of its inputs
} NodeKind;

enum { MAX_IN = 2 * MAX_LEVELS, MAX_OUT = MAX_LEVELS, MAX_COPIES = 2, POISON_GUARD = 256 };

struct Node {
  const NodeKind *kind;
  const char *name;
  Part part;
  int ins, outs;
  Input in[MAX_IN];
  Value *out[MAX_OUT];
  Param *filter, *bias; // where the kind has them
  Param *gamma, *beta;
  bool runs_backward;
  bool accumulate_params; // the parameters' gradients have an earlier contribution
  int copies;
  GradCopy copy[MAX_COPIES];
  double seconds[2];           // forward, backward, summed over the walks while Graph.timing
  Work work[2];                // the same
  _Alignas(16) char attr[256]; // the kind's own struct
};
#define NODE_ATTR(node, type) ((type *)(void *)((node)->attr))

struct Graph {
  Device *dev;
  Params *params;
  DType act; // of activations
  bool training;
  bool timing;        // node.seconds and node.work are kept, by nn/profile.c
  Trace *trace;       // with timing: every node as an event; NULL = none
  int walks;          // forward, timed
  struct Mark *marks; // of the walk that is being timed: its start, then the end of every node that ran
  int marked;
  double walk_start[2]; // now_seconds when the last forward, backward walk began; the device had nothing else to do
  bool poison;          // set by graph_poison
  Node **node;
  int nodes;
  Value **value;
  int values;
  ArenaBlock *blocks;
  void **owners; // pointers to the pointers that receive each block's address; NULL for tensors of values
  int num_blocks;
  size_t bytes; // of the arena, once planned
  char *arena;
  Part part;    // given to nodes appended next
  char **names; // owned strings
  int num_names;
};

void graph_init(Graph *g, Device *dev, Params *params, bool training);
void graph_free(Graph *g);

// ---- building ---------------------------------------------------------------------------------------------------

const char *graph_name(Graph *g, const char *fmt, ...) PRINTF_LIKE(2, 3); // owned by the graph
Value *graph_value(Graph *g, const char *name, Tensor shape);
Node *graph_node(Graph *g, const NodeKind *kind, const char *name);
void node_in(Node *n, Value *v, Flow flow);
void node_out(Node *n, Value *v);
// Memory that lives for the whole step; its address is stored in the pointer at `owner` once the graph is bound.
void graph_memory(Graph *g, const char *name, size_t bytes, void *owner);

// ---- planning ---------------------------------------------------------------------------------------------------

// Decides the backward walk and plans the arena (bytes is set). Counts every parameter's contributions.
void graph_plan(Graph *g);
// Walks the list without computing: dev->scratch_bytes grows to the most that any op asks for. After params_allocate.
void graph_measure(Graph *g);
// Debug aid, before graph_bind and on a CPU: every block gets memory of its own, is filled with NaN before and after its
// life, and a walk ends the program when something wrote past the end of one. The arena grows.
void graph_poison(Graph *g);
// Gives every tensor its address in an arena of at least g->bytes. Several graphs may share one arena, one at a time.
void graph_bind(Graph *g, void *arena);

// ---- running ----------------------------------------------------------------------------------------------------

void graph_forward(Graph *g);
void graph_backward(Graph *g);
void node_backward(Graph *g, Node *n);    // its part of graph_backward, if it runs_backward
Dest value_dest(const Value *v);          // plain destination for a forward result
Dest node_dest(const Node *n, int input); // destination for the gradient of an input that is wanted
