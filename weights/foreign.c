#include "weights/foreign.h"
#include <stdint.h>
#include <string.h>
#include "base/basics.h"
#include "base/foreign.h"

#define CONVERT "; convert its tensors to safetensors"

static const struct {
  size_t at;
  const char *bytes;
  size_t size;
  const char *what;
} signatures[] = {{0, "\x89HDF\r\n\x1a\n", 8, "an HDF5 file, as of Keras" CONVERT},
                  {0, "\x93NUMPY", 6, "a NumPy array; a file with all tensors by name is needed"},
                  {0, "GGUF", 4, "a GGUF file" CONVERT},
                  {4, "TFL3", 4, "a TensorFlow Lite model" CONVERT},
                  {0, "\x89PNG", 4, "a PNG image; give a file of weights"},
                  {0, "\xff\xd8\xff", 3, "a JPEG image; give a file of weights"}};

// Names of members, the last with the record after it; at most so much of an archive's end is searched.
enum { DIRECTORY = 1 << 20 };
static const struct {
  const char *member, *what;
} archives[] = {
    {"/constants.pkl", "a TorchScript archive; save torch.jit.load(FILE).state_dict() with torch.save"},
    {"/models/model.json", "an archive of torch.export; save the model's state_dict() with torch.save"},
    {"serialized_exported_program.json", "an archive of torch.export; save the model's state_dict() with torch.save"},
    {"model.weights.h5", "a Keras model" CONVERT},
    {".npyPK", "a NumPy archive; save its arrays with safetensors.numpy.save_file"}};

static bool has(const unsigned char *bytes, size_t size, const char *text) {
  const size_t n = strlen(text);
  for (const unsigned char *p = bytes, *end = bytes + size; (p = memchr(p, text[0], (size_t)(end - p))); p++) {
    if ((size_t)(end - p) < n) return false;
    if (!memcmp(p, text, n)) return true;
  }
  return false;
}

static const char *find_archive(const unsigned char *bytes, size_t size) {
  const size_t tail = MIN(size, DIRECTORY);
  for (int i = 0; i < COUNT(archives); i++)
    if (has(bytes + size - tail, tail, archives[i].member)) return archives[i].what;
  return NULL;
}

// Protocols 2 to 5 begin with their number, which as the length of a safetensors header would be followed by zeros;
// protocols 0 and 1 with a dict.
static bool is_pickle(const unsigned char *b, size_t size) {
  if (size < 4 || b[size - 1] != '.') return false;
  return (b[0] == 0x80 && b[1] >= 2 && b[1] <= 5 && b[2]) || !memcmp(b, "(dp", 3) || !memcmp(b, "}q\0", 3);
}

// Protocol buffers without a signature: the version of the format, then a name or the graph.
static const char *find_protobuf(const unsigned char *b, size_t size) {
  if (size < 4 || b[0] != 0x08) return NULL;
  if (b[1] == 1 && b[2] == 0x12) return "a TensorFlow model" CONVERT;
  if (b[1] >= 3 && b[1] <= 30 && (b[2] == 0x12 || b[2] == 0x3a))
    return "an ONNX model; use the weights that it was exported from";
  return NULL;
}

const char *foreign_weights(const unsigned char *bytes, size_t size, bool torch) {
  if (torch) return find_archive(bytes, size);
  for (int i = 0; i < COUNT(signatures); i++)
    if (size >= signatures[i].at + signatures[i].size &&
        !memcmp(bytes + signatures[i].at, signatures[i].bytes, signatures[i].size))
      return signatures[i].what;
  if (is_pickle(bytes, size))
    return "a Python pickle, as detectron2's .pkl; load it with pickle and save its arrays as tensors with torch.save";
  if (size && bytes[0] == '{' && has(bytes, size, "\"weight_map\""))
    return "the index of several safetensors files; merge them into one";
  const char *protobuf = find_protobuf(bytes, size);
  return protobuf ? protobuf : foreign_file(bytes, size);
}
