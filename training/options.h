// The specification of a run of ./train: one table of its options, from which everything else follows: the parser,
// --help, what run.json and --plan show, what --amend may change, what a resumed run and the ranks of a run must have
// in common.
//
// A row has: type, name, default, range or choices, unit and one sentence (base/cli.h), and optionally
//   .needs     the models that it applies to, traits of models/model.h; others refuse it
//   .settle    sets a default that depends on model, data or conventions (training/defaults.c)
//   .amend     --amend may change it when a run is resumed
//   .local     ranks of one run may differ in it
//   .key       it is part of a run's identity, under this name; .identify: by a rule of training/identity_rules.h
//   .first     listed by --help; the others only by --help all
// A new option takes a row here and the code that uses it.
#pragma once
#include "base/cli.h"
#include "comm/crew.h"
#include "data/batches/augment.h"
#include "data/batches/holdout.h"
#include "data/batches/upright.h"
#include "data/coco/crowds.h"
#include "engine/reduction.h"
#include "models/model.h"
#include "nn/optim.h"
#include "training/batch_list.h"
#include "training/drops.h"
#include "training/phases.h"

#define MOST_BETA 0.9999999f               // with 1, a moment would never change
extern const char *const schedule_names[]; // "step", … as Decay
// Values of TrainSpec.resume and .on_divergence, as the enumerators below.
extern const char *const resume_names[], *const divergence_names[];
enum { RESUME_NO, RESUME_LAST, RESUME_PREVIOUS };
enum { DIVERGENCE_STOP, DIVERGENCE_ROLLBACK };
enum { EVAL_AT_END = 0, EVAL_NEVER = -1 }; // values of eval_every

