#include "models/rcnn.h"

extern const struct Task task_boxes;              // evaluation/detection_task.c
extern const struct Outputs outputs_boxes;        // engine/detect.c
extern const struct ResultType result_detections; // lib/result_type.c
extern const struct InferTask infer_boxes;        // inference/detections.c

const Model model_fasterrcnn = {
    .name = "fasterrcnn",
    RCNN_ROW,
    .traits = MODEL_DETECTOR | MODEL_STAGES | MODEL_NORMS,
    .task = &task_boxes,
    .outputs = &outputs_boxes,
    .result_type = &result_detections,
    .infer = &infer_boxes,
    .variants = (const Variant[]){{"fasterrcnn-tiny", RCNN_TINY},
                                  {"fasterrcnn-r18-fpn", 18},
                                  {"fasterrcnn-r34-fpn", 34},
                                  {"fasterrcnn-r50-fpn", 50},
                                  {"fasterrcnn-r101-fpn", 101},
                                  {"fasterrcnn-r152-fpn", 152},
                                  {NULL, 0}},
    .targets = RCNN_TARGETS,
    .build = rcnn_build,
    .loss = {RCNN_LOSSES(2)},
    .class_parameters = (const char *const[]){"box_predictor.", NULL},
    .ignored = (const char *const[]){"roi_heads.mask_", NULL},
    .published = &published_fasterrcnn,
};
