// detect.c in C++: objects free themselves, and errors are exceptions.
// c++ -std=c++17 detect.cpp $(pkg-config --cflags --libs maskrcnn) && ./a.out weights.safetensors a.ppm
#include <maskrcnn.h>
#include <cstdio>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

struct Deleter {
  void operator()(maskrcnn *m) const { maskrcnn_close(m); }
  void operator()(maskrcnn_results *r) const { maskrcnn_results_free(r); }
};

class MaskRcnn {
  std::unique_ptr<maskrcnn, Deleter> handle;

public:
  using Results = std::unique_ptr<maskrcnn_results, Deleter>;

  explicit MaskRcnn(const maskrcnn_options &options) {
    char message[512];
    maskrcnn *m;
    if (maskrcnn_open(&m, &options, message, sizeof message)) throw std::runtime_error(message);
    handle.reset(m);
  }
  Results run(const std::vector<maskrcnn_image> &images) {
    maskrcnn_results *r;
    if (maskrcnn_run(handle.get(), images.data(), (int)images.size(), &r))
      throw std::runtime_error(maskrcnn_message(handle.get()));
    return Results(r);
  }
};

struct Picture {
  int width = 0, height = 0;
  std::vector<char> rgb;

  explicit Picture(const std::string &path) {
    std::ifstream f(path, std::ios::binary);
    std::string kind, most;
    if (!(f >> kind >> width >> height >> most) || kind != "P6" || most != "255")
      throw std::runtime_error(path + ": not an 8-bit PPM (P6) file");
    rgb.resize(3 * (size_t)width * (size_t)height);
    if (!f.ignore(1).read(rgb.data(), (std::streamsize)rgb.size())) throw std::runtime_error(path + ": truncated");
  }
  maskrcnn_image image() const { return {reinterpret_cast<const uint8_t *>(rgb.data()), width, height, 0}; }
};

static void print(const maskrcnn_detections &d) {
  for (int i = 0; i < d.n; i++) {
    const float *b = d.boxes + 4 * i;
    std::printf("%s %.3f at %.1f %.1f %.1f %.1f\n", d.names[i], d.scores[i], b[0], b[1], b[2], b[3]);
  }
}

static void print(const maskrcnn_classes &c) {
  for (int i = 0; i < c.n; i++) std::printf("%s %.3f\n", c.names[i], c.scores[i]);
}

int main(int argc, char **argv) try {
  maskrcnn_options options;
  maskrcnn_options_init(&options, sizeof options);
  options.weights = argc > 1 ? argv[1] : nullptr;
  options.device = argc > 3 ? argv[3] : "auto";
  MaskRcnn model(options);
  const Picture picture(argc > 2 ? argv[2] : "");
  const auto results = model.run({picture.image()});
  const maskrcnn_result &result = *results->images[0];
  if (result.kind == MASKRCNN_DETECTIONS) print(*result.detections);
  if (result.kind == MASKRCNN_CLASSES) print(*result.classes);
} catch (const std::exception &e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
