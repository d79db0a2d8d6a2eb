// Mask R-CNN: He, Gkioxari, Dollár, Girshick, "Mask R-CNN", 2017, on a ResNet-FPN, as one list of nodes for one canvas
// and batch size, for training or for inference. Names of parameters are torchvision's.
#pragma once
#include "models/model.h"

extern const Model model_maskrcnn;

// In the order of its losses, whose names are torchvision's: "loss_objectness", …
typedef enum Loss { LOSS_OBJECTNESS, LOSS_RPN_BOX, LOSS_CLASSIFIER, LOSS_BOX, LOSS_MASK, LOSSES } Loss;
// And of its counters: RoIs that the box head works on; in training the objects among them, in inference detections.
enum { COUNT_ROIS, COUNT_POSITIVES };

// What its nodes hand on, for whoever looks inside (tests, lab/dump.c). NULL where training or inference has none.
typedef struct MaskRcnn {
  Anchors anchors;
  Value *image;                   // [images, canvas_h, canvas_w, 3]
  Value *c[4];                    // backbone, strides 4 … 32
  Value *p[MAX_LEVELS];           // pyramid, strides 4 … 64
  Value *rpn_outputs[MAX_LEVELS]; // 4a channels of deltas, then a of logits
  Value *rpn_top, *rpn_kept;      // boxes of (image, level): best by score, and what NMS leaves of them
  Value *proposals;               // boxes of an image
  Value *rpn_targets;
  Value *rois, *box_targets;       // training: sampled; inference: all proposals, and no targets
  Value *objects, *object_targets; // training: the objects among the RoIs
  Value *class_logits, *box_deltas;
  Value *class_top, *class_kept;                 // inference: boxes of (image, class)
  Value *detections;                             // inference: boxes of an image
  Value *mask_rois;                              // inference: the detections' as RoIs
  Value *mask_logits, *mask_target, *mask_probs; // no logits where mask_predict makes probabilities
} MaskRcnn;
MaskRcnn *maskrcnn_of(const Network *n);

// Weights that torchvision published of it, or of its backbone: models/torchvision_detector.c, for its row.
extern const Published published_detector;
bool detector_holds_backbone(const struct Checkpoint *weights);
bool detector_on_backbone(const struct Checkpoint *weights, const ModelConfig *held, ModelConfig *c, Err *err);

// ---- its parts, for build -------------------------------------------------------------------------------------------

void rpn_build(Network *n);   // models/rpn.c: P2 … P6 → proposals, and their losses
void heads_build(Network *n); // models/heads.c: P2 … P5, proposals → losses or detections

// models/mask_predictor.c: what follows the mask head's hidden layers, whose output is x. To mask_logits; at inference
// to mask_probs, of each detection's class.
void append_mask_logits(Network *n, Value *x);
void append_mask_probs(Network *n, Value *x);
// A probability or target for every pixel of a value enlarged `scale` times.
Value *mask_value(Graph *g, const char *name, const Value *like, int scale);

// Nodes that both stages have.
void append_nms(Graph *g, const char *name, const Nms *nms, Value *in, Value *out);
void append_merge(Graph *g, const char *name, int per, Value *in, Value *out); // `per` groups become one
// Losses `first` … of all, as an op writes them.
Tensor loss_slice(const Value *losses, int first, int n);
// The gradient of a loss is written into dx as it is.
void expect_plain_gradients(const Node *n);
