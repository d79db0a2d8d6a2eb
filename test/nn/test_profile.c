// Catches counts of operations and bytes in the profile that are wrong.
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "nn/profile.h"
#include "nn/timing.h"
#include "test/harness/net.h"
#include "test/harness/test.h"

static int held_rows = 1; // of two

// a: 3×3 over an input that wants no gradient; b: 1×1 stride 2, which reads a quarter of its input, a ReLU.
static void build(Net *net) {
  Value *x = net_input(net, 2, 6, 8, 5);
  Value *y = net_conv(net, "a", x, 16, 3, 1, true, NULL);
  net_loss(net, net_conv(net, "b", y, 8, 1, 2, false, NULL));
}

static void expect_work(const Profile *p, const Graph *g, const char *name, Pass pass, double flops, double elements) {
  const Work *w = &p->node[graph_find_node(g, name)->id].work[pass];
  if (!EXPECT(w->flops == flops && w->bytes == sizeof(double) * elements))
    fprintf(stderr, "  %s, pass %d: %g flops, %g elements\n", name, pass, w->flops, w->bytes / sizeof(double));
}

TEST(profile_work) {
  Net net;
  net_open(&net, build, 0, false);
  Graph *g = &net.graph;
  Profile p = {0};
  profile_start(&p, g, NULL);
  net_run(&net);
  double pixels = 2 * 6 * 8, quarter = pixels / 4;
  double x = pixels * 8, y = pixels * 16, z = quarter * 8; // channels padded to 8
  double a = 16 * 9 * 8, b = 8 * 16;
  expect_work(&p, g, "a", PASS_FORWARD, 2 * pixels * 16 * 9 * 5, x + a + 16 + y);
  expect_work(&p, g, "a", PASS_BACKWARD, 2 * pixels * 16 * 9 * 5, y + x + a + 16); // wgrad alone: dy, x, dw, db
  expect_work(&p, g, "b", PASS_FORWARD, 2 * quarter * 8 * 16, quarter * 16 + b + 8 + z);
  // wgrad and dgrad: dy, w, dw, db, all of y as the mask, dx
  expect_work(&p, g, "b", PASS_BACKWARD, 2 * 2 * quarter * 8 * 16, z + b + b + 8 + y + y);
  EXPECT_INT(p.walks, 1);
  profile_free(&p, &net.graph);
  net_close(&net);
}

static void build_head(Net *net) {
  Graph *g = &net->graph;
  Value *x = net_stem(net, "stem", 2, 6, 8, 16, false);
  Value *y = layer_avg_pool(g, "pool", x, (AvgPool){.window = {.size = 2, .stride = 2}}, false);
  net_loss(net, layer_concat(g, "concat", 2, (Value *[]){y, layer_dropout(g, "dropout", y, 0.5f)}));
}

// Nothing but memory: what is read and written once, and read again where a gradient is added to.
TEST(profile_work_without_products) {
  Net net;
  net_open(&net, build_head, 0, false);
  Graph *g = &net.graph;
  Profile p = {0};
  profile_start(&p, g, NULL);
  net_run(&net);
  const double x = 2 * 6 * 8 * 16, y = x / 4;
  expect_work(&p, g, "pool", PASS_FORWARD, 0, x + y);
  expect_work(&p, g, "pool", PASS_BACKWARD, 0, y + x);
  expect_work(&p, g, "dropout", PASS_FORWARD, 0, y + y);
  expect_work(&p, g, "dropout", PASS_BACKWARD, 0, y + 2 * y); // behind the concatenation's share of dy
  expect_work(&p, g, "concat", PASS_FORWARD, 0, 2 * y + 2 * y);
  expect_work(&p, g, "concat", PASS_BACKWARD, 0, 2 * y + 2 * y);
  profile_free(&p, &net.graph);
  net_close(&net);
}

// Rows past the count are neither computed nor moved.
TEST(profile_work_of_valid_rows) {
  Net net;
  net_open(&net, build, 0, false);
  Graph *g = &net.graph;
  for (int i = 0; i < g->values; i++) g->value[i]->x.count = g->value[i]->dx.count = &held_rows;
  Profile p = {0};
  profile_start(&p, g, NULL);
  graph_forward(g);
  expect_work(&p, g, "a", PASS_FORWARD, 6 * 8 * 2 * 16 * 9 * 5, 6 * 8 * 8 + 16 * 9 * 8 + 16 + 6 * 8 * 16);
  profile_free(&p, &net.graph);
  net_close(&net);
}

