// Catches an engine that works only for Mask R-CNN.
#include "base/alloc.h"
#include "engine/detect.h"
#include "engine/state.h"
#include "nn/layers.h"
#include "test/harness/synthetic.h"
#include "test/harness/test.h"

enum { H = 32, W = 32, IMAGES = 2, CAPACITY = 2, CLASSES = 4, STEPS = 30 };

// ---- the model: a convolution learns to answer with the label of each image's first object --------------------------

static void image_forward(Graph *g, Node *n) {
  const Preprocess p = {.unit = 255, .std = {1, 1, 1}};
  const BatchImages *images = &n->in[0].v->images;
  g->dev->ops->preprocess(g->dev, &p, images->info, images->bytes, &n->out[0]->x);
}
static const NodeType image_node = {.name = "image", .forward = image_forward};

static float target_of(const Truth *t, int image) {
  return t->count[image] ? (float)t->label[image * t->capacity] / CLASSES : 0;
}

// loss = mean of (y - target)² / 2 over all pixels, and how many images have an object. Inputs: y, truth.
static void loss_forward(Graph *g, Node *n) {
  if (g->dev->measuring) return;
  const Tensor *y = &n->in[0].v->x;
  const Truth *truth = &n->in[1].v->truth;
  double sum = 0;
  int seen = 0;
  for (int i = 0; i < y->n; i++) {
    seen += truth->count[i] > 0;
    for (int p = 0; p < y->h * y->w; p++) {
      float apart = ((const float *)y->data)[((size_t)i * (size_t)(y->h * y->w) + (size_t)p) * (size_t)y->ldc];
      apart -= target_of(truth, i);
      sum += 0.5 * apart * apart;
    }
  }
  *(float *)n->out[0]->x.data = (float)(sum / (double)tensor_pixels(y));
  *n->out[1]->rois.count = seen;
}

static void loss_backward(Graph *g, Node *n) {
  if (g->dev->measuring) return;
  const Tensor *y = &n->in[0].v->x, *dy = &n->in[0].v->dx;
  memset(dy->data, 0, tensor_bytes(dy));
  for (int i = 0; i < y->n; i++)
    for (int p = 0; p < y->h * y->w; p++) {
      size_t at = ((size_t)i * (size_t)(y->h * y->w) + (size_t)p) * (size_t)y->ldc;
      float apart = ((const float *)y->data)[at] - target_of(&n->in[1].v->truth, i);
      ((float *)dy->data)[at] = apart / (float)tensor_pixels(y);
    }
}
static const NodeType loss_node = {
    .name = "label_loss", .forward = loss_forward, .backward = loss_backward, .source = true, .reads_in = true};

static void toy_build(Network *network) {
  Graph *g = &network->graph;
  g->part = "all";
  Node *image = graph_node(g, &image_node, "image");
  Value *x = graph_value(g, "image", tensor(g->act, network->images, network->canvas_h, network->canvas_w, 3));
  node_in(image, network->input, FLOW_NONE);
  node_out(image, x);
  ConvLayer conv = {
      .k = 1, .r = 3, .s = 3, .stride = 2, .pad = 1, .bias = true, .trainable = true, .init = INIT_KAIMING_UNIFORM};
  Value *y = layer_conv(g, "stem", x, &conv), *seen = graph_rois(g, "seen", 1);
  y->keep = true;
  network->counter[0] = &seen->rois.count;
  if (!g->training) {
    network->result[0] = y;
    return;
  }
  Node *loss = graph_node(g, &loss_node, "label_loss");
  node_in(loss, y, FLOW_DENSE);
  node_in(loss, network->truth, FLOW_NONE);
  node_out(loss, network->losses);
  node_out(loss, seen);
}

static const Model toy = {.name = "toy",
                          .background = true,
                          .outputs = &outputs_detections,
                          .inputs = BATCH_BIT(BATCH_INFO) | BATCH_BIT(BATCH_BYTES),
                          .targets = BATCH_BIT(BATCH_LABEL) | BATCH_BIT(BATCH_COUNT),
                          .build = toy_build,
                          .loss = {{"loss_label", "label", 0}},
                          .counter = {"seen"}};

// ---- on the engine --------------------------------------------------------------------------------------------------

