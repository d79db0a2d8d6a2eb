// Draws what is in a photograph: cc detect.c $(pkg-config --cflags --libs maskrcnn) -o detect
// ./detect weights.safetensors photo.jpg out.png
#include <maskrcnn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
  static char file[64 << 20]; // room for a JPEG or PNG file
  FILE *f = argc > 3 ? fopen(argv[2], "rb") : NULL;
  size_t bytes = f ? fread(file, 1, sizeof file, f) : 0;
  maskrcnn *m = NULL;
  maskrcnn_error error = {"usage: detect WEIGHTS PHOTO OUT.png [DEVICE]"};
  maskrcnn_results *r = NULL;
  maskrcnn_picture *picture = NULL;
  maskrcnn_options options;
  maskrcnn_options_init(&options, sizeof options);
  if (argc > 3) options.weights = argv[1];
  if (argc > 4) options.device = argv[4];
  maskrcnn_image image = {.size = sizeof image, .data = file, .format = MASKRCNN_ENCODED, .bytes = bytes};
  int failed = argc < 4 || maskrcnn_open(&m, &options, &error) || maskrcnn_run(m, &image, 1, &r, &error) ||
               maskrcnn_draw(m, &image, r->images[0], &picture, &error) || maskrcnn_write_png(picture, argv[3], &error);
  if (failed) fprintf(stderr, "%s\n", error.message);
  const maskrcnn_detections *d = failed ? NULL : r->images[0]->detections; // NULL for a classifier
  for (int i = 0; d && i < d->n; i++) printf("%s %.3f\n", d->names[i], d->scores[i]);
  maskrcnn_picture_free(picture);
  maskrcnn_results_free(r);
  maskrcnn_close(m);
  return failed;
}