TEST(profile_seconds) {
  Net net;
  net_open(&net, build, 0, false);
  Graph *g = &net.graph;
  net_run(&net);
  EXPECT(!g->observers); // not asked for
  Profile p = {0};
  profile_start(&p, g, NULL);
  double start = now_seconds(), sum = 0;
  for (int i = 0; i < 3; i++) net_run(&net);
  double all = now_seconds() - start;
  for (int i = 0; i < g->nodes; i++) {
    const double *seconds = p.node[i].seconds;
    EXPECT(seconds[0] > 0 && (seconds[1] > 0) == g->node[i]->runs_backward);
    sum += seconds[0] + seconds[1];
  }
  EXPECT(sum <= all);
  EXPECT_INT(p.walks, 3);
  EXPECT(p.walk_start[0] > start && p.walk_start[1] > p.walk_start[0]);
  profile_free(&p, &net.graph);
  net_close(&net);
}

TEST_TIER(profile_rows, 1) {
  Net net;
  net_open(&net, build, 0, false);
  Profile p = {0};
  profile_start(&p, &net.graph, NULL);
  net_run(&net);
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  CHECK(out);
  profile_print(&p, &net.graph, out);
  fclose(out);
  static const char *const expected[] = {"limits of CPU", "\na  ",         "\nb  ",
                                         "\ninput  ",     "TFLOP/s",       "GB/s",
                                         "\nall conv  ",  "\nall nodes  ", " ms per step in all nodes (mean of "};
  for (int i = 0; i < COUNT(expected); i++)
    if (!EXPECT(strstr(text, expected[i]))) fprintf(stderr, "  not there: %s\n", expected[i]);
  free(text);
  profile_free(&p, &net.graph);
  net_close(&net);
}

// Measured, so only what no machine can miss: a product of more than 10 MFLOP/s, a copy of more than 10 MB/s, less than
// a thousand times today's fastest chip.
TEST_TIER(profile_ceiling, 1) {
  Err err;
  Device *dev = device_open("cpu", &err);
  Ceiling c;
  dev->memory->timing->ceiling(dev, &c);
  EXPECT(c.flops[F32] > 1e7 && c.flops[F32] < 1e18 && c.bytes > 1e7 && c.bytes < 1e16);
  device_close(dev);
}

// Every node that ran is one event, in order, within the walk; lanes have names.
TEST(trace_is_json) {
  Net net;
  Err err;
  char path[512];
  snprintf(path, sizeof path, "%s/trace.json", test_tmp());
  net_open(&net, build, 0, false);
  Graph *g = &net.graph;
  Profile p = {0};
  Trace *trace = trace_open(path, &err);
  CHECK(trace);
  profile_start(&p, g, trace);
  double start = now_seconds();
  net_run(&net);
  double end = now_seconds();
  EXPECT(trace_close(trace, &err));
  int ran = 0, complete = 0, names = 0;
  for (int i = 0; i < g->nodes; i++) ran += 1 + g->node[i]->runs_backward;
  size_t size;
  char *text = file_read(path, &size, &err);
  Json j;
  json_open(&j, path, text, size);
  if (EXPECT(json_begin_array(&j))) {
    while (json_next(&j)) {
      const char *key;
      char phase = 0;
      double ts = 1e6 * start, duration = 0;
      for (bool open = json_begin_object(&j); open && (key = json_key(&j));) {
        if (!strcmp(key, "ph"))
          phase = *json_string(&j, NULL);
        else if (!strcmp(key, "ts"))
          ts = json_number(&j);
        else if (!strcmp(key, "dur"))
          duration = json_number(&j);
        else
          json_skip(&j);
      }
      complete += phase == 'X';
      names += phase == 'M';
      EXPECT(ts >= 1e6 * start - 1 && ts + duration <= 1e6 * end + 1); // microseconds
    }
  }
  EXPECT(json_done(&j));
  EXPECT_INT(complete, ran);
  EXPECT_INT(names, TRACE_LANES);
  json_close(&j);
  free(text);
  profile_free(&p, &net.graph);
  net_close(&net);
  EXPECT(!trace_open("/proc/nowhere/trace.json", &err) && strstr(err.msg, "/proc/nowhere/trace.json"));
}
