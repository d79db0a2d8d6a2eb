#include "engine/train_options.h"
#include "engine/engine.h"
#include "nn/optim.h"

const char *const schedule_names[] = {[DECAY_STEP] = "step", [DECAY_COSINE] = "cosine", NULL};

static const float DEFAULT_CLIP = 10; // of the gradient norm: docs/training.md says why

TrainOptions train_options(int argc, char **argv) {
  TrainOptions o = {OPTION_DEFAULTS(TRAIN_OPTIONS)};
  OPTION_TABLE(table, TrainOptions, TRAIN_OPTIONS);
  Cli cli = {.usage = "--data DIR [options]",
             .about = "Trains Mask R-CNN on a data set in COCO format.",
             .options = table,
             .num_options = COUNT(table),
             .values = &o};
  cli_parse_or_exit(&cli, argc, argv);
  if (!o.model && !o.weights) o.model = DEFAULT_MODEL;
  if (o.reset_heads && !o.weights) die(EXIT_USAGE, "--reset-heads needs --weights FILE, whose heads it resets");
  if (!o.data) die(EXIT_USAGE, "--data DIR is missing; --help lists the options");
  if (o.full_masks && !o.benchmark) die(EXIT_USAGE, "--full-masks is for --benchmark: it changes what is learnt");
  Err err;
  if (o.sizes && !sizes_parse(&o.shorter_sides, o.sizes, &err)) die(EXIT_USAGE, "--sizes %s", err.msg);
  if (o.gpus > 1) die(EXIT_USAGE, "--gpus %d: this build trains on one device", o.gpus);
  if (o.clip_grad < 0) o.clip_grad = o.recipe ? 0 : DEFAULT_CLIP;
  size_t size;
  FILE *text = text_open(&o.resolved, &size);
  cli_print_config(&cli, text);
  text_close(text);
  return o;
}
