// Catches an export that goes on where a layer has no form in ONNX, and writes half a model.
#include <string.h>
#include "base/file.h"
#include "onnx/export.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

TEST(onnx_refuses_layers_that_it_cannot_say) {
  ModelConfig config;
  Params params;
  Network n;
  Err err;
  Device *dev = device_open("cpu", &err);
  EXPECT(config_init(&config, "tiny", &err));
  params_init(&params, dev, F32);
  network_build(&n, model_of(&config), &config, dev, &params, NULL, FOR_TRAINING, 1, 64, 64, 1);
  const char *path = in_tmp("training.onnx");
  EXPECT(!onnx_export(&n, &(OnnxOptions){.path = path}, &err));
  EXPECT(strstr(err.msg, "training.onnx: ONNX opset 21 has no form for the layer backbone.body.bn1 (norm_pool)"));
  EXPECT(!path_is_file(path));
  network_free(&n);
  params_free(&params);
  device_close(dev);
}
