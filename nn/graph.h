// Graph: a flat list of nodes over values of fixed shape. Training walks a flat list of steps: every node forward in
// the order of the list, and backward as soon as its outputs' gradients are complete. What a step does is fixed when
// the list is planned: which gradient contribution writes (=), which adds (+=), which is the last and applies the ReLU
// mask, where every value lives, and which steps a GPU runs beside others. A node declares all that it reads and
// writes: the list is the data-flow.
#pragma once
#include <stdbool.h>
#include "nn/arena.h"
#include "nn/collective.h"
#include "nn/device.h"
#include "nn/observer.h"
#include "nn/ops.h"
#include "nn/params.h"
#include "nn/tensor.h"

typedef struct Node Node;

// ---- values -----------------------------------------------------------------------------------------------------

// What flows from node to node: an activation with its gradient, or a record of nn/ops.h, which has none.
typedef enum ValueType {
  VALUE_TENSOR,
  VALUE_IMAGES, // a batch's images: an input of the graph
  VALUE_TRUTH,  // what to learn from them: an input
  VALUE_BOXES,
  VALUE_ROIS,
  VALUE_RPN_TARGETS,
  VALUE_BOX_TARGETS,
  VALUE_OBJECT_TARGETS,
  VALUE_LABELS, // the class of every image: an input
  VALUE_HITS,
} ValueType;

typedef struct BatchImages { // device pointers
  const ImageInfo *info;     // [images]
  const uint8_t *bytes;
} BatchImages;

typedef struct BoxTargets { // of sampled RoIs, a row each; part of RoiTargets
  int *label;               // [rois], 0 = background
  Tensor delta;             // [rois, 4] regression targets of the objects
} BoxTargets;

typedef struct ObjectTargets { // of the objects among them
  int *label;                  // [objects]
  int *truth;                  // [objects] row in Truth
} ObjectTargets;

typedef struct Value Value;
struct Value {
  const char *name;
  int id; // its index in Graph.value
  ValueType type;
  union {
    struct {
      Tensor x, dx; // dx as x, of the gradient
    };
    BatchImages images;
    Truth truth;
    Boxes boxes;
    Rois rois;
    RpnTargets rpn_targets;
    BoxTargets box_targets;
    ObjectTargets object_targets;
    const int *labels; // device, [images]; as class_loss takes them
    Hits hits;
  };
  Value *rows;       // VALUE_ROIS whose RoIs have a row of x each, and how many; NULL = every row holds data
  bool relu;         // x is a ReLU's output: the last contribution to dx is masked by x > 0
  bool keep;         // a result: left alone after its last reader. Records are small and kept always
  bool needs_grad;   // something trainable stands before it
  int contributions; // to dx, by nodes that run backward
  Value *alias;      // dx is that value's dx: the only contribution was an identity
  Value *whole;      // x and dx are that value's, its channels from `first` on: a part of a concatenation in place
  int first;
  int block, grad_block; // of a tensor, in Graph.blocks; -1 = none
};

// ---- nodes ------------------------------------------------------------------------------------------------------

// How an input takes part in the backward walk.
typedef enum Flow {
  FLOW_NONE,     // no gradient: images, boxes, targets; both directions may read it
  FLOW_DENSE,    // the node's backward writes dx through node_dest
  FLOW_IDENTITY, // the contribution is dy of the node's output itself: handed on as an addend, without a pass
} Flow;

typedef struct Input {
  Value *v;
  Flow flow;
  // resolved by graph_plan for the backward walk
  bool wanted; // dx is to be written by this node
  bool accumulate;
  const Value *addend; // whose dx is added on the way
  const Value *mask;   // whose x masks dx
} Input;

// An identity contribution that no dense one can carry becomes a copy after its node's backward.
typedef struct GradCopy {
  const Value *to;            // dx(to) (+)= …
  const Value *from;          // dx(from), NULL: zero
  const Value *addend, *mask; // dx(addend), x(mask)
  bool accumulate;
} GradCopy;

// A parameter that a node reads (batch norm's forward also moves its running statistics), and whether its gradient has
// an earlier contribution in the backward walk.
typedef struct ParamUse {
  Param *p;
  bool accumulate;
} ParamUse;

// What a pass cannot do without: arithmetic, and every operand read once, every result written once.
typedef struct Work {
  double flops, bytes;
} Work;

