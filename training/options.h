// The command line of ./train.
#pragma once
#include "base/cli.h"
#include "data/batches/canvas.h"
#include "engine/reduction.h"
#include "training/batch_list.h"
#include "training/phases.h"

extern const char *const schedule_choices[];  // of TrainOptions.schedule: "auto", then "step", … as Decay
extern const char *const optimizer_choices[]; // of TrainOptions.optimizer: "auto", then optimizer_names
#define MOST_BETA 0.9999999f                  // 1 would leave a moment as it is
// Of TrainOptions.resume and .on_divergence, as the enumerators that follow.
extern const char *const resume_names[], *const divergence_names[];
enum { RESUME_NO, RESUME_LAST, RESUME_PREVIOUS };
enum { DIVERGENCE_STOP, DIVERGENCE_ROLLBACK };

// clang-format off
#define TRAIN_OPTIONS(X)                                                                                               \
  X(HEADING, "Data")                                                                                                   \
  X(STRING, data,             NULL,            "DIR",      "COCO layout: annotations/instances_<split>*.json beside "  \
                                                           "<split>*/; of a classifier IDX files, or <split>/CLASS/*; "\
                                                           "default $MASKRCNN_DATA, then ./coco")                      \
  X(STRING, train_split,      "train",         "NAME",     "what to train on")                                         \
  X(STRING, val_split,        "val",           "NAME",     "what to evaluate on")                                      \
  X(FLOAT,  val_fraction,     0, 0, 0.9,       "P",        "of a classifier: evaluate on this share of what would be " \
                                                           "trained on, drawn by --split-seed")                        \
  X(INT64,  split_seed,       -1, -1, 9e15,    "N",        "another number is another split; -1 = --seed")             \
  X(INT,    limit,            0, 0, INT32_MAX, "N",        "train on the first N usable images by id; 0 = all")        \
  X(INT,    val_limit,        0, 0, INT32_MAX, "N",        "evaluate on the first N images by id; 0 = all")            \
  X(FLAG,   keep_empty,       false,                       "also train on images without an object, as background")    \
  X(FLAG,   exif,             false,                       "turn images as their EXIF orientation says: for "          \
                                                           "annotations of upright pictures; COCO's are not")          \
  X(FLOAT,  flip,             -1, -1, 1,       "P",        "probability of mirroring an image; -1 = 0.5, of IDX 0")    \
  X(FLOAT,  rotate,           -1, -1, 359,     "DEGREES",  "of a classifier: images are turned by up to this, to "     \
                                                           "either side; -1 = 0, of IDX with --phases 8")              \
  X(FLOAT,  shift,            -1, -1, 0.99,    "P",        "and shifted by up to this share; -1 = 0, or 0.08")         \
  X(FLOAT,  shear,            -1, -1, 79,      "DEGREES",  "and sheared; -1 = 0, or 0.3")                              \
  X(FLOAT,  zoom,             -1, -1, 0.99,    "P",        "and made larger or smaller, up to this share; -1 = 0, or " \
                                                           "0.08")                                                     \
  X(FLOAT,  crop,             -1, -1, 0.99,    "P",        "and cut: at least this share of their area fills the "     \
                                                           "network's input; 0 = not; -1 = 0.08, of IDX 0")            \
  X(INT,    threads,          0, 0, 256,       "N",        "decoder threads; 0 = one per core")                        \
  X(FLAG,   strict,           false,                       "stop at a bad image instead of replacing it")              \
  X(HEADING, "Model")                                                                                                  \
  X(STRING, model,            NULL,            "NAME",     "a detector: tiny, maskrcnn-r18-fpn, r34, r50, r101, r152; "\
                                                           "a classifier: alexnet, overfeat, vgg11, vgg16, vgg19, "    \
                                                           "googlenet, resnet18, 34, 50, 101, 152, vgg-28; default "   \
                                                           "maskrcnn-r50-fpn, or that of --weights")                   \
  X(STRING, weights,          NULL,            "FILE",     "start from this checkpoint: ours, torchvision's (.pth, "   \
                                                           ".safetensors), or its ResNet as backbone")                 \
  X(FLAG,   reset_heads,      false,                       "with --weights: new outputs for another set of classes")   \
  X(CHOICE, norm,             0, norm_choices,             "of the backbone; auto: gn from scratch, else the "         \
                                                           "checkpoint's")                                             \
  X(INT,    trainable_layers, -1, -1, 5,       "N",        "of a ResNet, stages trained, from the last; -1 = all from "\
                                                           "scratch, else the checkpoint's")                           \
  X(INT,    size,             0, 0, MAX_SHORTER_SIDE, "N", "shorter side in pixels, of a classifier both; 0 = the "    \
                                                           "model's")                                                  \
  X(INT,    max_size,         0, 0, 16384,     "N",        "longer side at most; 0 = 5/3 of --size, or the model's")   \
  X(STRING, sizes,            NULL,            "LIST",     "multi-scale training: shorter sides of which an image "    \
                                                           "draws one, as 640,672,704; --size is for evaluation "      \
                                                           "then")                                                     \
  X(INT,    canvases,         2, 1, MAX_CANVASES, "N",     "how many padded shapes at most")                           \
  X(CHOICE, conventions,      0, conventions_choices,      "whose conventions, warmup and decay; auto: "               \
                                                           "torchvision's, but the model of --weights keeps its own")  \
  X(FLOAT,  label_smoothing,  -1, -1, 1,       "P",        "of a classifier: this share of the target is over all "    \
                                                           "classes; -1 = the model's")                                \
  X(FLOAT,  dropout,          -1, -1, 1,       "P",        "of a classifier, where it has any; -1 = the model's")      \
  X(HEADING, "Optimisation")                                                                                           \
  X(INT,    batch,            0, 0, 1024,      "N",        "images per step and GPU; 0 = 2, of a classifier 128")      \
  X(INT,    epochs,           0, 0, 100000,    "N",        "length; 0 = 12, of a classifier 90 or that of its phases") \
  X(INT64,  iters,            0, 0, 1e12,      "N",        "length in steps, instead of --epochs")                     \
  X(STRING, phases,           NULL,            "LIST",     "epochs and rates, as 10@1e-3,10@1e-4,25@1e-4+augment, "    \
                                                           "instead of --epochs, --lr and --schedule; vgg-28 has "     \
                                                           "10@1e-3,10@1e-4 unless one of them is given")              \
  X(FLOAT,  lr,               0, 0, 1e6,       "X",        "learning rate; 0 = 0.02 per 16 images of the batch, of a " \
                                                           "classifier 0.1 per 256 or the model's; of Adam 0.001")     \
  X(CHOICE, schedule,         0, schedule_choices,         "step: x0.1 at 2/3 and 8/9; auto: step, of a classifier "   \
                                                           "cosine, with phases of its own constant")                  \
  X(INT,    warmup,           -1, -1, 1e9,     "N",        "steps of linear warmup; -1 = 1000, of a classifier five "  \
                                                           "epochs, at most a third of the run; none where rates are " \
                                                           "constant, or as --conventions's source has it")                 \
  X(CHOICE, optimizer,        0, optimizer_choices,        "auto: sgd; of vgg-28 adam")                                \
  X(FLOAT,  momentum,         0.9f, 0, 1,      "X",        "of SGD")                                                   \
  X(FLOAT,  beta1,            0.9f, 0, MOST_BETA, "X",     "of Adam and AdamW: of its first moment")                   \
  X(FLOAT,  beta2,            0.999f, 0, MOST_BETA, "X",   "of its second moment")                                     \
  X(FLOAT,  eps,              1e-8f, 1e-30f, 1, "X",       "added to the root of its second moment")                   \
  X(FLOAT,  weight_decay,     -1, -1, 1,       "X",        "-1 = 1e-4, of Adam 0, of AdamW 0.01")                      \
  X(FLOAT,  clip_grad,        -1, -1, 1e9,     "X",        "limit of the gradient norm; 0 = none; -1 = 10, or none "   \
                                                           "with --conventions or of a classifier")                         \
  X(INT64,  seed,             1, 0, 9e15,      "N",        "of everything random")                                     \
  X(HEADING, "Run")                                                                                                    \
  X(STRING, out,              "out",           "DIR",      "checkpoint.safetensors and the one before it, "            \
                                                           "model.safetensors, log.jsonl, curves.svg, report.html")    \
  X(CHOICE_IMPLIED, resume,   0, resume_names, "last",      "continue the run in --out, bit for bit; previous: from "  \
                                                           "the checkpoint before the last")                           \
  X(FLAG,   amend,            false,                       "with --resume: go on with another length, --phases, --lr, "\
                                                           "--schedule, --warmup, --momentum, --weight-decay, "        \
                                                           "--clip-grad or --conventions")                                  \
  X(INT,    eval_every,       0, -1, 1e9,      "N",        "steps between evaluations; 0 = at the end only, -1 = "     \
                                                           "never; the best are kept as best-*.safetensors")           \
  X(INT,    eval_epochs,      -1, -1, 1e6,     "N",        "epochs between evaluations, where --eval-every is 0; 0 = " \
                                                           "none; -1 = 1, of a detector 0")                            \
  X(FLOAT,  report_score,     0.5f, 0, 1,      "P",        "in report.html, detections of this score and above count " \
                                                           "in the confusion and in the worst and best images")        \
  X(FLAG,   val_loss,         false,                       "evaluations also tell the losses on what is evaluated")    \
  X(INT,    patience,         0, 0, 1e6,       "N",        "end after N evaluations in a row without a gain; 0 = "     \
                                                           "never")                                                    \
  X(FLOAT,  target_bbox,      -1, -1, 1,       "AP",       "end when an evaluation reaches this box AP and every "     \
                                                           "other target, and print the time until then; -1 = none")   \
  X(FLOAT,  target_segm,      -1, -1, 1,       "AP",       "… this mask AP; -1 = none")                                \
  X(FLOAT,  target_top1,      -1, -1, 1,       "P",        "… of a classifier, this top-1 accuracy; -1 = none")        \
  X(INT,    checkpoint_every, 0, 0, 1e9,       "N",        "steps between checkpoints; 0 = an epoch, but at least "    \
                                                           "100, and once the one before is written; the last two "    \
                                                           "are kept")                                                 \
  X(INT,    keep,             0, 0, 1e6,       "N",        "also keep the last N as checkpoint-STEP.safetensors")      \
  X(CHOICE, on_divergence,    0, divergence_names,         "of a step that is not finite: stop, or go on from an "     \
                                                           "earlier checkpoint with half the rate, three times "       \
                                                           "at most")                                                  \
  X(INT,    stop_after,       0, 0, 1e9,       "N",        "save and stop after N steps of this call, for queues "     \
                                                           "with a time limit; 0 = run to the end")                    \
  X(STRING, device,           "auto",          "NAME",     "auto, cpu or cuda:N")                                      \
  X(CHOICE_IMPLIED, amp,      0, amp_names, "bf16",        "16-bit activations (GPU)")                                 \
  X(FLAG,   tf32,             false,                       "TF32 products (GPU)")                                      \
  X(STRING, conv,             NULL,            "RUNG[/TILE]", "convolution kernels (GPU)")                             \
  X(HEADING, "Several GPUs: docs/scaling.md")                                                                          \
  X(STRING, gpus,             "1",             "N",        "ranks, one a GPU; all: as many as there are; not under "   \
                                                           "torchrun, srun or mpirun, which start them")               \
  X(INT,    restarts,         0, 0, 1e6,       "N",        "start again up to N times, from the checkpoint, when a "   \
                                                           "rank of --gpus fails")                                     \
  X(STRING, rendezvous,       NULL,            "WHERE",    "where ranks of others meet: tcp:HOST:PORT or file:PATH; "  \
                                                           "default: as torchrun, srun or mpirun say")                 \
  X(FLOAT,  rendezvous_timeout, 300, 1, 1e6,   "SECONDS",  "that ranks wait for each other at the beginning")          \
  X(FLOAT,  timeout,          60, 1, 1e6,      "SECONDS",  "of silence after which a rank is lost")                    \
  X(CHOICE, reduce,           0, reduce_names,             "gradients cross as; none: not at all, for --benchmark")    \
  X(FLOAT,  bucket,           25, 0, 1e6,      "MB",       "of gradients are reduced together, at least")              \
  X(INT,    ctas,            16, 0, 32,        "N",        "thread blocks of NCCL at most; 0 = its choice")            \
  X(INT,    reserve,          -1, -1, 100,     "N",        "multiprocessors that kernels of the backward walk leave "  \
                                                           "to NCCL; -1 = as many as it takes, while it is at work")   \
  X(HEADING, "Looking inside")                                                                                         \
  X(FLAG,   plan,             false,                       "print the memory plan and stop")                           \
  X(INT_IMPLIED, benchmark,   0, -1, 1e6,      "STEPS", "-1",                                                          \
                                                           "time STEPS steps (alone: 200) after half as many to "      \
                                                           "warm up, print a record, stop; of a classifier without "   \
                                                           "--data: STEPS runs (alone: 100) of forward in training "   \
                                                           "mode, of forward and backward, and of a step, on made-up " \
                                                           "images, each by itself")                                   \
  X(FLAG,   forward_only,     false,                       "with --benchmark on made-up images: forward alone")        \
  X(STRING, batches,          NULL,            "LIST",     "with --benchmark on made-up images: these batch sizes "    \
                                                           "instead of --batch, as 1,2,…,128; where memory is out, "   \
                                                           "the record says so")                                       \
  X(INT_IMPLIED, benchmark_loader, 0, 0, 1e6,  "BATCHES", "100",                                                       \
                                                           "the loader without a model: time BATCHES batches "         \
                                                           "(alone: 100) on 1, 2, 4 … --threads after half as many "   \
                                                           "to warm up, print records, stop")                          \
  X(FLAG,   full_masks,       false,                       "with --benchmark: every row of the mask branch holds an "  \
                                                           "object, 128 an image of R50-FPN")                          \
  X(FLAG,   same_images,      false,                       "with --benchmark: every rank takes the first one's "       \
                                                           "images, so that none waits for a slower batch")            \
  X(FLAG,   profile,          false,                       "print at the end, for every node, its time and how near "  \
                                                           "it comes to what the device can do")                       \
  X(STRING, trace,            NULL,            "FILE",     "write what ran when, for chrome://tracing")                \
  X(FLAG,   sync_nodes,       false,                       "wait after every node and kernel, so that an error of "    \
                                                           "the GPU names it; slow, the same results")
// clang-format on

typedef struct TrainOptions {
  OPTION_FIELDS(TRAIN_OPTIONS) // model: NULL = that of weights
  Sizes shorter_sides;         // of `sizes`; none: one size
  Phases phase_list;           // of `phases`
  double rate;                 // of `lr` 0: this, for …
  int rate_images;             // … so many images a step; 0: for any number
  int ranks;                   // of `gpus`; 0 = all; once they run, how many there are
  bool made_up;                // --benchmark is of made-up images
  BatchList batch_sizes;       // of `batches`
  char *resolved;              // all options, one a line, to be shown; owned
  char *command;               // the command line, as a shell takes it; owned
} TrainOptions;

// Parses or ends the program: --help exits 0, a mistake prints one line and exits 2. train_defaults completes them.
TrainOptions train_options(int argc, char **argv);
void train_options_free(TrainOptions *o);
void train_options_show(TrainOptions *o); // brings `resolved` up to date

// Whether the options of two ranks, as their `resolved` have them, ask for the same run. They may differ in where files
// are and in what each machine has. False names the first that differs.
bool train_options_same(const char *of_first, const char *other, Err *err);