// A strength of augmentation: data/batches/augment.h.
#define AUGMENT_NEEDS_GEOMETRIC 0
#define AUGMENT_NEEDS_COLOUR 0
#define AUGMENT_NEEDS_PASTE MODEL_DETECTOR
#define AUGMENT_OPTION(field, kind, unit, lowest, highest, sentence, X)                                                \
  X(FLOAT, field, 0, lowest, highest, unit, sentence, .needs = AUGMENT_NEEDS_##kind, .settle = settle_##field,         \
    .key = #field)

// clang-format off
#define TRAIN_OPTIONS(X)                                                                                               \
  X(HEADING, "Data")                                                                                                   \
  X(STRING, data, NULL, "DIR",                                                                                         \
    "data set in COCO format; for classifiers, IDX files or a folder per class",                                       \
    .usual = "$MASKRCNN_DATA, then ./coco", .first = true, .local = true)                                              \
  X(STRING, train_split, "train", "NAME", "split to train on")                                                         \
  X(STRING, val_split, "val", "NAME", "split to evaluate on", .first = true)                                           \
  X(STRING, train_json, NULL, "FILE", "annotations in COCO format to train on, instead of a split of --data",          \
    .needs = MODEL_DETECTOR, .local = true)                                                                            \
  X(STRING, train_images, NULL, "DIR", "folder of the images of --train-json", .usual = "the file's folder",           \
    .needs = MODEL_DETECTOR, .local = true)                                                                            \
  X(STRING, val_json, NULL, "FILE", "annotations in COCO format to evaluate on", .needs = MODEL_DETECTOR,              \
    .local = true)                                                                                                     \
  X(STRING, val_images, NULL, "DIR", "folder of the images of --val-json", .usual = "the file's folder",               \
    .needs = MODEL_DETECTOR, .local = true)                                                                            \
  X(FLOAT, val_fraction, 0, 0, 0.9, "P",                                                                               \
    "hold out this fraction of the training images for evaluation, stratified by category; the weights store which",   \
    .first = true, .key = "val_fraction", .identify = identify_holdout)                                                \
  X(STRING, fold, NULL, "I/N",                                                                                         \
    "cross-validation: instead of a fraction, hold out the I-th of N equal parts, I from 1 to N",                      \
    .key = "fold", .identify = identify_holdout)                                                                       \
  X(STRING, group, NULL, "REGEX",                                                                                      \
    "with --val-fraction or --fold: never divide a group of images, such as those of a patient or video; images with " \
    "the same match of this POSIX extended regular expression (or of its first parentheses) in their file names are a "\
    "group",                                                                                                           \
    .key = "group", .identify = identify_holdout)                                                                      \
  X(INT64, split_seed, 0, 0, 9e15, "N", "seed that draws the images of --val-fraction or --fold", .usual = "--seed",   \
    .settle = settle_split_seed, .key = "split_seed", .identify = identify_holdout)                                    \
  X(INT, limit, 0, 1, INT32_MAX, "N", "train on the first N usable images, by id", .words = word_all)                  \
  X(INT, val_limit, 0, 1, INT32_MAX, "N", "evaluate on the first N images, by id", .words = word_all)                  \
  X(FLAG, keep_empty, false, "also train on images without objects", .needs = MODEL_DETECTOR)                          \
  X(STRING, classes, NULL, "LIST", "train on these classes alone, by name or id, such as person,dog,17",               \
    .needs = MODEL_DETECTOR, .key = "classes", .identify = identify_given)                                             \
  X(CHOICE, crowd, CROWD_OBJECT, crowd_choices,                                                                        \
    "treatment of crowd annotations in categories where many of them cover a single object, as CVAT's brush masks "    \
    "do",                                                                                                              \
    .needs = MODEL_DETECTOR, .key = "crowd", .identify = identify_annotations)                                         \
  X(CHOICE, areas, MEASURE_FILE, measure_choices,                                                                      \
    "where the area of an object with a mask comes from, by which scores call it small, medium or large: the "         \
    "annotations or the mask",                                                                                         \
    .needs = MODEL_DETECTOR, .key = "areas", .identify = identify_annotations)                                         \
  X(CHOICE, boxes, MEASURE_FILE, measure_choices,                                                                      \
    "where the box of an object with a mask comes from: the annotations or the mask",                                  \
    .needs = MODEL_DETECTOR, .key = "boxes", .identify = identify_annotations)                                         \
  X(CHOICE_IMPLIED, exif, EXIF_AUTO, exif_choices, "yes",                                                              \
    "rotate images by their EXIF orientation; auto: if the annotations are for upright images; classifiers: no",       \
    .first = true, .key = "exif", .identify = identify_exif)                                                           \
  X(STRING, range, "auto", "LOW,HIGH|auto|type",                                                                       \
    "16-bit images: values that become black and white; auto: measured on the training data; type: the "               \
    "full range, 0,65535",                                                                                             \
    .first = true, .settle = settle_range)                                                                             \
  X(CHOICE, augment, AUGMENT_STANDARD, augment_presets,                                                                \
    "random changes of training images; the options from --flip to --saturation override single strengths",           \
    .note = "mirror with --conventions or --benchmark; none for IDX data", .first = true, .settle = settle_augment)   \
  X(INT, augment_after, 0, 0, 100000, "EPOCHS", "epochs without random changes at the beginning", .amend = true,       \
    .key = "augment_after")                                                                                            \
  EACH_AUGMENT(AUGMENT_OPTION, X)                                                                                      \
  X(INT, threads, 0, 1, 256, "N", "number of threads that decode images", .usual = "one per core", .local = true,      \
    .settle = settle_threads)                                                                                          \
  X(FLAG, strict, false,                                                                                               \
    "stop at an unreadable image instead of replacing it, and at a defect of the split to evaluate on")                \
  X(HEADING, "Model")                                                                                                  \
  X(STRING, model, NULL, "NAME", "network to train, one of those listed below",                                        \
    .usual = DEFAULT_MODEL,                                                                                            \
    .note = "the model of --weights if given; " DEFAULT_WITHOUT_MASKS " for data without masks", .first = true,        \
    .settle = settle_model)                                                                                            \
  X(STRING, weights, NULL, "FILE",                                                                                     \
    "initial weights: from this program, from torchvision (.pth, .safetensors), or a torchvision ResNet for the "      \
    "backbone",                                                                                                        \
    .first = true, .local = true)                                                                                      \
  X(FLAG, reset_heads, false, "with --weights: replace the output layers by new ones for the classes of the data",     \
    .first = true)                                                                                                     \
  X(CHOICE, norm, NORM_GN, norm_names, "normalization layers of the backbone",                                         \
    .note = "as in the weights with --weights",                                                                        \
    .needs = MODEL_NORMS, .settle = settle_norm)                                                                       \
  X(INT, trainable_layers, 5, 0, 5, "N", "number of ResNet stages to train, counted from the last",                    \
    .note = "as in the weights with --weights", .needs = MODEL_STAGES, .settle = settle_trainable_layers)              \
  X(INT, size, 800, 1, MAX_SHORTER_SIDE, "PIXELS", "length of the input's shorter side; a classifier's input is "      \
    "square",                                                                                                          \
    .first = true, .settle = settle_size)                                                                              \
  X(INT, max_size, 1333, 1, 16384, "PIXELS", "maximum length of the input's longer side",                              \
    .note = "5/3 of --size if that is given",                                                                          \
    .needs = MODEL_DETECTOR, .settle = settle_max_size)                                                                \
  X(STRING, sizes, NULL, "LIST",                                                                                       \
    "multi-scale training: draw the shorter side from this list, such as 640,672,704; --size then applies to "         \
    "evaluation only",                                                                                                 \
    .needs = MODEL_DETECTOR, .settle = settle_sizes, .key = "sizes", .identify = identify_sizes)                       \
  X(INT, canvases, 2, 1, MAX_CANVASES, "N", "number of input shapes that images are padded to; all images of a "       \
    "batch have the same shape",                                                                                       \
    .needs = MODEL_DETECTOR)                                                                                           \
  X(FLOAT, repeat_threshold, 0, 0, 1, "P",                                                                             \
    "repeat images with categories that are in fewer than this fraction of the images, by LVIS's rule, such as "       \
    "0.001; 0: show each image once an epoch", .key = "repeat_threshold", .identify = identify_positive)               \
  X(CHOICE, conventions, 0, conventions_choices,                                                                       \
    "implementation whose rules for boxes, input and warmup are followed; own: those of torchvision or of "            \
    "--weights, with this program's warmup",                                                                           \
    .first = true, .needs = MODEL_DETECTOR, .amend = true, .key = "conventions")                                       \
  X(INT, detections, USUAL_DETECTIONS, 1, MOST_DETECTIONS, "N", "maximum number of detections per image",              \
    .note = "as in the weights with --weights", .needs = MODEL_DETECTOR, .settle = settle_detections)                  \
  X(INT, proposals, 1000, 1, MOST_DETECTIONS, "N",                                                                     \
    "proposals per image that inference classifies, at least --detections if that is above 100; training keeps "       \
    "twice as many, or as many with --conventions detectron2 or mlperf or for tiny",                                   \
    .note = "500 for tiny, which trains on 200; as in the weights with --weights", .needs = MODEL_DETECTOR,            \
    .settle = settle_proposals)                                                                                        \
  X(FLOAT, score, 0.05f, 0, 1, "P", "minimum score of a detection in evaluations", .note = "as in the weights with "   \
    "--weights", .needs = MODEL_DETECTOR, .settle = settle_score)                                                      \
  X(FLOAT, nms, 0.5f, 0, 1, "IOU", "IoU threshold of non-maximum suppression of detections within each class",         \
    .note = "as in the weights with --weights", .needs = MODEL_DETECTOR, .settle = settle_nms)                         \
  X(STRING, anchors, NULL, "LIST|auto",                                                                                \
    "sizes of the anchors of P2 to P6, in pixels of the resized image, such as 16,32,64,128,256; auto: those that "    \
    "overlap the objects of the training data best",                                                                   \
    .usual = "32,64,128,256,512, or as in the weights", .needs = MODEL_DETECTOR)                                       \
  X(STRING, set, NULL, "FIELD=VALUE", "set a field of the model's configuration, one of those that --help model "      \
    "lists; may be given several times",                                                                               \
    .joins = true)                                                                                                     \
  X(FLOAT, label_smoothing, 0, 0, 1, "P", "label smoothing: fraction of the target spread over all classes",           \
    .needs = MODEL_CLASSIFIER, .settle = settle_label_smoothing)                                                       \
  X(FLOAT, dropout, 0, 0, 1, "P", "probability of dropout before fully connected layers",                              \
    .needs = MODEL_CLASSIFIER, .settle = settle_dropout)                                                               \
  X(HEADING, "Optimization")                                                                                           \
  X(INT, batch, 2, 1, 1024, "N", "images per step and GPU", .first = true, .amend = true, .key = "batch",              \
    .settle = settle_batch)                                                                                            \
  X(STRING, phases, NULL, "LIST",                                                                                      \
    "epochs and learning rates, such as 10@1e-3,35@1e-4, instead of --epochs, --lr and --schedule")                    \
  X(INT, epochs, 12, 1, 100000, "N", "number of epochs", .first = true, .settle = settle_epochs)                       \
  X(INT64, iters, 0, 1, 1e12, "N", "number of steps, instead of --epochs",                                             \
    .usual = "follows from --epochs",                                                                                  \
    .amend = true, .key = "steps", .settle = settle_iters)                                                             \
  X(CHOICE, optimizer, OPTIMIZER_SGD, optimizer_names, "optimizer", .key = "optimizer", .settle = settle_optimizer,    \
    .identify = identify_optimizer)                                                                                    \
  X(FLOAT, lr, 0, 1e-30f, 1e6, "X", "learning rate; the default is proportional to the images per step, except for "   \
    "Adam",                                                                                                            \
    .first = true, .amend = true, .key = "lr", .settle = settle_lr, .identify = identify_lr)                           \
  X(CHOICE, schedule, DECAY_STEP, schedule_names, "learning rate schedule; step: multiply by 0.1 at --drops",          \
    .amend = true, .key = "schedule", .settle = settle_schedule, .identify = identify_schedule)                        \
  X(STRING, drops, NULL, "LIST",                                                                                       \
    "epochs after which --schedule step multiplies the learning rate by 0.1, such as 16,22",                           \
    .usual = "2/3 and 8/9 of the run", .amend = true, .key = "drops", .identify = identify_given)                      \
  X(INT, warmup, 1000, 0, 1e9, "STEPS",                                                                                \
    "steps of linear warmup; with --conventions own, the default is at most a third of the run",                       \
    .usual = "five epochs", .amend = true, .key = "warmup", .settle = settle_warmup)                                   \
  X(FLOAT, momentum, 0.9f, 0, 1, "X", "SGD: momentum", .amend = true, .key = "momentum", .settle = settle_momentum)    \
  X(FLOAT, beta1, 0.9f, 0, MOST_BETA, "X", "Adam, AdamW: decay rate of the first moment", .key = "beta1",              \
    .settle = settle_moments, .identify = identify_adam)                                                               \
  X(FLOAT, beta2, 0.999f, 0, MOST_BETA, "X", "Adam, AdamW: decay rate of the second moment", .key = "beta2",           \
    .settle = settle_moments, .identify = identify_adam)                                                               \
  X(FLOAT, eps, 1e-8f, 1e-30f, 1, "X", "Adam, AdamW: term added to the denominator for numerical stability",           \
    .key = "eps",                                                                                                      \
    .settle = settle_moments, .identify = identify_adam)                                                               \
  X(FLOAT, weight_decay, 1e-4f, 0, 1, "X",                                                                             \
    "weight decay; the default depends on --optimizer: 0.0001 for SGD, 0 for Adam, 0.01 for AdamW", .amend = true,     \
    .key = "weight_decay", .settle = settle_weight_decay)                                                              \
  X(FLOAT, clip_grad, 0, 0, 1e9, "X", "clip the gradient to this norm; 0 turns clipping off", .amend = true,           \
    .key = "clip_grad",                                                                                                \
    .settle = settle_clip_grad)                                                                                        \
  X(FLOAT, ema, 0, 0, MOST_BETA, "X",                                                                                  \
    "evaluate and store exponential moving averages of the weights with this decay, such as 0.999; 0: the weights "    \
    "themselves",                                                                                                      \
    .key = "ema", .identify = identify_positive)                                                                       \
  X(INT64, seed, 1, 0, 9e15, "N", "seed of all random number generators", .first = true, .key = "seed")                \
  X(HEADING, "Run")                                                                                                    \
  X(STRING, out, "out", "DIR", "output folder: weights, log, curves and report", .first = true, .local = true)         \
  X(CHOICE_IMPLIED, resume, RESUME_NO, resume_names, "last",                                                           \
    "continue the run in --out, with bitwise the same result as without an interruption; "                             \
    "previous: from the checkpoint before the last",                                                                   \
    .first = true)                                                                                                     \
  X(FLAG, amend, false,                                                                                                \
    "with --resume: allow changes of the run's length, batch, GPUs, --phases, --augment-after, --lr, --schedule, "     \
    "--warmup, --momentum, --weight-decay, --clip-grad or --conventions")                                              \
  X(FLAG, force, false,                                                                                                \
    "overwrite files in --out that this program did not write, and write where symbolic links there lead",             \
    .local = true)                                                                                                     \
  X(INT, eval_epochs, 0, 1, 1e6, "N", "evaluate every N epochs, instead of --eval-every", .words = word_none,          \
    .settle = settle_eval_epochs)                                                                                      \
  X(INT, eval_every, EVAL_AT_END, 1, 1e9, "STEPS",                                                                     \
    "evaluate every STEPS steps, only at the end, or never; the best weights are kept as best-*.safetensors",          \
    .words = word_evals,                                                                                               \
    .usual = "every epoch, or less often if that has fewer than 200 steps or takes a tenth of the time", .first = true,\
    .settle = settle_eval_every)                                                                                       \
  X(FLOAT, report_score, 0.5f, 0, 1, "P",                                                                              \
    "minimum score of detections in the report's per-category precision and recall and in its choice of images",       \
    .needs = MODEL_DETECTOR)                                                                                           \
  X(FLAG, val_loss, false, "also compute the losses on the split to evaluate on")                                      \
  X(INT, patience, 0, 1, 1e6, "N", "stop early after N evaluations without improvement, not counting warmup",          \
    .words = word_never, .first = true)                                                                                \
  X(FLOAT, target_bbox, -1, 0, 1, "AP", "stop when an evaluation reaches this box AP and all other targets",           \
    .words = word_no_target, .needs = MODEL_DETECTOR)                                                                  \
  X(FLOAT, target_segm, -1, 0, 1, "AP", "stop when an evaluation reaches this mask AP and all other targets",          \
    .words = word_no_target, .needs = MODEL_DETECTOR | MODEL_MASKS)                                                    \
  X(FLOAT, target_top1, -1, 0, 1, "P", "stop when an evaluation reaches this top-1 accuracy",                          \
    .words = word_no_target, .needs = MODEL_CLASSIFIER)                                                                \
  X(INT, checkpoint_every, 0, 1, 1e9, "STEPS", "steps between checkpoints; the last two are kept",                     \
    .usual = "an epoch, at least 100 steps", .settle = settle_checkpoint_every)                                        \
  X(INT, keep, 0, 0, 1e6, "N", "also keep the last N checkpoints as checkpoint-STEP.safetensors")                      \
  X(CHOICE, on_divergence, DIVERGENCE_STOP, divergence_names,                                                          \
    "if the loss or a gradient is not finite: stop, or resume from an earlier checkpoint at half the learning "        \
    "rate, up to three times")                                                                                         \
  X(INT, stop_after, 0, 1, 1e9, "STEPS", "save a checkpoint and stop after this many steps of this session, for "      \
    "job queues with a time limit",                                                                                    \
    .words = word_never)                                                                                               \
  X(STRING, device, "auto", "NAME", "cpu, cuda:N, or auto for a GPU if there is one", .first = true, .local = true)    \
  X(CHOICE_IMPLIED, amp, 0, amp_names, "bf16", "16-bit activations (GPU only)", .first = true, .key = "amp")           \
  X(FLAG, tf32, false, "TF32 matrix products (GPU only)", .key = "tf32")                                               \
  X(STRING, conv, NULL, "KERNEL[/TILE]", "convolution kernels to use; on the CPU, in evaluations",                     \
    .usual = "the fastest for each layer")                                                                             \
  X(HEADING, "Several GPUs: docs/scaling.md")                                                                          \
  X(INT, gpus, 1, 1, MAX_CREW, "N", "number of GPUs to train on; leave it out under torchrun, srun and mpirun",        \
    .words = word_all, .first = true, .amend = true, .key = "world")                                                   \
  X(INT, restarts, 0, 0, 1e6, "N", "with --gpus: when a process fails, restart from the checkpoint, up to N times")    \
  X(STRING, rendezvous, NULL, "PLACE", "where the processes of several nodes find each other: tcp:HOST:PORT or "       \
    "file:PATH",                                                                                                       \
    .usual = "set by torchrun, srun or mpirun", .local = true)                                                         \
  X(FLOAT, rendezvous_timeout, 300, 1, 1e6, "SECONDS", "time that processes wait for each other at the start")         \
  X(FLOAT, timeout, 60, 1, 1e6, "SECONDS", "time without a heartbeat after which a process is considered lost")        \
  X(CHOICE, reduce, REDUCE_F32, reduce_names,                                                                          \
    "data type of the gradient all-reduce; none, with --benchmark only: no all-reduce",                                \
    .amend = true, .key = "reduce", .identify = identify_reduction)                                                    \
  X(FLOAT, bucket, 25, 0, 1e6, "MB", "minimum size of a gradient bucket", .amend = true,                               \
    .key = "bucket_mb", .identify = identify_reduction)                                                                \
  X(INT, ctas, 16, 1, 32, "N", "number of thread blocks (CTAs) that NCCL may use; nccl: NCCL's choice",                \
    .words = word_nccl_ctas,                                                                                           \
    .amend = true, .key = "ctas", .identify = identify_reduction)                                                      \
  X(INT, reserve, -1, 0, 100, "N",                                                                                     \
    "number of multiprocessors (SMs) left free for NCCL in the backward pass; nccl: as many as it uses, while it "     \
    "runs",                                                                                                            \
    .words = word_nccl_reserve, .amend = true, .key = "reserve", .identify = identify_reduction)                       \
  X(HEADING, "Profiling and debugging")                                                                                \
  X(FLAG, plan, false, "print the settings and the memory plan, and stop", .first = true)                              \
  X(INT_IMPLIED, benchmark, 0, 1, 1e6, "STEPS", "timed",                                                               \
    "time this many steps (200 if no number is given), print the result as JSON and stop; without --data, a "          \
    "classifier is timed on random images (100 runs)", .usual = "", .words = word_timed)                               \
  X(FLAG, forward_only, false, "with --benchmark on random images: time only the forward pass",                        \
    .needs = MODEL_CLASSIFIER)                                                                                         \
  X(STRING, batches, NULL, "LIST",                                                                                     \
    "with --benchmark on random images: time these batch sizes, such as 1,2,…,128, instead of --batch",               \
    .needs = MODEL_CLASSIFIER)                                                                                         \
  X(INT_IMPLIED, benchmark_loader, 0, 1, 1e6, "BATCHES", "100",                                                        \
    "time only the data loader, with 1, 2, 4 … threads (100 batches if no number is given), print the results as "    \
    "JSON and stop",                                                                                                   \
    .usual = "")                                                                                                       \
  X(FLAG, full_masks, false, "with --benchmark: give the mask head its maximum number of objects",                     \
    .needs = MODEL_DETECTOR | MODEL_MASKS)                                                                             \
  X(FLAG, same_images, false, "with --benchmark: all processes train on the images of rank 0")                         \
  X(FLAG, profile, false, "at the end, print the time of each layer and how close it comes to the device's limit")     \
  X(STRING, trace, NULL, "FILE", "write a timeline for Perfetto or chrome://tracing", .local = true)                   \
  X(FLAG, sync_nodes, false, "wait for the GPU after each layer, so that an error names its layer; slow, but the "     \
    "results are the same")
// clang-format on

// Made once, in main, and constant after that. All values are resolved, including defaults that depend on model, data
// or conventions; `from` has their sources.
typedef struct TrainSpec {
  OPTION_FIELDS(TRAIN_OPTIONS)
  ModelConfig config;      // the model's; its classes are those of the weights, or 0 from scratch or with a backbone
  bool upright;            // images are rotated by their EXIF orientation
  double val_share;        // images of an evaluation for each of an epoch
  OptionSource range_from; // of `range`, if it was not given
  HoldoutOptions holdout;  // from `val_fraction`, `fold`, `group` and `split_seed`
  Sizes shorter_sides;     // from `sizes`; none: one size
  Phases phase_list;       // from `phases`
  double rate;             // from `lr`, with all its digits
  bool made_up;            // --benchmark uses random images
  Drops drop_list;         // from `drops`
  BatchList batch_sizes;   // from `batches`
  int64_t per_epoch;       // steps; 0: the data is not open yet
  char *command,
      *own_sizes; // the command line, quoted for a shell; the value of `sizes` if it was not given; owned
} TrainSpec;
