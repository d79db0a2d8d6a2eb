// The options of ./infer, and the checks before anything is read.
#pragma once
#include "base/cli.h"
#include "base/own_files.h"
#include "comm/crew.h"
#include "data/batches/upright.h"
#include "data/coco/crowds.h"
#include "data/coco/results.h"
#include "data/pictures/draw.h"
#include "data/pictures/labels.h"
#include "engine/engine.h"

extern const OptionWord infer_all[], infer_never[], infer_off[];

// clang-format off
#define INFER_OPTIONS(X)                                                                                               \
  X(STRING, weights, NULL, "FILE", "weights or checkpoint written by train, or torchvision's weights "                 \
    "(.safetensors or .pth)",                                                                                          \
    .first = true)                                                                                                     \
  X(STRING, data, NULL, "DIR",                                                                                         \
    "data set to process: COCO format; for classifiers, IDX files or a folder per class", .first = true)               \
  X(STRING, split, "val", "NAME",                                                                                      \
    "split of --data; if training held out a part of its data, val is that part, and train the rest", .first = true)   \
  X(STRING, val_json, NULL, "FILE", "annotations in COCO format to use instead of a split of --data")                  \
  X(STRING, val_images, NULL, "DIR", "folder of the images of --val-json", .usual = "the file's folder")               \
  X(INT, limit, 0, 1, INT32_MAX, "N", "only the first N images of --data, by id", .words = infer_all, .first = true)   \
  X(CHOICE, crowd, CROWD_OBJECT, crowd_choices, "with --eval: treatment of crowd annotations that cover one "          \
    "object each, as with train --crowd", .usual = "as trained")                                                       \
  X(CHOICE, areas, MEASURE_FILE, measure_choices, "where the area of an object with a mask comes from, by which "      \
    "scores call it small, medium or large: the annotations or the mask",                                              \
    .usual = "as trained")                                                                                             \
  X(CHOICE, boxes, MEASURE_FILE, measure_choices, "where the box of an object with a mask comes from: the "            \
    "annotations or the mask", .usual = "as trained")                                                                  \
  X(CHOICE_IMPLIED, exif, EXIF_AUTO, exif_choices, "yes", "rotate images by their EXIF orientation",                   \
    .usual = "yes for named images; for --data as in training")                                                        \
  X(STRING, range, NULL, "LOW,HIGH|type", "16-bit images: values that become black and white; type: "                  \
    "the full range, 0,65535",                                                                                         \
    .usual = "as trained")                                                                                             \
  X(STRING, out, "out", "DIR", "folder for results and pictures; only one run at a time may use it", .first = true)    \
  X(FLAG, force, false,                                                                                                \
    "overwrite results that this program did not write, and write where symbolic links in --out lead")                 \
  X(INT, overlays, -1, 0, INT32_MAX, "N", "maximum number of overlay pictures to draw", .first = true,                 \
    .usual = "16; all for images named as files")                                                                      \
  X(CHOICE, colour, COLOUR_CLASS, draw_colours, "colours of overlays: one per class or one per object")                \
  X(STRING, json, NULL, "FILE", "results file; it is called FILE.partial until it is complete", .first = true,         \
    .usual = "OUT/detections.json, OUT/detections.jsonl or OUT/classes.jsonl")                                         \
  X(CHOICE, format, RESULTS_COCO, result_formats, "format of the results: COCO's JSON array, or a line of JSON per "   \
    "image",                                                                                                           \
    .first = true)                                                                                                     \
  X(FLAG, polygons, false, "also write masks as polygons, in addition to run-length encoding", .first = true)          \
  X(STRING, classes, NULL, "LIST",                                                                                     \
    "report only these classes, by name or id, such as person,dog,17; --eval still scores all",                        \
    .first = true)                                                                                                     \
  X(INT, top, 0, 1, INT32_MAX, "N", "report only the N highest scores per image; --eval still scores all",             \
    .first = true,                                                                                                     \
    .usual = "all detections; 5 classes for classifiers")                                                              \
  X(INT, tile, 0, 0, 16384, "PIXELS",                                                                                  \
    "split named images larger than this into tiles of this size and merge the detections", .words = infer_never)      \
  X(FLOAT, overlap, 0.2f, 0, 0.9, "P",                                                                                 \
    "with --tile: minimum overlap of neighbouring tiles, as a fraction of their side")                                 \
  X(STRING, labels, NULL, "DIR",                                                                                       \
    "write a label map (grayscale PNG) per named image, from the detections that are drawn")                 \
  X(CHOICE, label_values, LABELS_INSTANCES, label_values,                                                              \
    "with --labels: pixel values are detections, counted from 1 in the order of the results, or category ids")         \
  X(STRING, crops, NULL, "DIR",                                                                                        \
    "write a PNG per detection that is drawn, for named images; DIR must be new or empty")              \
  X(FLAG, crop_alpha, false, "with --crops: make pixels outside the mask transparent")                                 \
  X(FLAG, eval, false,                                                                                                 \
    "evaluate against the annotations of --data and write OUT/evaluation.html (always on for classifiers)",            \
    .first = true)                                                                                                     \
  X(FLAG, strict, false, "stop at an image that cannot be read; with --eval also at a defect of the annotations")      \
  X(FLOAT, score, -1, 0, 1, "P",                                                                                       \
    "minimum score of a detection to report, draw and count; --eval uses that of training", .first = true,             \
    .usual = "0.05; pictures and CSV files 0.5")                                                                       \
  X(INT, detections, 0, 1, MOST_DETECTIONS, "N", "maximum number of detections per image", .usual = "as trained")      \
  X(INT, proposals, 0, 1, MOST_DETECTIONS, "N",                                                                        \
    "proposals per image that are classified, at least --detections if that is above 100", .usual = "as trained")      \
  X(FLOAT, nms, -1, 0, 1, "IOU", "IoU threshold of non-maximum suppression within each class", .usual = "as trained")  \
  X(STRING, set, NULL, "FIELD=VALUE",                                                                                  \
    "set a field of the model's configuration that does not affect trained weights, such as rpn_nms=0.8; may be "      \
    "given several times; train --help model lists the fields",                                                        \
    .joins = true)                                                                                                     \
  X(INT, size, 0, 1, 8192, "PIXELS", "length of the input's shorter side", .usual = "as trained", .first = true)       \
  X(INT, max_size, 0, 1, 16384, "PIXELS", "maximum length of the input's longer side",                                 \
    .usual = "as trained; 5/3 of --size if that is given")                                                             \
  X(INT, batch, 0, 1, 1024, "N", "images per batch", .first = true,                                                    \
    .usual = "1 for --data; for named images, 8 on a GPU and 1 on the CPU")                                            \
  X(INT, canvases, 2, 1, MAX_CANVASES, "N", "with --data: number of input shapes that images are padded to")           \
  X(INT, threads, 0, 1, 256, "N", "number of threads that decode images", .usual = "one per core")                     \
  X(INT_IMPLIED, benchmark, 0, 1, 1e6, "STEPS", "200",                                                                 \
    "time this many batches of --data (200 if no number is given), print the result as JSON and stop", .usual = "",    \
    .first = true)                                                                                                     \
  X(FLAG, profile, false, "with --benchmark: print the time of each layer and how close it comes to the device's "     \
    "limit")                                                                                                           \
  X(FLOAT, energy, 0, 0, 60, "SECONDS",                                                                                \
    "with --benchmark: run each layer for this long and print its energy use",                                         \
    .words = infer_off)                                                                                                \
  X(CHOICE_IMPLIED, amp, 0, amp_names, "bf16", "16-bit activations (GPU only)", .first = true)                         \
  X(FLAG, tf32, false, "TF32 matrix products (GPU only)")                                                              \
  X(STRING, conv, NULL, "KERNEL[/TILE]", "convolution kernels to use; on the CPU packed or reference",                 \
    .usual = "the fastest for each layer")                                                                             \
  X(STRING, device, "auto", "NAME", "cpu, cuda:N, or auto for a GPU if there is one", .first = true)                   \
  X(INT, gpus, 1, 1, MAX_CREW, "N", "number of GPUs that share the images of --data", .words = infer_all,              \
    .first = true)                                                                                                     \
  X(STRING, rendezvous, NULL, "PLACE", "where the processes of several nodes find each other: tcp:HOST:PORT or "       \
    "file:PATH",                                                                                                       \
    .usual = "set by torchrun, srun or mpirun")                                                                        \
  X(FLOAT, rendezvous_timeout, 300, 1, 86400, "SECONDS", "time that processes wait for each other at the start")       \
  X(FLOAT, timeout, 60, 1, 86400, "SECONDS", "time without a heartbeat after which a process is considered lost")      \
  X(FLAG, sync_nodes, false, "wait for the GPU after each layer, so that an error names its layer; slow, but the "     \
    "results are the same")
// clang-format on

typedef struct InferOptions {
  OPTION_FIELDS(INFER_OPTIONS)
  const char *const *images; // [num_images] files, folders, "-"; borrowed
  int num_images;
} InferOptions;

// Exits with one line if the options contradict each other.
InferOptions infer_options(int argc, char **argv);
// Scores from which detections are reported, and from which they are drawn and counted.
static inline float infer_reported_from(const InferOptions *o) { return o->score >= 0 ? o->score : 0.05f; }
static inline float infer_shown_from(const InferOptions *o) { return o->score >= 0 ? o->score : 0.5f; }
// Takes --out (base/folder.h). False, too, where results, or with `scores` files of scores, would replace those of
// another program (base/own_files.h).
bool infer_take_folder(const InferOptions *o, OwnFile results, bool scores, Err *err);
// Exits if --out is the folder of input images.
void infer_spare_folder(const InferOptions *o, const char *images);