// One row per type of node.
typedef struct NodeType {
  const char *name;
  size_t attr_size; // of the type's own struct, NODE_ATTR
  void (*forward)(Graph *g, Node *n);
  void (*backward)(Graph *g, Node *n);       // NULL: nothing flows back
  void (*gradients)(Graph *g, Node *n);      // of parameters, where backward leaves them to this; NULL: it does not
  bool source;                               // starts the backward walk (a loss)
  bool reads_in;                             // backward reads x of its FLOW_DENSE inputs
  double (*flops)(const Node *n, Pass pass); // of its matrix products, every row holding data; NULL = none
  int (*window)(const Node *n); // pixels of input i that one of output i looks at; NULL = the input is read whole
  bool gathers;                 // reads a few elements of its inputs
  bool beside;     // a small kernel or two, which run beside all steps that they do not depend on; has no backward
  int lent;        // beside: multiprocessors that products leave to it meanwhile
  bool slices;     // its one output and the gradient of that may be slices, if it has one input
  bool concat;     // its inputs stand side by side in its output
  bool recomputed; // its output, of the graph's images alone, is computed anew for backward rather than kept
                   // (rematerialisation) where that is a small share of a step
} NodeType;

enum { MAX_IN = 2 * MAX_LEVELS + 2, MAX_OUT = MAX_LEVELS, MAX_SAVED = 3, MAX_USES = 8, MAX_COPIES = 2, MAX_ASIDES = 2 };

struct Node {
  const NodeType *type;
  const char *name;
  const char *part; // of the network, for profiles
  int id;           // its index in Graph.node
  int step[PASSES]; // of the walk, once planned; backward -1 where it does not run
  int ins, outs, saves, uses, asides;
  Input in[MAX_IN];
  Value *out[MAX_OUT];
  Value *save[MAX_SAVED];   // of the node alone: written by forward, read by backward
  Value *aside[MAX_ASIDES]; // what one node's forward passes to another's outside the data flow: no gradient, not saved
  ParamUse use[MAX_USES];   // indexed by the type's own enum
  bool runs_backward;
  bool in_place;   // a concatenation whose parts have been written where they belong: nothing is left to do
  Node *recompute; // whose forward is run again before this node's backward, the first that reads its output; or NULL
  int copies;
  GradCopy copy[MAX_COPIES];
  void *attr; // the type's own struct, zeroed
};
void *node_attr(const Node *n, size_t size);
#define NODE_ATTR(node, type) ((type *)node_attr(node, sizeof(type)))

// One node in one pass. A GPU has queues: a step waits for what it depends on in another one (nn/walk.c).
typedef struct Step {
  Node *node;
  Pass pass;
  bool beside;  // in QUEUE_BESIDE
  bool splits;  // its parameters' gradients are in QUEUE_GRADIENTS, and done before the step behind the next such one
  int lent;     // multiprocessors that its products leave to steps beside it
  int after;    // the step of the other queue that it waits for, WALK_BEGIN, or NO_STEP
  bool awaited; // a step of the other queue waits for it
  int first, last; // steps at whose time it may run: its own, but for one beside, or one that splits
} Step;
enum { NO_STEP = -1, WALK_BEGIN = -2 };
enum { MARK_BEGIN, MARK_OPS, MARK_GRADIENTS, MARKS }; // of the walk's begin, and of both queues in turn

// An array of a record: memory that the plan places, whose address it stores in the pointer at `owner`.
typedef struct RecordArray {
  const Value *v;
  size_t bytes;
  void *owner;
  int block;
} RecordArray;

struct Graph {
  Device *dev;
  Params *params;
  const RankGroup *ranks; // that share a batch, for nodes that look at all of it: set before nodes are appended
  DType act;              // of activations
  bool training;
  LossScale loss_scale; // what every loss gradient is multiplied by; NULL = 1
  uint64_t seed;        // of what is drawn in a step, and …
  const uint64_t *step; // … device: the step's number; NULL = 0
  Observer *observers;  // of the walks, in the order in which they are called
  Node **node;
  int nodes;
  Value **value;
  int values;
  RecordArray *array;
  int arrays;
  Step *walk; // once planned: of graph_forward …
  int steps;
  int forward_steps;   // … so many, and of graph_backward
  int last_beside;     // that no step waits for; NO_STEP
  size_t beside_bytes; // of the arena, that steps cost which run beside others
  void **mark;         // [steps + MARKS] GPU: of those awaited, then of more
  bool gradients_run;  // in QUEUE_GRADIENTS, for which QUEUE_OPS has not waited
  ArenaBlock *blocks;
  int num_blocks;
  size_t bytes; // of the arena, once planned
  char *arena;
  const char *part; // given to nodes appended next
  char **names;     // owned strings
  int num_names;
};

