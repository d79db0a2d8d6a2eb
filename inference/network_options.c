#include "inference/network_options.h"
#include <string.h>

ModelChanges network_changes(const InferOptions *o) {
  return (ModelChanges){.size = o->size,
                        .max_size = o->max_size,
                        .detections = o->detections,
                        .proposals = o->proposals,
                        .nms = o->nms,
                        .set = o->set};
}

maskrcnn_options network_options(const InferOptions *o, const char *device) {
  const ModelChanges changes = network_changes(o);
  maskrcnn_options options;
  maskrcnn_options_init(&options, sizeof options);
  options.weights = o->weights;
  options.device = device;
  options.amp = amp_names[o->amp];
  options.tf32 = o->tf32;
  options.conv = o->conv;
  options.image_size = changes.size;
  options.max_image_size = changes.max_size;
  options.detections_per_image = (size_t)changes.detections;
  options.proposals_per_image = (size_t)changes.proposals;
  options.nms = changes.nms;
  options.set = changes.set;
  options.top = (size_t)o->top;
  options.sync_nodes = o->sync_nodes;
  return options;
}

void program_words(Err *err) {
  static const struct {
    const char *library, *program;
  } words[] = {{"max_image_size", "--max-size"},       {"detections_per_image", "--detections"},
               {"proposals_per_image", "--proposals"}, {"image_size", "--size"},
               {"smaller batch", "smaller --batch"},   {"reduce batch", "reduce --batch"},
               {"amp needs", "--amp needs"},           {"tf32 needs", "--tf32 needs"},
               {"conv needs", "--conv needs"},         {"; the handle can only be closed", ""}};
  for (int i = 0; i < COUNT(words); i++) {
    Err rest;
    char *at = strstr(err->msg, words[i].library);
    if (!at) continue;
    snprintf(rest.msg, sizeof rest.msg, "%s", at + strlen(words[i].library));
    snprintf(at, sizeof err->msg - (size_t)(at - err->msg), "%s%s", words[i].program, rest.msg);
  }
}
