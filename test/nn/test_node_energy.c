// Catches energy assigned to the wrong node.
#include <math.h>
#include "base/clock.h"
#include "nn/node_energy.h"
#include "test/harness/net.h"
#include "test/harness/test.h"

static void build(Net *net) {
  Value *x = net_input(net, 2, 6, 8, 5);
  Value *y = net_conv(net, "a", x, 16, 3, 1, true, NULL);
  net_loss(net, net_conv(net, "b", y, 8, 1, 2, false, NULL));
}

static void *made_up_open(Device *dev) { return dev; }
static bool made_up_read(void *meter, MeterReading *r) {
  (void)meter;
  *r = (MeterReading){1e3 * now_seconds(), 1500};
  return true;
}
static int closed;
static void made_up_close(void *meter) { closed += meter != NULL; }

// Each node's figures, and the gradients as without. (The loss is added up by a node of the test's.) The count goes up
// between any two looks.
TEST(node_energy_of_a_walk) {
  Net net, plain;
  net_open(&net, build, 0, false);
  net_open(&plain, build, 0, false);
  Graph *g = &net.graph;
  const Memory *own = g->dev->memory;
  Memory memory = *own;
  Timing timing = *memory.timing;
  timing.meter_open = made_up_open;
  timing.meter_read = made_up_read;
  timing.meter_close = made_up_close;
  memory.timing = &timing;
  g->dev->memory = &memory;
  NodeEnergy e = {0};
  node_energy_start(&e, g, 0.02);
  net_run(&net);
  double joules = 0;
  for (int i = 0; i < g->nodes; i++) {
    const Sustained *s = &e.node[i];
    EXPECT(s->calls > 0 && s->seconds > 0 && s->cold > 0 && s->mhz == 1500);
    EXPECT(s->watts > 0 && isfinite(s->joules));
    joules += s->joules;
  }
  net_run(&plain);
  EXPECT(plain.loss != 0 && fabs(net.loss) > 1.9 * fabs(plain.loss)); // once in the walk, then again and again
  size_t count, same_count;
  double *gradients = copy_gradients(&net.params, &count), *want = copy_gradients(&plain.params, &same_count);
  EXPECT(count == same_count && !memcmp(gradients, want, count * sizeof *want));
  free(gradients);
  free(want);
  char *text = NULL;
  size_t size;
  FILE *f = open_memstream(&text, &size);
  node_energy_print(&e, g, f);
  fclose(f);
  EXPECT(strstr(text, "\na  ") && strstr(text, "\nall  ") && strstr(text, "\nall nodes  ") && joules > 0);
  EXPECT(strstr(text, " 100.0%   1500 MHz\n"));
  free(text);
  node_energy_free(&e, g);
  EXPECT_INT(closed, 1);
  g->dev->memory = own;
  net_close(&net);
  net_close(&plain);
}
