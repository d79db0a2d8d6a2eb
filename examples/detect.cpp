// Draws what is in a photograph: c++ -std=c++17 detect.cpp $(pkg-config --cflags --libs maskrcnn) -o detect
#include <cstdio>
#include <fstream>
#include <maskrcnn.h>
#include <memory>
#include <sstream>

int main(int argc, char **argv) {
  if (argc < 4) return std::fprintf(stderr, "usage: detect WEIGHTS PHOTO OUT.png [DEVICE]\n"), 2;
  std::ifstream f(argv[2], std::ios::binary);
  std::ostringstream bytes;
  if (!f || (bytes << f.rdbuf()).bad()) return std::perror(argv[2]), 1;
  const std::string file = bytes.str();
  maskrcnn *m = nullptr;
  maskrcnn_results *r = nullptr;
  maskrcnn_picture *p = nullptr;
  maskrcnn_error error;
  maskrcnn_options options;
  maskrcnn_options_init(&options, sizeof options);
  options.weights = argv[1];
  if (argc > 4) options.device = argv[4];
  maskrcnn_image image = {sizeof image, file.data(), MASKRCNN_ENCODED, 0, 0, 0, file.size(), MASKRCNN_HOST, 0, 0};
  const bool failed = maskrcnn_open(&m, &options, &error) || maskrcnn_run(m, &image, 1, &r, &error) ||
                      maskrcnn_draw(m, &image, r->images[0], &p, &error) || maskrcnn_write_png(p, argv[3], &error);
  const std::unique_ptr<maskrcnn, void (*)(maskrcnn *)> handle(m, maskrcnn_close);
  const std::unique_ptr<maskrcnn_results, void (*)(maskrcnn_results *)> results(r, maskrcnn_results_free);
  const std::unique_ptr<maskrcnn_picture, void (*)(maskrcnn_picture *)> picture(p, maskrcnn_picture_free);
  if (failed) std::fprintf(stderr, "%s: %s\n", r && r->failed ? argv[2] : "detect", error.message);
  return failed;
}
