// The options of ./infer: what it accepts, and what it refuses before anything is read.
#pragma once
#include "base/cli.h"
#include "data/batches/canvas.h"
#include "data/coco/results.h"
#include "data/pictures/labels.h"
#include "engine/engine.h"

// clang-format off
#define INFER_OPTIONS(X)                                                                                               \
  X(STRING, weights,   NULL,            "FILE", "a checkpoint of ./train or torchvision's, .pth or .safetensors")      \
  X(STRING, data,      NULL,            "DIR",  "a COCO data set, or for a classifier IDX files or folders of images " \
                                                "by class; or name images instead: files, folders (their .jpg "        \
                                                ".jpeg .png, not those of folders below), - for a list on standard "   \
                                                "input, of lines or as find -print0 writes it")                        \
  X(STRING, split,     "val",           "NAME", "of --data")                                                           \
  X(FLOAT,  val_fraction, 0, 0, 0.9f,   "P",    "of classes: split --data as ./train --val-fraction P did; val is "    \
                                                "what was held out")                                                   \
  X(INT64,  split_seed, -1, -1, 9e15,   "N",    "of --val-fraction; -1 = that of the weights' run")                    \
  X(INT,    limit,     0, 0, INT32_MAX, "N",    "only the first N images of --data by id; 0 = all")                    \
  X(FLAG,   exif,      false,                   "turn images of --data as their EXIF orientation says, as those that " \
                                                "are named always are; COCO's annotations want it off")                \
  X(STRING, out,       "out",           "DIR",  "where overlays go; one run at a time")                                \
  X(INT,    overlays,  -1, -1, INT32_MAX, "N",  "pictures to draw at most; -1 = every file that is named, or 16 of "   \
                                                "folders, a list or --data")                                           \
  X(STRING, json,      NULL,            "FILE", "results, called FILE.partial until all are there; default "           \
                                                "OUT/detections.json or .jsonl, OUT/classes.jsonl")                    \
  X(CHOICE, format,    RESULTS_COCO, result_formats, "of results: COCO's array, or a line of JSON an "                 \
                                                "image, which a classifier's always are")                              \
  X(FLAG,   polygons,  false,                   "results have masks as polygons beside COCO's compressed runs")        \
  X(STRING, classes,   NULL,            "LIST", "only these, by name or id: person,dog,17; --eval scores all")         \
  X(INT,    top,       0, 0, INT32_MAX, "N",    "only the best N of an image; 0 = all detections, the 5 likeliest "    \
                                                "classes; --eval scores all")                                          \
  X(INT,    tile,      0, 0, 16384,     "N",    "cut images that are named and larger than N x N pixels into tiles "   \
                                                "of that size, and join what is found in them; 0 = never")             \
  X(FLOAT,  overlap,   0.2f, 0, 0.9,    "X",    "of --tile: part of a tile that neighbours share at least")            \
  X(STRING, labels,    NULL,            "DIR",  "a gray PNG for each image that is named: which detection of at "      \
                                                "least 0.5 a pixel belongs to")                                        \
  X(CHOICE, label_values, LABELS_INSTANCES, label_values, "of --labels: places in the results, or category ids")       \
  X(STRING, crops,     NULL,            "DIR",  "a PNG for each detection of at least 0.5 in images that are named; "  \
                                                "an empty folder")                                                     \
  X(FLAG,   crop_alpha, false,                  "of --crops: what is outside the mask is transparent")                 \
  X(FLAG,   eval,      false,                   "score against the annotations of --data, and write "                  \
                                                "OUT/evaluation.html; classes always are")                             \
  X(FLOAT,  score,     0.05f, 0, 1,     "X",    "detections below this are dropped")                                   \
  X(INT,    size,      0, 0, 8192,      "N",    "shorter side in pixels; 0 = as trained")                              \
  X(INT,    max_size,  0, 0, 16384,     "N",    "longer side at most; 0 = as trained, or 5/3 of --size")               \
  X(INT,    batch,     0, 0, 1024,      "N",    "images at a time; 0 = 1 of --data, 8 of others on a GPU and 1 on the "\
                                                "CPU")                                                                 \
  X(INT,    canvases,  2, 1, MAX_CANVASES, "N", "how many padded shapes at most (--data)")                             \
  X(INT,    threads,   0, 0, 256,       "N",    "decoder threads; 0 = one per core")                                   \
  X(INT_IMPLIED, benchmark, 0, 0, 1e6,  "STEPS", "200",                                                                \
                                                "time STEPS batches of --data (alone: 200) after half as many to "     \
                                                "warm up, print a record, stop")                                       \
  X(FLAG,   profile,   false,                   "with --benchmark: for every node its time and how near it comes to "  \
                                                "what the device can do")                                              \
  X(FLOAT,  energy,    0, 0, 60,        "SECONDS", "with --benchmark: have every node run for so long, and tell the "  \
                                                "energy that it takes; 0 = do not")                                    \
  X(CHOICE_IMPLIED, amp, 0, amp_names, "bf16",  "16-bit activations (GPU)")                                            \
  X(FLAG,   tf32,      false,                   "TF32 products (GPU)")                                                 \
  X(STRING, conv,      NULL,            "RUNG[/TILE]", "convolution kernels (GPU)")                                    \
  X(STRING, device,    "auto",          "NAME", "auto, cpu or cuda:N")                                                 \
  X(STRING, gpus,      "1",             "N",    "share --data out over so many GPUs; all: as many as there are")       \
  X(STRING, rendezvous, NULL,           "PLACE", "where ranks of several nodes meet: tcp:HOST:PORT or file:PATH; "     \
                                                "default: as torchrun, srun or mpirun say")                            \
  X(FLOAT,  rendezvous_timeout, 300, 1, 86400, "SECONDS", "that ranks wait for each other at the beginning")           \
  X(FLOAT,  timeout,   60, 1, 86400,    "SECONDS", "after which a rank that says nothing is lost")                     \
  X(FLAG,   sync_nodes, false,                  "wait after every node and kernel, so that an error of the GPU names " \
                                                "it; slow, the same results")
// clang-format on

typedef struct InferOptions {
  OPTION_FIELDS(INFER_OPTIONS)
  const char *const *images; // [num_images] files, folders, "-"; borrowed
  int num_images;
  int ranks; // of `gpus`; 0 = all
} InferOptions;

// Ends the program by one line where the options do not fit together.
InferOptions infer_options(int argc, char **argv);
// Ends the program where --out is that folder of images.
void infer_spare_folder(const InferOptions *o, const char *images);
