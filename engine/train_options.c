#include "engine/train_options.h"
#include <math.h>
#include "base/cli.h"
#include "data/batches/canvas.h"
#include "engine/engine.h"
#include "models/config.h"

const char *const schedule_names[] = {"step", "cosine", NULL};
static const char *const recipes[] = {"auto", "torchvision", "detectron2", "mlperf",
                                      NULL};                                // auto, then as recipe_names
static const char *const norms[] = {"auto", "frozen-bn", "bn", "gn", NULL}; // auto, then as norm_names

TrainOptions train_options(int argc, char **argv) {
  TrainOptions o = {.train_split = "train",
                    .val_split = "val",
                    .out = "out",
                    .device = "auto",
                    .gpus = 1,
                    .batch = 2,
                    .epochs = 12,
                    .warmup = -1,
                    .trainable_layers = -1,
                    .canvases = 2,
                    .seed = 1,
                    .momentum = 0.9f,
                    .weight_decay = 1e-4f,
                    .flip = 0.5f};
  const char *sizes = NULL;
  // clang-format off
  Option table[] = {
      {.kind = OPT_HEADING, .help = "Data"},
      {.name = "data", .kind = OPT_STRING, .target = &o.data, .arg = "DIR",
       .help = "COCO layout: annotations/instances_<split>*.json beside <split>*/"},
      {.name = "train-split", .kind = OPT_STRING, .target = &o.train_split, .arg = "NAME",
       .help = "what to train on"},
      {.name = "val-split", .kind = OPT_STRING, .target = &o.val_split, .arg = "NAME", .help = "what to evaluate on"},
      {.name = "limit", .kind = OPT_INT, .target = &o.limit, .arg = "N", .min = 0, .max = INT32_MAX,
       .help = "train on the first N usable images by id; 0 = all"},
      {.name = "val-limit", .kind = OPT_INT, .target = &o.val_limit, .arg = "N", .min = 0, .max = INT32_MAX,
       .help = "evaluate on the first N images by id; 0 = all"},
      {.name = "keep-empty", .kind = OPT_FLAG, .target = &o.keep_empty,
       .help = "also train on images without an object, as background"},
      {.name = "exif", .kind = OPT_FLAG, .target = &o.exif,
       .help = "turn images as their EXIF orientation says: for annotations of upright pictures; COCO's are not"},
      {.name = "flip", .kind = OPT_FLOAT, .target = &o.flip, .arg = "P", .min = 0, .max = 1,
       .help = "probability of mirroring an image"},
      {.name = "threads", .kind = OPT_INT, .target = &o.threads, .arg = "N", .min = 0, .max = 256,
       .help = "decoder threads; 0 = one per core"},
      {.name = "strict", .kind = OPT_FLAG, .target = &o.strict,
       .help = "stop at a bad image instead of replacing it"},
      {.kind = OPT_HEADING, .help = "Model"},
      {.name = "model", .kind = OPT_STRING, .target = &o.model, .arg = "NAME",
       .help = "tiny, maskrcnn-r18-fpn, r34, r50, r101, r152; default maskrcnn-r50-fpn, or that of --weights"},
      {.name = "weights", .kind = OPT_STRING, .target = &o.weights, .arg = "FILE",
       .help = "start from this checkpoint: ours, torchvision's (.pth, .safetensors), or its ResNet as backbone"},
      {.name = "reset-heads", .kind = OPT_FLAG, .target = &o.reset_heads,
       .help = "with --weights: new outputs for another set of classes"},
      {.name = "norm", .kind = OPT_CHOICE, .target = &o.norm, .choices = norms,
       .help = "of the backbone; auto: gn from scratch, else the checkpoint's"},
      {.name = "trainable-layers", .kind = OPT_INT, .target = &o.trainable_layers, .arg = "N", .min = -1, .max = 5,
       .help = "backbone stages trained, from the last; -1 = all from scratch, else the checkpoint's"},
      {.name = "size", .kind = OPT_INT, .target = &o.size, .arg = "N", .min = 0, .max = MAX_SHORTER_SIDE,
       .help = "shorter side in pixels; 0 = the model's"},
      {.name = "max-size", .kind = OPT_INT, .target = &o.max_size, .arg = "N", .min = 0, .max = 16384,
       .help = "longer side at most; 0 = 5/3 of --size, or the model's"},
      {.name = "sizes", .kind = OPT_STRING, .target = &sizes, .arg = "LIST",
       .help = "multi-scale training: shorter sides of which an image draws one, as 640,672,704; --size is for evaluation then"},
      {.name = "canvases", .kind = OPT_INT, .target = &o.canvases, .arg = "N", .min = 1, .max = MAX_CANVASES,
       .help = "how many padded shapes at most"},
      {.name = "recipe", .kind = OPT_CHOICE, .target = &o.recipe, .choices = recipes,
       .help = "whose conventions, warmup and decay; auto: torchvision's, but the model of --weights keeps its own"},
      {.kind = OPT_HEADING, .help = "Optimisation"},
      {.name = "batch", .kind = OPT_INT, .target = &o.batch, .arg = "N", .min = 1, .max = 1024,
       .help = "images per step and GPU"},
      {.name = "epochs", .kind = OPT_INT, .target = &o.epochs, .arg = "N", .min = 1, .max = 100000, .help = "length"},
      {.name = "iters", .kind = OPT_INT64, .target = &o.iters, .arg = "N", .min = 0, .max = 1e12,
       .help = "length in steps, instead of --epochs"},
      {.name = "lr", .kind = OPT_FLOAT, .target = &o.lr, .arg = "X", .min = 0, .max = 1e6,
       .help = "learning rate; 0 = 0.02 per 16 images of the batch"},
      {.name = "schedule", .kind = OPT_CHOICE, .target = &o.schedule, .choices = schedule_names,
       .help = "step: x0.1 at 2/3 and 8/9"},
      {.name = "warmup", .kind = OPT_INT, .target = &o.warmup, .arg = "N", .min = -1, .max = 1e9,
       .help = "steps of linear warmup; -1 = the recipe's (1000; mlperf 500), at most a tenth of the run"},
      {.name = "momentum", .kind = OPT_FLOAT, .target = &o.momentum, .arg = "X", .min = 0, .max = 1,
       .help = "of SGD"},
      {.name = "weight-decay", .kind = OPT_FLOAT, .target = &o.weight_decay, .arg = "X", .min = 0, .max = 1,
       .help = "of SGD"},
      {.name = "clip-grad", .kind = OPT_FLOAT, .target = &o.clip, .arg = "X", .min = 0, .max = 1e9,
       .help = "limit of the gradient norm; 0 = none"},
      {.name = "seed", .kind = OPT_INT64, .target = &o.seed, .arg = "N", .min = 0, .max = 9e15,
       .help = "of everything random"},
      {.kind = OPT_HEADING, .help = "Run"},
      {.name = "out", .kind = OPT_STRING, .target = &o.out, .arg = "DIR",
       .help = "checkpoint.safetensors, model.safetensors, log.jsonl, curves.svg"},
      {.name = "resume", .kind = OPT_FLAG, .target = &o.resume, .help = "continue the run in --out, bit for bit"},
      {.name = "eval-every", .kind = OPT_INT, .target = &o.eval_every, .arg = "N", .min = -1, .max = 1e9,
       .help = "steps between evaluations; 0 = at the end only, -1 = never"},
      {.name = "checkpoint-every", .kind = OPT_INT, .target = &o.checkpoint_every, .arg = "N", .min = 0, .max = 1e9,
       .help = "steps between checkpoints; 0 = an epoch, but at least 100"},
      {.name = "stop-after", .kind = OPT_INT, .target = &o.stop_after, .arg = "N", .min = 0, .max = 1e9,
       .help = "save and stop after N steps of this call, for queues with a time limit; 0 = run to the end"},
      {.name = "device", .kind = OPT_STRING, .target = &o.device, .arg = "NAME", .help = "auto, cpu or cuda:N"},
      {.name = "gpus", .kind = OPT_INT, .target = &o.gpus, .arg = "N", .min = 1, .max = 1024, .help = "ranks"},
      {.name = "amp", .kind = OPT_CHOICE, .target = &o.amp, .choices = amp_names, .implied = "bf16",
       .help = "16-bit activations (GPU)"},
      {.name = "tf32", .kind = OPT_FLAG, .target = &o.tf32, .help = "TF32 products (GPU)"},
      {.name = "conv", .kind = OPT_STRING, .target = &o.conv, .arg = "RUNG", .help = "convolution kernels (GPU)"},
      {.kind = OPT_HEADING, .help = "Looking inside"},
      {.name = "plan", .kind = OPT_FLAG, .target = &o.plan, .help = "print the memory plan and stop"},
      {.name = "benchmark", .kind = OPT_INT, .target = &o.benchmark, .arg = "STEPS", .implied = "200", .min = 0,
       .max = 1e6, .help = "time STEPS steps (alone: 200) after half as many to warm up, print a record, stop"},
      {.name = "benchmark-loader", .kind = OPT_INT, .target = &o.benchmark_loader, .arg = "BATCHES", .implied = "100",
       .min = 0, .max = 1e6, .help = "the loader without a model: time BATCHES batches (alone: 100) on 1, 2, 4 … "
                                     "--threads after half as many to warm up, print records, stop"},
      {.name = "full-masks", .kind = OPT_FLAG, .target = &o.full_masks,
       .help = "with --benchmark: every row of the mask branch holds an object, 128 an image of R50-FPN"},
      {.name = "profile", .kind = OPT_FLAG, .target = &o.profile,
       .help = "print at the end, for every node, its time and how near it comes to what the device can do"},
      {.name = "trace", .kind = OPT_STRING, .target = &o.trace, .arg = "FILE",
       .help = "write what ran when, for chrome://tracing"},
  };
  // clang-format on
  Cli cli = {.usage = "--data DIR [options]",
             .about = "Trains Mask R-CNN on a data set in COCO format.",
             .options = table,
             .num_options = COUNT(table)};
  cli_parse_or_exit(&cli, argc, argv);
  if (!o.model && !o.weights) o.model = "maskrcnn-r50-fpn";
  if (o.reset_heads && !o.weights) die(EXIT_USAGE, "--reset-heads needs --weights FILE, whose heads it resets");
  if (!o.data) die(EXIT_USAGE, "--data DIR is missing; --help lists the options");
  if (o.full_masks && !o.benchmark) die(EXIT_USAGE, "--full-masks is for --benchmark: it changes what is learnt");
  Err err;
  if (sizes && !sizes_parse(&o.sizes, sizes, &err)) die(EXIT_USAGE, "--sizes %s", err.msg);
  if (o.gpus > 1) die(EXIT_USAGE, "--gpus %d: this build trains on one device", o.gpus);
  size_t size;
  FILE *text = open_memstream(&o.resolved, &size);
  CHECK(text);
  cli_print_config(&cli, text);
  CHECK(!fclose(text));
  return o;
}
