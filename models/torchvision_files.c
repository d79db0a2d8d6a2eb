#include "models/torchvision_files.h"
#include "models/rcnn.h"

// torchvision 0.26's: of each depth the first version, whose batch norm and layers are these models'. Bytes as they are
// served; of backbones the size in MiB that torchvision states.
static const struct {
  int depth, masks; // masks: 0 or 1; -1: any
  const char *file;
} files[] = {{50, 1, "maskrcnn_resnet50_fpn_coco-bf2d0c1e.pth (178,090,079 bytes)"},
             {50, 0, "fasterrcnn_resnet50_fpn_coco-258fb6c6.pth (167,502,836 bytes)"},
             {18, -1, "resnet18-f37072fd.pth (44.7 MiB)"},
             {34, -1, "resnet34-b627a593.pth (83.3 MiB)"},
             {101, -1, "resnet101-63fe2227.pth (170.5 MiB)"},
             {152, -1, "resnet152-394f9c45.pth (230.4 MiB)"}};

const char *torchvision_file(const ModelConfig *c) {
  const unsigned traits = model_of(c)->traits;
  const int masks = (traits & MODEL_MASKS) != 0;
  for (int i = 0; (traits & MODEL_DETECTOR) && i < COUNT(files); i++)
    if (files[i].depth == c->depth && (files[i].masks < 0 || files[i].masks == masks)) return files[i].file;
  return NULL;
}
