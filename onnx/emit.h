// Emit: a device whose ops compute nothing, but append to an ONNX model what they would compute. A network is exported
// by walking its list of nodes on this device: nn/ops.h, the contract, is all that is known of a network.
//
// Activations are NCHW here; a fully connected one is [n, c]. Rows of RoIs are as many as there are, not as many as
// there is room for.
#pragma once
#include "models/model.h"
#include "nn/device.h"
#include "nn/graph.h"
#include "onnx/model.h"

typedef struct EmitValue { // what was written last at t.data
  Tensor t;
  Name name;
} EmitValue;

// Boxes of groups of equal capacity; a score of -1 marks a slot without a box.
typedef struct EmitTable {
  Name box;   // [groups, k, 4]
  Name score; // [groups, k]
  Name index; // [groups, k]: boxes of equal score are in this order; NULL: by class within a RoI (per > 1)
  int per;    // groups an image
  int slots;  // k, where per > 1
} EmitTable;

// What a record Boxes stands for: a table for every level, or one.
typedef struct EmitBoxes {
  const void *key; // Boxes.box.data
  int tables;
  EmitTable table[MAX_LEVELS];
  Name label; // [n, k] of detections, else NULL
  Name slots; // [rois, 2] (image, slot) of the boxes that are there, once rois_compact was asked; else NULL
} EmitBoxes;

typedef struct EmitRois {
  const void *key; // Rois.box.data
  int slots_each;  // of an image
  Name box;        // [rois, 4]
  Name slots;      // [rois, 2]: image, slot
  Name image;      // [rois]
} EmitRois;

typedef struct Emit {
  Device dev; // first: an op is given its address
  Observer observer;
  OnnxModel m;
  const Network *network;
  const Node *node; // under way
  bool bytes;       // `images` are pictures of bytes, and preprocessing is part of the model
  bool any_size;    // height and width are open
  EmitValue *value;
  size_t values, cap_values;
  EmitBoxes *boxes;
  size_t num_boxes, cap_boxes;
  EmitRois *rois;
  size_t num_rois, cap_rois;
  Name sizes;  // float [n, 2]: h, w of each picture as the network sees it, without padding
  Name ratio;  // float [n, 1, 4]: pixels of the picture given per pixel that the network sees; NULL: 1
  Name canvas; // int64 [2]: h, w with the padding
} Emit;
static inline Emit *emit_of(Device *dev) { return (Emit *)dev; }
extern const Ops ops_onnx; // onnx/ops.c

// ---- what ops read and write ----------------------------------------------------------------------------------------

Name emit_value(Emit *e, const Tensor *t); // channels of a value, too
void emit_bind(Emit *e, const Tensor *t, Name name);
void emit_dest(Emit *e, const Dest *y, Name v); // with addend and ReLU
EmitBoxes *emit_boxes(Emit *e, const Boxes *b);
EmitBoxes *emit_new_boxes(Emit *e, const Boxes *b);
const EmitRois *emit_rois(Emit *e, const Rois *r);
EmitRois *emit_new_rois(Emit *e, const Rois *r);

// ---- formulas -------------------------------------------------------------------------------------------------------

Name emit_shape(Emit *e, Name x, int first, int end); // int64 [end - first]
Name emit_cast(Emit *e, Name x, OnnxType type);
Name emit_filled(Emit *e, Name shape, float value);      // float, of that shape
Name emit_sigmoid(Emit *e, Name x);                      // as exact/geometry.h has it
Name emit_nonzero(Emit *e, Name condition);              // [found, axes]: where it is true, in order
Name emit_padded_to(Emit *e, Name extent, int multiple); // int64, rounded up
Name emit_range(Emit *e, Name count, OnnxType type);     // [count]: 0, 1, …
Name emit_add(Emit *e, Name x, float constant);          // x where it is 0

// ---- parts of the model ---------------------------------------------------------------------------------------------

// Boxes as four columns [..., 1].
typedef struct EmitCorners {
  Name x1, y1, x2, y2;
} EmitCorners;
EmitCorners emit_corners(Emit *e, Name boxes); // [..., 4]
Name emit_joined(Emit *e, const EmitCorners *c);
EmitCorners emit_span(Emit *e, EmitCorners b, float extra); // exact/geometry.h: box_span, box_decode, box_clip
EmitCorners emit_decoded(Emit *e, const BoxCoder *coder, EmitCorners from, Name delta);
EmitCorners emit_clipped(Emit *e, EmitCorners b, Name sizes, float extra); // sizes [..., 2]
Name emit_reaches(Emit *e, EmitCorners b, float side, float extra);        // bool [..., 1]

// Of pictures (onnx/input.c).
Name emit_side(Emit *e, Name sizes, int axis);                            // [n] of [n, 2]
Name emit_ordered(Emit *e, const Preprocess *p, Name x);                  // RGB in the network's order
Name emit_normalised(Emit *e, const Preprocess *p, Name x, int channels); // (x / unit - mean) / std

// The ops, for the table (nn/ops.h).
void emit_preprocess(Device *dev, const Preprocess *p, const ImageInfo *images, const uint8_t *bytes, const Tensor *y);
void emit_preprocess_affine(Device *dev, const Preprocess *p, const ImageInfo *images, const uint8_t *bytes,
                            const Tensor *y);
void emit_conv_forward(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *w, const Dest *y);
void emit_conv_dgrad(Device *dev, const Conv *conv, int pairs, const Tensor *dy, const Tensor *w, const Dest *dx);
void emit_max_pool(Device *dev, const Pool *pool, const Tensor *x, const Dest *y);
void emit_avg_pool(Device *dev, const AvgPool *pool, const Tensor *x, const Dest *y);
void emit_concat(Device *dev, int parts, const Tensor *x, const Dest *y);
void emit_group_norm(Device *dev, int groups, float eps, const Tensor *x, const void *gamma, const void *beta,
                     void *stats, const Dest *y);
void emit_batch_norm(Device *dev, float eps, const Tensor *x, const void *gamma, const void *beta, const void *mean,
                     const void *var, void *stats, const Dest *y);
void emit_class_probs(Device *dev, const Tensor *logits, const Tensor *probs);
void emit_rpn_select(Device *dev, const RpnSelect *p, const Anchors *anchors, const ImageInfo *images,
                     const Tensor *logits, const Tensor *deltas, const Boxes *out);
void emit_nms(Device *dev, const Nms *p, const Boxes *in, const Boxes *out);
void emit_merge(Device *dev, int per, const Boxes *in, const Boxes *out);
void emit_compact(Device *dev, const Boxes *in, const Rois *out);
void emit_detect_select(Device *dev, const Detect *p, const ImageInfo *images, int num_images, const Rois *rois,
                        const Tensor *logits, const Tensor *deltas, const Boxes *out);
void emit_roi_align(Device *dev, const RoiAlign *p, const Rois *rois, const Tensor *x, const Tensor *y);
void emit_mask_select(Device *dev, const Boxes *detections, const Tensor *logits, const Tensor *probs);
