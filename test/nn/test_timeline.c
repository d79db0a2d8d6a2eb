// Catches a critical path that leaves out what a step waited for, or counts what ran beside it.
#include "nn/timeline.h"
#include "test/harness/net.h"
#include "test/harness/test.h"

// Two queues: a, then c, which waits for b, which runs beside a and longer; d waits for nothing but c.
TEST(timeline_critical_path_by_hand) {
  TimelineSpan s[] = {{.after = {-1, -1, -1}, .to = 2},
                      {.after = {-1, -1, -1}, .to = 5},
                      {.after = {0, 1, -1}, .to = 6},
                      {.after = {2, -1, -1}, .to = 9},
                      {.after = {1, -1, -1}, .to = 8}};
  EXPECT(timeline_add(s, COUNT(s)) == 9);
  EXPECT(timeline_add(s, COUNT(s)) == 9); // sums
  const double seconds[] = {2, 5, 1, 3, 3}, critical[] = {0, 5, 1, 3, 0}, begun[] = {0, 0, 5, 6, 5};
  for (int i = 0; i < COUNT(s); i++)
    EXPECT(s[i].seconds == 2 * seconds[i] && s[i].critical == 2 * critical[i] && s[i].begun == 2 * begun[i]);
}

static void build(Net *net) {
  Value *x = net_stem(net, "a", 2, 6, 8, 16, false);
  net_loss(net, net_conv(net, "b", x, 8, 1, 2, false, NULL));
}

// One queue: every step is on the path, which takes as long as the walk.
TEST(timeline_of_one_queue) {
  Net net;
  net_open(&net, build, 0, false);
  Timeline t = {0};
  timeline_start(&t, &net.graph);
  for (int i = 0; i < 2; i++) {
    net_run(&net);
    timeline_read(&t);
  }
  double critical = 0;
  EXPECT_INT(t.spans, net.graph.steps);
  EXPECT_INT(t.walks, 2);
  for (int i = 0; i < t.spans; i++) {
    EXPECT(t.span[i].seconds > 0 && t.span[i].critical == t.span[i].seconds);
    critical += t.span[i].critical;
  }
  EXPECT_NEAR(critical, t.seconds, 1e-6 * t.seconds);
  timeline_free(&t, &net.graph);
  EXPECT(!net.graph.observers);
  net_close(&net);
}
