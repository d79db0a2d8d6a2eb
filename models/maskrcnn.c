#include "models/rcnn.h"

extern const struct Task task_detection;          // evaluation/detection_task.c
extern const struct Outputs outputs_detections;   // engine/detect.c
extern const struct ResultType result_detections; // lib/result_type.c
extern const struct InferTask infer_detections;   // inference/detections.c

static void build(Network *n) {
  rcnn_build(n);
  mask_head_build(n);
}

const Model model_maskrcnn = {
    .name = "maskrcnn",
    RCNN_ROW,
    .traits = MODEL_DETECTOR | MODEL_MASKS | MODEL_STAGES | MODEL_NORMS,
    .task = &task_detection,
    .outputs = &outputs_detections,
    .result_type = &result_detections,
    .infer = &infer_detections,
    .variants = (const Variant[]){{"tiny", RCNN_TINY},
                                  {"maskrcnn-r18-fpn", 18},
                                  {"maskrcnn-r34-fpn", 34},
                                  {"maskrcnn-r50-fpn", 50},
                                  {"maskrcnn-r101-fpn", 101},
                                  {"maskrcnn-r152-fpn", 152},
                                  {NULL, 0}},
    .targets = RCNN_TARGETS | BATCH_BIT(BATCH_BITMAP) | BATCH_BIT(BATCH_BITS),
    .build = build,
    .loss = {RCNN_LOSSES(3), [LOSS_MASK] = {"loss_mask", "mask", 2}},
    .class_parameters = (const char *const[]){"box_predictor.", "mask_fcn_logits.", NULL},
    .published = &published_maskrcnn,
    .without_masks = &model_fasterrcnn,
};
