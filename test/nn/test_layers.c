// Batch norm over ranks: parts of a batch on each rank against the whole batch on one device, in double.
#include "comm/collective.h"
#include "nn/layers.h"
#include "test/harness/net.h"
#include "test/harness/ranks.h"

enum { H = 5, W = 7 };

// What the next net is built for.
static struct {
  Comm *comm;
  int images;
  bool over_ranks;
} given;

static Value *normed(Net *net, const char *name, Value *x, Value *addend) {
  NormLayer layer = {.batch = true, .eps = 1e-5f, .momentum = 0.1f, .relu = true, .trainable = true, .addend = addend};
  layer.over_ranks = given.over_ranks;
  return layer_norm(&net->graph, name, x, &layer);
}

// Two norms, of which the second's gradient goes through the first; its first tensor is the input, its last what the
// loss weighs the output by.
static void build_two_norms(Net *net) {
  net->graph.comm = given.comm;
  Value *x = normed(net, "bn0", net_conv(net, "a", net_input(net, given.images, H, W, 3), 5, 1, 1, false, NULL), NULL);
  net_loss(net, normed(net, "bn1", net_conv(net, "b", x, 5, 3, 1, false, NULL), x));
}

static void open_net(Net *net, Comm *c, int images, bool over_ranks) {
  given.comm = c;
  given.images = images;
  given.over_ranks = over_ranks;
  net_open(net, build_two_norms, 1, c != NULL);
}

// ---- alone ----------------------------------------------------------------------------------------------------------

static void expect_same_memory(const void *a, const void *b, size_t elements) {
  EXPECT(!memcmp(a, b, elements * sizeof(double)));
}

TEST(layers_batch_norm_over_one_rank) {
  Net plain, over;
  open_net(&plain, NULL, 3, false);
  open_net(&over, NULL, 3, true);
  net_run(&plain);
  net_run(&over);
  EXPECT(plain.loss == over.loss && plain.params.trainable == over.params.trainable);
  expect_same_memory(plain.params.grad, over.params.grad, plain.params.trainable);
  expect_same_memory(plain.params.master, over.params.master, plain.params.elements);
  EXPECT_INT(plain.graph.bytes, over.graph.bytes);
  // Behind what is trained stand the statistics that ranks have of their own: two of two norms; of all ranks, none.
  const Param *first = params_find(&plain.params, "bn0.running_mean");
  EXPECT_INT(plain.params.moving, 4 * PARAM_ALIGN);
  EXPECT((double *)first->master.data == (double *)plain.params.master + plain.params.trainable);
  EXPECT_INT(over.params.moving, 0);
  net_close(&plain);
  net_close(&over);
}

// ---- over ranks -----------------------------------------------------------------------------------------------------

// Rank r has r + 1 images: which come first, and how many are those of all.
static int images_before(int rank) { return rank * (rank + 1) / 2; }

// This rank's images of the whole's input or loss weights.
static void take_part(Net *part, const Net *whole, int which, int rank) {
  const Tensor *from = &whole->tensor[which], *to = &part->tensor[which];
  const size_t image = tensor_elements(from) / (size_t)from->n;
  memcpy(to->data, (double *)from->data + (size_t)images_before(rank) * image, tensor_bytes(to));
}

static void expect_near(const double *got, const double *want, size_t n) {
  for (size_t i = 0; i < n; i++) EXPECT_NEAR(got[i], want[i], 1e-11 * (1 + fabs(want[i])));
}

static void check_parts(Comm *c, void *nothing) {
  (void)nothing;
  const int rank = comm_rank(c), world = comm_world(c);
  Net part, whole;
  open_net(&whole, NULL, images_before(world), false);
  open_net(&part, c, rank + 1, true);
  for (int which = 0; which < whole.tensors; which++) take_part(&part, &whole, which, rank);
  for (int walk = 0; walk < 2; walk++) {
    net_run(&whole);
    net_run(&part);
    // A loss is a sum over images: the whole's and its gradients are sums over ranks.
    double loss = part.loss, *gradients = part.params.grad;
    collective_mean(c, part.dev, COMM_WITH_OPS, &loss, 1, F64);
    EXPECT_NEAR(loss * world, whole.loss, 1e-11 * whole.magnitude);
    collective_mean(c, part.dev, COMM_WITH_OPS, gradients, part.params.trainable, F64);
    size_t n;
    double *got = copy_gradients(&part.params, &n), *want = copy_gradients(&whole.params, &n);
    for (size_t i = 0; i < n; i++) got[i] *= world;
    expect_near(got, want, n);
    free(got);
    free(want);
    // Statistics have moved as the whole's; and are the same on all ranks.
    const size_t elements = part.params.elements;
    for (int i = 0; i < part.params.n; i++) {
      const Param *q = part.params.list[i], *of_whole = params_find(&whole.params, q->name);
      expect_near(q->master.data, of_whole->master.data, tensor_elements(&q->master));
    }
    double *first = memcpy(xmalloc(elements * sizeof *first), part.params.master, elements * sizeof *first);
    collective_broadcast(c, part.dev, COMM_WITH_OPS, first, elements * sizeof *first);
    expect_same_memory(first, part.params.master, elements);
    free(first);
  }
  net_close(&part);
  net_close(&whole);
}

TEST(layers_batch_norm_over_ranks) {
  test_limit(60);
  for (int world = 2; world <= 3; world++) expect_ranks(world, check_parts, NULL);
}
