// The list of all ops, for code that builds a table of them: EACH_OP(X) expands X(op) for every member of struct Ops.
#pragma once

// clang-format off
#define EACH_OP(X)                                                                                                     \
  X(conv_forward) X(conv_moments) X(conv_pools) X(conv_bottlenecks) X(conv_bottleneck) X(conv_dgrad) X(conv_wgrad)     \
  X(conv_wgrad_share) X(conv_squares) X(bias_grad) X(filter_shadow) X(filter_packed_bytes) X(filter_pack)              \
  X(norm_fold) X(copy)                                                                                                 \
  X(max_pool_forward) X(max_pool_backward) X(avg_pool_forward) X(avg_pool_backward) X(concat) X(slice) X(dropout)      \
  X(group_norm_forward) X(group_norm_forward_merged) X(group_norm_backward) X(norm_pairs)                              \
  X(norm_pair_forward) X(norm_pair_backward)                                                                           \
  X(norm_pool_backward) X(batch_norm_forward) X(batch_norm_backward) X(batch_norm_inference)                           \
  X(batch_norm_moments) X(batch_norm_forward_merged) X(batch_norm_sums) X(batch_norm_backward_merged)                  \
  X(preprocess) X(rpn_select) X(nms) X(boxes_merge) X(boxes_cut) X(rois_compact) X(rpn_match) X(roi_sample)            \
  X(rpn_patches) X(rpn_patches_backward) X(rpn_loss) X(rpn_loss_backward) X(roi_align_forward) X(roi_align_backward)   \
  X(box_loss) X(box_loss_backward) X(mask_target) X(own_logits) X(own_logits_backward)                                 \
  X(own_predictors) X(own_predictor_dgrad) X(own_predictor_wgrad)                                                      \
  X(mask_loss) X(mask_loss_backward) X(class_loss) X(class_loss_backward) X(class_probs)                               \
  X(detect_select) X(mask_select) X(mask_predict) X(mask_paste) X(mask_runs) X(detections_write)                       \
  X(grad_sums) X(grad_stats) X(sgd) X(adam) X(ema) X(loss_scale_update) X(cast) X(preprocess_affine)
// clang-format on
