// Writes a network as an ONNX model of opset 21, standard operators alone. docs/deploy.md is for users.
#pragma once
#include "models/model.h"

typedef struct OnnxOptions {
  const char *path;
  bool bytes;             // pictures of bytes in: preprocessing is part of the model
  bool any_size;          // height and width are open; a classifier may see one size alone
  const char *categories; // JSON, for the model's metadata
} OnnxOptions;

// n: built for inference on a host device in float, bound, with its weights; it computes nothing. A detector has inputs
// `images` and `sizes`, and outputs for up to D detections an image, best first: boxes [N, D, 4] (x1 y1 x2 y2 in pixels
// of the input), labels [N, D], scores [N, D], masks [N, D, 28, 28] (probabilities over the box; none without a mask
// head), count [N]; slots from count on are zeros. A classifier: `images`; logits and probabilities [N, classes]. False
// with one sentence where a node cannot be said in this opset.
bool onnx_export(Network *n, const OnnxOptions *o, Err *err);

// A second model that makes masks of the size of a picture: boxes [D, 4] in pixels of it, masks [D, 28, 28], size [2]
// (its height and width) → pasted [D, H, W] bool, as `infer` pastes them.
bool onnx_export_paste(const ModelConfig *c, float threshold, const char *path, Err *err);
