// Catches validation losses that depend on the batch size or the number of ranks.
#include "test/harness/ranks.h"
#include "test/harness/small_set.h"
#include "test/harness/synthetic.h"
#include "test/harness/test.h"
#include "training/validate.h"

enum { CLASSES = 3 };

static bool stop_at_once(void) { return true; }

// The mean over images, whatever the batches they come in; the same again, since nothing of the model has changed.
TEST(validate_has_the_mean_of_images) {
  Dataset d;
  if (!open_set(&d, small_set("validate-set"), &small_options)) return;
  const ModelConfig config = synthetic_config(small_options.resize.size, small_options.resize.max_size, CLASSES);
  const Category category[CLASSES - 1] = {{.id = 3}, {.id = 8}};
  double total[3];
  for (int batch = 1; batch <= 2; batch++) {
    Shapes shapes = shapes_of(&d, batch);
    shapes.losses = true;
    Engine e;
    Err err = {""};
    Metrics m = {0}, again = {0};
    if (!EXPECT(engine_open(&e, &(Compute){.device = "cpu"}, model_of(&config), &config, category, &(Shapes){0},
                            &shapes, false, &err)))
      printf("    %s\n", err.msg);
    params_randomise(&e.params, 1);
    EXPECT(validate_run(&e, &d, 1, NULL, &m, &err) && validate_run(&e, &d, 2, NULL, &again, &err));
    EXPECT(m.n == 1 + model_losses(e.model) && !memcmp(&m, &again, sizeof m));
    double sum = 0;
    for (int i = 1; i < m.n; i++) sum += m.metric[i].value;
    EXPECT_STR(m.metric[0].name, "val_loss");
    EXPECT_STR(m.metric[1].name, "val_loss_objectness");
    EXPECT_NEAR(m.metric[0].value, sum, 1e-12);
    total[batch] = m.metric[0].value;
    err_set(&err, "something");
    EXPECT(!validate_run(&e, &d, 1, stop_at_once, &m, &err) && !*err.msg);
    engine_close(&e);
  }
  // Losses of a batch are means over what was sampled of all its images, so that batches weigh images differently.
  EXPECT(total[1] > 0 && fabs(total[1] - total[2]) < 0.2 * total[1]);
  dataset_close(&d);
}

static void open_validating(Engine *e, const Dataset *d) {
  const ModelConfig config = synthetic_config(small_options.resize.size, small_options.resize.max_size, CLASSES);
  const Category category[CLASSES - 1] = {{.id = 3}, {.id = 8}};
  Shapes shapes = shapes_of(d, 2);
  Err err;
  shapes.losses = true;
  if (!engine_open(e, &(Compute){.device = "cpu"}, model_of(&config), &config, category, &(Shapes){0}, &shapes, false,
                   &err))
    die(EXIT_RUN, "%s", err.msg);
  params_randomise(&e->params, 1);
}

typedef struct Validated {
  const Dataset *d;
  Metrics want;
} Validated;

static bool validate_on_a_rank(Comm *comm, void *context) {
  const Validated *v = context;
  Engine e;
  Err err = {""};
  Metrics m = {0}, none = {0};
  open_validating(&e, v->d);
  e.comm = comm;
  bool ok = EXPECT(validate_run(&e, v->d, 1, NULL, &m, &err));
  ok = EXPECT(!memcmp(&m, comm_rank(comm) ? &none : &v->want, sizeof m)) && ok;
  engine_close(&e);
  return ok;
}

// Rank 0 has the bits of one rank, the others nothing.
TEST(validate_is_the_same_on_several_ranks) {
  Dataset d;
  if (!open_set(&d, small_set("validate-ranks"), &small_options)) return;
  Engine e;
  Err err;
  Validated v = {.d = &d};
  open_validating(&e, &d);
  EXPECT(validate_run(&e, &d, 1, NULL, &v.want, &err) && v.want.n > 1);
  engine_close(&e);
  for (int world = 2; world <= 3; world++) EXPECT(true_on_ranks(world, validate_on_a_rank, &v));
  dataset_close(&d);
}
