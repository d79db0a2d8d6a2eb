// Mask R-CNN: He, Gkioxari, Dollár, Girshick, "Mask R-CNN", 2017, on a ResNet-FPN, as one list of nodes for one canvas
// and batch size, for training or for inference. Names of parameters are torchvision's.
#pragma once
#include "models/config.h"
#include "nn/graph.h"

typedef enum Loss { LOSS_OBJECTNESS, LOSS_RPN_BOX, LOSS_CLASSIFIER, LOSS_BOX, LOSS_MASK, LOSSES } Loss;
extern const char *const loss_names[LOSSES]; // torchvision's: "loss_objectness", …

typedef struct MaskRcnn {
  Graph graph;
  ModelConfig config;
  int canvas_h, canvas_w, images, max_objects;

  // inputs, device pointers that the caller keeps up to date
  const ImageInfo *info; // [images]
  const uint8_t *bytes;
  Truth truth;          // training
  LossScale loss_scale; // NULL = 1

  // results
  Tensor loss;       // [1, LOSSES] real; training
  Boxes detections;  // inference: group = image, resized pixels of the canvas, index % classes = label
  Value *mask_probs; // inference: [images · detections, m, m, 1], rows compacted over the batch

  // on the way
  Anchors anchors;
  Boxes rpn_top, rpn_kept, proposals;
  RpnTargets rpn_targets;
  RoiTargets roi_targets;    // training: the sampled RoIs
  RoiTargets unread_targets; // full_masks: what roi_sample writes beside the objects
  Rois rois;                 // inference: all proposals
  Rois mask_rois;
  Boxes class_top, class_kept;
  Value *image, *c[4], *p[MAX_LEVELS], *logits[MAX_LEVELS], *deltas[MAX_LEVELS];
  Value *class_logits, *box_deltas, *mask_logits, *mask_target;
} MaskRcnn;

// Appends all nodes; parameters are declared in `params`. The graph is planned, not bound. m must not move afterwards.
void maskrcnn_build(MaskRcnn *m, const ModelConfig *config, Device *dev, Params *params, bool training, int images,
                    int canvas_h, int canvas_w, int max_objects);
void maskrcnn_free(MaskRcnn *m);

// ---- the parts, for maskrcnn_build --------------------------------------------------------------------------------

void rpn_build(MaskRcnn *m);   // models/rpn.c: P2 … P6 → proposals, and their losses
void heads_build(MaskRcnn *m); // models/heads.c: P2 … P5, proposals → losses or detections
// Memory for `groups` of `capacity` boxes, alive for the whole step.
void boxes_memory(Graph *g, const char *name, Boxes *b, int groups, int capacity);