static void open_toy(Engine *e, const Batch *b) {
  const ModelConfig config = synthetic_config(H, W, CLASSES);
  const Category names[CLASSES - 1] = {{0}};
  const Shapes shapes = {.canvases = 1,
                         .canvas = {{.h = H, .w = W}},
                         .images = IMAGES,
                         .max_objects = CAPACITY,
                         .max_bytes = b->num_bytes,
                         .max_words = b->num_words};
  Err err;
  if (!engine_open(e, &(Compute){.device = "cpu"}, &toy, &config, names, &shapes, &shapes, false, &err))
    die(EXIT_RUN, "%s", err.msg);
  params_randomise(&e->params, 3);
}

TEST(engine_trains_any_model) {
  Batch b = synthetic_batch(IMAGES, H, W, CAPACITY, CLASSES, (int[]){1, 2}, 5);
  const StepOptions options = {.learning_rate = 0.1f, .momentum = 0.9f};
  Engine e;
  StepResult first, last;
  open_toy(&e, &b);
  EXPECT(e.train.inputs.array[BATCH_LABEL].room > 0 && !e.train.inputs.array[BATCH_BITS].room); // what it asks for
  EXPECT(e.infer.inputs.array[BATCH_BYTES].room > 0 && !e.infer.inputs.array[BATCH_LABEL].room);
  engine_step(&e, &b, &options, &first);
  for (int i = 0; i < STEPS; i++) engine_step(&e, &b, &options, &last);
  EXPECT(first.finite && first.total == first.loss[0] && last.loss[0] < 0.5 * first.loss[0]);
  EXPECT_INT(last.counter[0], IMAGES);
  engine_time_nodes(&e, true, NULL);
  engine_step(&e, &b, &options, &last);
  EXPECT(e.train.profile[0].walks == 1 && last.forward_seconds > 0);
  engine_time_nodes(&e, false, NULL);
  engine_close(&e);
  synthetic_free(&b);
}

TEST(engine_saves_any_model) {
  Batch b = synthetic_batch(IMAGES, H, W, CAPACITY, CLASSES, (int[]){2, 1}, 6);
  Engine e, again;
  StepResult r;
  Err err;
  Checkpoint c;
  char path[512];
  snprintf(path, sizeof path, "%s/toy.safetensors", test_tmp());
  open_toy(&e, &b);
  engine_step(&e, &b, &(StepOptions){.learning_rate = 0.1f}, &r);
  RunState state = {.step = 1, .run = "{}"};
  state_take(&e, &state);
  CHECK(state_write(&e, &state, &(StateFile){.path = path, .momentum = true}, &err));
  open_toy(&again, &b);
  if (EXPECT(state_open(&c, path, &err))) {
    EXPECT(state_load(&again, &c, &(LoadOptions){.momentum = true}, &err));
    ckpt_close(&c);
  }
  params_refresh(&e.params);
  engine_infer(&e, &b);
  engine_infer(&again, &b);
  const Tensor *one = &e.infer.network->result[0]->x, *two = &again.infer.network->result[0]->x;
  EXPECT(!memcmp(one->data, two->data, tensor_bytes(one)));
  engine_close(&again);
  engine_close(&e);
  synthetic_free(&b);
}

// A checkpoint names its model where that is not the first; one of another build's is refused by name.
TEST(engine_refuses_unknown_models) {
  ModelConfig config = synthetic_config(H, W, CLASSES);
  Err err;
  EXPECT(model_choose(&config, "maskrcnn", &err) && model_of(&config) == models[0]);
  EXPECT(!model_choose(&config, "toy", &err));
  EXPECT_STR(err.msg,
             "unknown model 'toy'; this build has maskrcnn fasterrcnn resnet alexnet overfeat vgg googlenet vgg-28");
}

// A checkpoint of anybody's may ask for more boxes than kernels can count: one line, not an overflow.
TEST(engine_refuses_boxes_beyond_counting) {
  ModelConfig config = synthetic_config(H, W, 65536);
  config.rpn_post_nms_test = 32769;
  const Shapes shapes = {.canvases = 1, .canvas = {{.h = H, .w = W}}, .images = 2, .max_objects = 1};
  Category *names = xcalloc(65535, sizeof *names);
  Engine e;
  Err err;
  EXPECT(!engine_open(&e, &(Compute){.device = "cpu"}, model_of(&config), &config, names, &(Shapes){0}, &shapes, false,
                      &err));
  EXPECT(strstr(err.msg, " RoIs, has too many boxes for 32-bit counters; use a smaller --batch"));
  engine_close(&e);
  free(names);
}
