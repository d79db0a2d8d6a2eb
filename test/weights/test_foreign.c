// Catches weights of other programs, or stored in another way, whose message does not say what they are.
#include "base/alloc.h"
#include "test/harness/test.h"
#include "weights/checkpoint.h"

#define FILE_OF(bytes) bytes, sizeof bytes - 1

static const struct {
  const char *bytes;
  size_t size;
  const char *what; // how its message begins after the file's name
} files[] = {
    {FILE_OF("\x89HDF\r\n\x1a\n\0\0"), "not a weights file, but an HDF5 file, as of Keras; "},
    {FILE_OF("\x93NUMPY\1\0v\0{'descr'"), "not a weights file, but a NumPy array; "},
    {FILE_OF("GGUF\3\0\0\0\0\0"), "not a weights file, but a GGUF file; "},
    {FILE_OF("\x1c\0\0\0TFL3\0\0"), "not a weights file, but a TensorFlow Lite model; "},
    {FILE_OF("\x89PNG\r\n\x1a\n\0\0"), "not a weights file, but a PNG image; "},
    {FILE_OF("\xff\xd8\xff\xe0\0\x10JFIF"), "not a weights file, but a JPEG image; "},
    // {"a": 1} of protocols 0, 1, 2 and 4; detectron2's are like them
    {FILE_OF("(dp0\nVa\np1\nI1\ns."), "not a weights file, but a Python pickle, as detectron2's .pkl; "},
    {FILE_OF("}q\0X\1\0\0\0aq\1K\1s."), "not a weights file, but a Python pickle, "},
    {FILE_OF("\x80\2}q\0X\1\0\0\0aq\1K\1s."), "not a weights file, but a Python pickle, "},
    {FILE_OF("\x80\4\x95\n\0\0\0\0\0\0\0}\x94\x8c\1a\x94K\1s."), "not a weights file, but a Python pickle, "},
    {FILE_OF("{\"metadata\":{},\"weight_map\":{\"a\":\"1.safetensors\"}}"), "not a weights file, but the index of "},
    {FILE_OF("\x08\x08\x12\7pytorch\x1a\0"), "not a weights file, but an ONNX model; "},
    {FILE_OF("\x08\7:\x10xxxxxxxxxxxxxxxx"), "not a weights file, but an ONNX model; "},
    {FILE_OF("\x08\1\x12\xd1\2xxxxxx"), "not a weights file, but a TensorFlow model; "},
    {FILE_OF("PK\3\4 PK\1\2 net/data.pklPK\1\2 net/constants.pklPK\5\6"),
     "not a weights file, but a TorchScript archive; "},
    {FILE_OF("PK\3\4 PK\1\2 net/models/model.jsonPK\5\6"), "not a weights file, but an archive of torch.export; "},
    {FILE_OF("PK\3\4 PK\1\2 model.weights.h5PK\5\6"), "not a weights file, but a Keras model; "},
    {FILE_OF("PK\3\4 PK\1\2 conv1.weight.npyPK\5\6"), "not a weights file, but a NumPy archive; "},
    // none of them
    {FILE_OF("PK\3\4 PK\1\2 net/data.pklPK\5\6"), "not a valid zip archive: "},
    {FILE_OF("\x80\2\0\0\0\0\0\0{\"a\":."),
     "not a PyTorch file, and not a valid safetensors file: "}, // its header is cut
    {FILE_OF("\x08\x08\0\0\0\0\0\0{\"a\":"), "not a PyTorch file, and not a valid safetensors file: "},
    {FILE_OF("\x80\2}q\0X\1\0\0\0a"), "not a PyTorch file, and not a valid safetensors file: "}, // a pickle that is cut
    {FILE_OF("{\"images\":[]}"), "not a PyTorch file, and not a valid safetensors file: "},
};

TEST(foreign_weights_are_named) {
  for (int i = 0; i < COUNT(files); i++) {
    unsigned char *exact = memcpy(xmalloc(files[i].size), files[i].bytes, files[i].size);
    char *wanted = xasprintf("FILE: %s", files[i].what);
    Checkpoint c = {0};
    Err err = {""};
    EXPECT(!ckpt_parse(&c, exact, files[i].size, "FILE", &err));
    if (!EXPECT(!strncmp(err.msg, wanted, strlen(wanted)))) printf("    %s\n    not %s\n", err.msg, wanted);
    free(wanted);
    free(exact);
  }
}