void graph_init(Graph *g, Device *dev, Params *params, bool training);
void graph_free(Graph *g);

// ---- building ---------------------------------------------------------------------------------------------------

const char *graph_name(Graph *g, const char *fmt, ...) PRINTF_LIKE(2, 3); // owned by the graph
Value *graph_value(Graph *g, const char *name, Tensor shape);
Node *graph_writer(const Graph *g, const Value *v); // the node that writes it; NULL: none
int graph_readers(const Graph *g, const Value *v);  // how many inputs of nodes it is
// Records whose arrays the plan places. Capacities as in nn/ops.h.
Value *graph_boxes(Graph *g, const char *name, int groups, int capacity);
Value *graph_rois(Graph *g, const char *name, int capacity);
Value *graph_rpn_targets(Graph *g, const char *name, int images, int batch);
Value *graph_box_targets(Graph *g, const char *name, int rois);
Value *graph_object_targets(Graph *g, const char *name, int objects);
Value *graph_hits(Graph *g, const char *name);
// Inputs, whose pointers the caller keeps up to date.
Value *graph_images(Graph *g, const char *name);
Value *graph_truth(Graph *g, const char *name, int images, int capacity);
Value *graph_labels(Graph *g, const char *name);

Node *graph_node(Graph *g, const NodeType *type, const char *name);
void node_in(Node *n, Value *v, Flow flow);
void node_out(Node *n, Value *v); // several nodes may write parts of one value that has no gradient
void node_save(Node *n, Value *v);
void node_aside(Node *n, Value *v); // of the node that writes it and of those that read it
void node_use(Node *n, Param *p);   // NULL leaves the slot empty

// Whether node i is the first of its part.
bool graph_begins_part(const Graph *g, int i);
// By name; NULL when there is none.
Node *graph_find_node(const Graph *g, const char *name);
Value *graph_find_value(const Graph *g, const char *name);

// ---- planning ---------------------------------------------------------------------------------------------------

// Decides the walk and plans the arena (bytes is set). Counts every parameter's contributions.
void graph_plan(Graph *g);
// Parts of it, in nn/walk.c: the order of steps, once it is known which nodes run backward; which are beside others.
void walk_order(Graph *g);
void walk_beside(Graph *g);
// Walks without computing: dev->workspace_bytes, and beside_bytes, grow to the most that any op asks for. After
// params_allocate.
void graph_measure(Graph *g);
// Gives every value its address in an arena of at least g->bytes. Several graphs may share one arena, one at a time.
void graph_bind(Graph *g, void *arena);

// All memory that a node reads or writes in a pass, by what it declares: values, and gradients, whose memory may be
// another value's than that whose gradient it is.
typedef struct Touch {
  void (*value)(void *context, const Value *v);
  void (*gradient)(void *context, const Value *owner);
  void *context;
} Touch;
void node_touches(const Node *n, Pass pass, const Touch *t);

// The list, one node per line: its part, type and name, and the values that it reads, writes and keeps for backward.
// Parameters have the node's name.
void graph_print(const Graph *g, FILE *out);

// Whether an observer has to be there whenever a node runs: then a walk cannot be recorded and replayed.
bool graph_watched(const Graph *g);

// ---- running ----------------------------------------------------------------------------------------------------

// The walk in two parts, of which the first ends with the last node's forward, and has what runs backward before that.
void graph_forward(Graph *g);
void graph_backward(Graph *g);
void graph_run_step(Graph *g, int step); // one of them, at once
// The same in two parts, of a step that splits: all but the gradients of its parameters, and these. Observers' `before`
// and `between` enclose the first, and `after` follows the second.
void graph_run_backward(Graph *g, int step);
void graph_run_gradients(Graph *g, int step);
// Between the two calls ops are queued behind all that the walk has queued so far, in QUEUE_GRADIENTS, where the walk
// uses queues. For observers.
bool graph_gradients_begin(Graph *g); // false: it does not, or they are already
void graph_gradients_end(Graph *g);   // after true
// Whether a node has a value among what it reads or writes in a pass.
bool node_has(const Node *n, Pass pass, const Value *v);
Dest value_dest(const Value *v);          // plain destination for a forward result
Dest node_dest(const Node *n, int input); // destination for the gradient of an input that is wanted
