// The table: every op of an inference network, as operators of opset 21.
#include "onnx/emit.h"

const Ops ops_onnx = {
    .name = "onnx",
    .preprocess = emit_preprocess,
    .preprocess_affine = emit_preprocess_affine,
    .conv_forward = emit_conv_forward,       // Conv, or Gemm where it is fully connected
    .conv_dgrad = emit_conv_dgrad,           // ConvTranspose
    .group_norm_forward = emit_group_norm,   // InstanceNormalization over groups
    .batch_norm_inference = emit_batch_norm, // BatchNormalization
    .max_pool_forward = emit_max_pool,       // MaxPool
    .avg_pool_forward = emit_avg_pool,       // AveragePool, GlobalAveragePool; adaptive: two products
    .concat = emit_concat,                   // Concat
    .class_probs = emit_class_probs,         // Softmax
    .rpn_select = emit_rpn_select,           // TopK of each level, box decoding
    .nms = emit_nms,                         // NonMaxSuppression
    .boxes_merge = emit_merge,               // TopK over levels or classes
    .rois_compact = emit_compact,            // NonZero
    .roi_align_forward = emit_roi_align,     // RoiAlign of each level
    .detect_select = emit_detect_select,     // Softmax, box decoding
    .mask_select = emit_mask_select,         // GatherND of the class, sigmoid
};
