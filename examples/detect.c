// Draws what is in a photograph: cc detect.c $(pkg-config --cflags --libs maskrcnn) -o detect
#include <err.h>
#include <maskrcnn.h>
#include <stdio.h>

int main(int argc, char **argv) {
  static char file[64 << 20]; // room for a JPEG or PNG file
  maskrcnn *m = NULL;
  maskrcnn_error error;
  maskrcnn_results *r = NULL;
  maskrcnn_picture *picture = NULL;
  maskrcnn_options options;
  if (argc < 4) errx(2, "usage: detect WEIGHTS PHOTO OUT.png [DEVICE]");
  FILE *f = fopen(argv[2], "rb");
  maskrcnn_options_init(&options, sizeof options);
  options.weights = argv[1];
  if (argc > 4) options.device = argv[4];
  maskrcnn_image image = {.size = sizeof image, .data = file, .format = MASKRCNN_ENCODED};
  if (f) image.bytes = fread(file, 1, sizeof file, f);
  if (!f || !feof(f)) errx(1, "%s: cannot be read, or has more than 64 MiB", argv[2]);
  int failed = maskrcnn_open(&m, &options, &error) || maskrcnn_run(m, &image, 1, &r, &error) ||
               maskrcnn_draw(m, &image, r->images[0], &picture, &error) || maskrcnn_write_png(picture, argv[3], &error);
  if (failed) fprintf(stderr, "%s: %s\n", r && r->failed ? argv[2] : "detect", error.message);
  const maskrcnn_detections *d = failed ? NULL : r->images[0]->detections; // NULL for a classifier
  for (int i = 0; d && i < d->n; i++) printf("%s %.3f\n", d->names[i], d->scores[i]);
  maskrcnn_picture_free(picture);
  maskrcnn_results_free(r);
  maskrcnn_close(m);
  return failed;
}
