// The options of ./infer: what it accepts, and what it refuses before anything is read.
#pragma once
#include "base/cli.h"
#include "comm/crew.h"
#include "data/batches/canvas.h"
#include "data/coco/results.h"
#include "data/pictures/labels.h"
#include "engine/engine.h"

extern const OptionWord infer_all[], infer_never[], infer_off[];

// clang-format off
#define INFER_OPTIONS(X)                                                                                               \
  X(STRING, weights, NULL, "FILE", "weights: a checkpoint of ./train or torchvision's, .safetensors or .pth",          \
    .first = true)                                                                                                     \
  X(STRING, data, NULL, "DIR",                                                                                         \
    "data set to take images from: COCO, or for classifiers IDX files or a folder per class", .first = true)           \
  X(STRING, split, "val", "NAME", "split of --data", .first = true)                                                    \
  X(FLOAT, val_fraction, 0, 0, 0.9f, "P",                                                                              \
    "classifiers: split --data as ./train --val-fraction P did; val is what was held out")                             \
  X(INT64, split_seed, -1, 0, 9e15, "N", "seed of the --val-fraction split", .usual = "that of the weights' run")      \
  X(INT, limit, 0, 1, INT32_MAX, "N", "only the first N images of --data, by id", .words = infer_all, .first = true)   \
  X(FLAG, exif, false,                                                                                                 \
    "rotate images of --data as EXIF says, as named images always are; COCO's annotations need this off")              \
  X(STRING, out, "out", "DIR", "folder for results and pictures; one run at a time", .first = true)                    \
  X(INT, overlays, -1, 0, INT32_MAX, "N", "largest number of pictures to draw", .first = true,                         \
    .usual = "16; for images named as files, all")                                                                     \
  X(STRING, json, NULL, "FILE", "results file; called FILE.partial until it is complete", .first = true,               \
    .usual = "OUT/detections.json, OUT/detections.jsonl or OUT/classes.jsonl")                                         \
  X(CHOICE, format, RESULTS_COCO, result_formats, "results as COCO's array, or as a line of JSON per image",           \
    .first = true)                                                                                                     \
  X(FLAG, polygons, false, "also write masks as polygons, besides COCO's run-length codes", .first = true)             \
  X(STRING, classes, NULL, "LIST",                                                                                     \
    "report only these classes, by name or id, such as person,dog,17; --eval scores all",                              \
    .first = true)                                                                                                     \
  X(INT, top, 0, 1, INT32_MAX, "N", "report only the best N per image; --eval scores all", .first = true,              \
    .usual = "all detections; a classifier's five likeliest classes")                                                  \
  X(INT, tile, 0, 0, 16384, "PIXELS",                                                                                  \
    "cut larger named images into tiles of this size, and merge the detections", .words = infer_never)                 \
  X(FLOAT, overlap, 0.2f, 0, 0.9, "P",                                                                                 \
    "with --tile: smallest overlap of neighbouring tiles, as a fraction of their side")                                \
  X(STRING, labels, NULL, "DIR",                                                                                       \
    "write a gray PNG per named image, whose pixels say which detection of score 0.5 or more they belong to")          \
  X(CHOICE, label_values, LABELS_INSTANCES, label_values,                                                              \
    "with --labels: pixel values are positions in the results, or category ids")                                       \
  X(STRING, crops, NULL, "DIR",                                                                                        \
    "write a PNG per detection of score 0.5 or more in named images; DIR must be new or empty")                        \
  X(FLAG, crop_alpha, false, "with --crops: make pixels outside the mask transparent")                                 \
  X(FLAG, eval, false,                                                                                                 \
    "score against the annotations of --data, and write OUT/evaluation.html; classifiers always do", .first = true)    \
  X(FLOAT, score, 0.05f, 0, 1, "P", "smallest score of a detection", .first = true)                                    \
  X(INT, size, 0, 1, 8192, "PIXELS", "shorter side of the input", .usual = "as trained", .first = true)                \
  X(INT, max_size, 0, 1, 16384, "PIXELS", "longest side of the input",                                                 \
    .usual = "as trained; 5/3 of --size where that is given")                                                          \
  X(INT, batch, 0, 1, 1024, "N", "images per batch", .first = true,                                                    \
    .usual = "1 for --data; for named images 8 on a GPU, 1 on the CPU")                                                \
  X(INT, canvases, 2, 1, MAX_CANVASES, "N", "with --data: number of padded input shapes")                              \
  X(INT, threads, 0, 1, 256, "N", "threads that decode images", .usual = "one per core")                               \
  X(INT_IMPLIED, benchmark, 0, 1, 1e6, "STEPS", "200",                                                                 \
    "time this many batches of --data (200 if no number is given), print a record and stop", .usual = "",              \
    .first = true)                                                                                                     \
  X(FLAG, profile, false, "with --benchmark: print the time of every layer and how close it is to the device's limit") \
  X(FLOAT, energy, 0, 0, 60, "SECONDS",                                                                                \
    "with --benchmark: run every layer for this long and print its energy use",                                        \
    .words = infer_off)                                                                                                \
  X(CHOICE_IMPLIED, amp, 0, amp_names, "bf16", "16-bit activations, on a GPU", .first = true)                          \
  X(FLAG, tf32, false, "TF32 matrix products, on a GPU")                                                               \
  X(STRING, conv, NULL, "RUNG[/TILE]", "convolution kernels, on a GPU", .usual = "the fastest for each layer")         \
  X(STRING, device, "auto", "NAME", "cpu, cuda:N, or auto: a GPU if there is one", .first = true)                      \
  X(INT, gpus, 1, 1, MAX_CREW, "N", "GPUs to share --data between", .words = infer_all, .first = true)                 \
  X(STRING, rendezvous, NULL, "PLACE", "where processes of several nodes meet: tcp:HOST:PORT or file:PATH",            \
    .usual = "as torchrun, srun or mpirun say")                                                                        \
  X(FLOAT, rendezvous_timeout, 300, 1, 86400, "SECONDS", "how long processes wait for each other at the start")        \
  X(FLOAT, timeout, 60, 1, 86400, "SECONDS", "a process that is silent for this long counts as lost")                  \
  X(FLAG, sync_nodes, false, "wait after every layer, so that a GPU error names its layer; slow, the same results")
// clang-format on

typedef struct InferOptions {
  OPTION_FIELDS(INFER_OPTIONS)
  const char *const *images; // [num_images] files, folders, "-"; borrowed
  int num_images;
} InferOptions;

// Ends the program by one line where the options do not fit together.
InferOptions infer_options(int argc, char **argv);
// Ends the program where --out is that folder of images.
void infer_spare_folder(const InferOptions *o, const char *images);
