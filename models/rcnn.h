// Faster R-CNN (Ren, He, Girshick, Sun, 2015) on a ResNet-FPN and Mask R-CNN (He, Gkioxari, Dollár, Girshick, 2017),
// which has a mask head besides, each as one list of nodes for one canvas and batch size, for training or for
// inference. Names of parameters are torchvision's.
#pragma once
#include "models/model.h"

extern const Model model_maskrcnn, model_fasterrcnn; // models/maskrcnn.c, models/fasterrcnn.c

// In the order of their losses, whose names are torchvision's: "loss_objectness", … Faster R-CNN has no LOSS_MASK.
typedef enum Loss { LOSS_OBJECTNESS, LOSS_RPN_BOX, LOSS_CLASSIFIER, LOSS_BOX, LOSS_MASK, LOSSES } Loss;
// And of their counters: RoIs that the box head works on; in training the objects among them, in inference detections.
enum { COUNT_ROIS, COUNT_POSITIVES };

// Multiprocessors that convolutions leave to proposals and sampling, whose blocks are few but wait for each other.
enum { PROPOSALS_LENT = 8 };

// What the nodes hand on, for whoever looks inside (tests, lab/dump.c). NULL where training, inference or a model
// without masks has none.
typedef struct Rcnn {
  Anchors anchors;
  Value *image;                   // [images, canvas_h, canvas_w, 3]
  Value *c[4];                    // backbone, strides 4 … 32
  Value *p[MAX_LEVELS];           // pyramid, strides 4 … 64
  Value *rpn_outputs[MAX_LEVELS]; // 4a channels of deltas, then a of logits
  Value *rpn_top, *rpn_kept;      // boxes of (image, level): best by score, and what NMS leaves of them
  Value *proposals;               // boxes of an image
  Value *rpn_targets;
  Value *rois, *box_targets;       // training: sampled; inference: all proposals, and no targets
  Value *objects, *object_targets; // training: the objects among the RoIs; inference: the detections as RoIs
  Value *class_logits, *box_deltas;
  Value *class_top, *class_kept;                 // inference: boxes of (image, class)
  Value *detections;                             // inference: boxes of an image
  Value *mask_logits, *mask_target, *mask_probs; // no logits where mask_predict makes probabilities
} Rcnn;
Rcnn *rcnn_of(const Network *n);

// ---- for their rows -------------------------------------------------------------------------------------------------

// Weights that torchvision published of them, or of their backbone: models/torchvision_detector.c.
extern const Published published_maskrcnn, published_fasterrcnn;
bool detector_holds_backbone(const struct Checkpoint *weights);
bool detector_on_backbone(const struct Checkpoint *weights, const ModelConfig *held, ModelConfig *c, Err *err);

// models/rcnn.c
void rcnn_configure(ModelConfig *c);
void rcnn_build(Network *n); // Faster R-CNN
void rcnn_release(Network *n);
bool rcnn_check(const ModelConfig *c, int images, Err *err);
void rcnn_train(ModelConfig *c, bool from_scratch, bool own);

enum { RCNN_TINY = 10 }; // layers of the ResNet that has a block a stage

extern const struct Source source_of_objects; // data/batches/coco_source.c

// What their rows have in common; docs/training.md explains .learning.
#define RCNN_ROW                                                                                                       \
  .background = true, .source = &source_of_objects, .configure = rcnn_configure, .least_size = 32,                     \
  .inputs = BATCH_BIT(BATCH_INFO) | BATCH_BIT(BATCH_BYTES), .release = rcnn_release, .check = rcnn_check,              \
  .counter = {[COUNT_ROIS] = "rois", [COUNT_POSITIVES] = "positives"}, .backbone = "backbone.body.",                   \
  .holds_backbone = detector_holds_backbone, .on_backbone = detector_on_backbone, .train = rcnn_train,                 \
  .learning = {.batch = 2,                                                                                             \
               .epochs = 12,                                                                                           \
               .rate = 0.02,                                                                                           \
               .eval_epochs = 1,                                                                                       \
               .eval_steps = 200,                                                                                      \
               .rate_images = 16,                                                                                      \
               .decay = DECAY_STEP,                                                                                    \
               .clip = 10,                                                                                             \
               .warmup = 1000,                                                                                         \
               .warmup_factor = 1e-3}
#define RCNN_TARGETS (BATCH_BIT(BATCH_BOX) | BATCH_BIT(BATCH_LABEL) | BATCH_BIT(BATCH_COUNT))
// `rpn`: where the curves of the RPN's two stand in the legend.
#define RCNN_LOSSES(rpn)                                                                                               \
  [LOSS_OBJECTNESS] = {"loss_objectness", "objectness", rpn},                                                          \
  [LOSS_RPN_BOX] = {"loss_rpn_box_reg", "RPN box", (rpn) + 1},                                                         \
  [LOSS_CLASSIFIER] = {"loss_classifier", "classifier", 0}, [LOSS_BOX] = {"loss_box_reg", "box", 1}

// ---- their parts, for build -----------------------------------------------------------------------------------------

void rpn_build(Network *n);       // models/rpn.c: P2 … P6 → proposals, and their losses
void box_head_build(Network *n);  // models/heads.c: P2 … P5, proposals → losses or detections
void mask_head_build(Network *n); // models/mask_head.c: P2 … P5, objects → loss or masks of the detections

// models/mask_predictor.c: what follows the mask head's hidden layers, whose output is x. To mask_logits, of each
// object's class alone unless every value is to be seen; at inference to mask_probs, of each detection's class.
void append_object_logits(Network *n, Value *x);
void append_mask_probs(Network *n, Value *x);
// A probability or target for every pixel of a value enlarged `scale` times.
Value *mask_value(Graph *g, const char *name, const Value *like, int scale);

// RoIAlign of the RoIs from P2 … P5, size × size bins.
Value *append_align(Network *n, const char *name, Value *rois, int size);
// What roi_sample writes, as the record that ops take, of its outputs: RoIs, their targets, the objects among them,
// theirs. NULL: not looked at.
RoiTargets roi_targets(const Value *rois, const Value *box, const Value *objects, const Value *object);

// Nodes that both stages have.
void append_nms(Graph *g, const char *name, const Nms *nms, Value *in, Value *out);
void append_merge(Graph *g, const char *name, int per, Value *in, Value *out); // `per` groups become one
// Losses `first` … of all, as an op writes them.
Tensor loss_slice(const Value *losses, int first, int n);
// The gradient of a loss is written into dx as it is.
void expect_plain_gradients(const Node *n);
