// Prints what is in a picture: cc detect.c $(pkg-config --cflags --libs maskrcnn) && ./a.out weights.safetensors a.ppm
#include <maskrcnn.h>
#include <stdio.h>
#include <stdlib.h>

static maskrcnn_image read_ppm(const char *path) {
  maskrcnn_image image = {0};
  FILE *f = fopen(path, "rb");
  if (f && fscanf(f, "P6 %d %d 255", &image.width, &image.height) == 2 && fgetc(f) != EOF) {
    size_t bytes = 3 * (size_t)image.width * (size_t)image.height;
    uint8_t *rgb = malloc(bytes);
    if (rgb && fread(rgb, 1, bytes, f) == bytes) image.rgb = rgb;
  }
  if (f) fclose(f);
  return image; // rgb is NULL if that failed; maskrcnn_run then reports an error
}

int main(int argc, char **argv) {
  char message[512];
  maskrcnn *m = NULL;
  maskrcnn_results *r = NULL;
  maskrcnn_options options;
  maskrcnn_options_init(&options, sizeof options);
  options.weights = argc > 1 ? argv[1] : NULL;
  options.device = argc > 3 ? argv[3] : "auto";
  maskrcnn_image image = read_ppm(argc > 2 ? argv[2] : "");
  int failed = maskrcnn_open(&m, &options, message, sizeof message) || maskrcnn_run(m, &image, 1, &r);
  if (failed) fprintf(stderr, "%s\n", !m ? message : image.rgb ? maskrcnn_message(m) : "not an 8-bit PPM (P6) file");
  const maskrcnn_detections *d = r ? r->images[0]->detections : NULL; // NULL for a classifier
  const maskrcnn_classes *c = r ? r->images[0]->classes : NULL;       // NULL for a detector
  for (int i = 0; d && i < d->n; i++) {
    const float *b = d->boxes + 4 * i;
    printf("%s %.3f at %.1f %.1f %.1f %.1f\n", d->names[i], d->scores[i], b[0], b[1], b[2], b[3]);
  }
  for (int i = 0; c && i < c->n; i++) printf("%s %.3f\n", c->names[i], c->scores[i]);
  maskrcnn_results_free(r);
  maskrcnn_close(m);
  free((void *)image.rgb);
  return failed;
}
