#include "inference/speed.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/latency.h"

void speed_begin(Speed *s, int ranks, const char *results) {
  *s = (Speed){.begun = now_seconds(), .ranks = ranks, .results = results};
}

void speed_opened(Speed *s, double seconds) { *(s->first == 0 ? &s->opening : &s->reopening) += seconds; }

void speed_batch(Speed *s, int shape, int images, double seconds) {
  CHECK(shape >= 0 && shape < SPEED_SHAPES);
  s->last = now_seconds();
  if (s->first == 0) {
    s->first = s->last;
    s->images_first = images;
  }
  s->images += images;
  if (s->seen[shape]++ < WARM_UP * s->ranks) {
    s->left_out++;
    return;
  }
  array_reserve((void **)&s->ms, &s->room, (size_t)s->n + 1, sizeof *s->ms);
  s->ms[s->n++] = 1e3 * seconds;
}

static void print_rate(const Speed *s) {
  printf("start-up %.2f s: %.2f to load the model, %.2f for the first batch\n", s->first - s->begun, s->opening,
         s->first - s->begun - s->opening);
  const int64_t after = s->images - s->images_first;
  if (after == 0) return;
  printf("the other %lld images: %.2f s", (long long)after, s->last - s->first);
  if (s->reopening > 0) printf(", %.2f of it to set up the model for other image sizes", s->reopening);
  printf(", %.1f images/s\n", (double)after / (s->last - s->first));
  if (s->decoders > 0) printf("decoding alone: %.1f images/s\n", s->decoders);
}

void speed_print(Speed *s, int batch, int under_way) {
  static const int percent[] = {50, 90, 95, 99};
  if (s->first == 0) return;
  print_rate(s);
  if (s->n == 0) {
    if (s->images > s->images_first)
      printf("latency: no batches remain after warm-up: give more images or a smaller --batch\n");
    return;
  }
  printf("latency of %d batches of %d", s->n, batch);
  if (s->ranks > 1) printf(" on %d ranks", s->ranks);
  printf(", from decoded images to %s", s->results);
  if (under_way > 1) printf(", %d in flight", under_way);
  printf("\n  without %d warm-up batches, the first %d of each shape%s\n", s->left_out, WARM_UP,
         s->ranks > 1 ? " and rank" : "");
  const Latency all = latency_summary(s->ms, s->n); // sorts s->ms
  printf("  %-10s %12s\n", "", "ms");
  printf("  %-10s %12.2f\n", "average", all.mean);
  for (int i = 0; i < COUNT(percent); i++)
    printf("  %d%-8s %12.2f\n", percent[i], "%", quantile(s->ms, s->n, percent[i] / 100.0));
}

void speed_free(Speed *s) {
  free(s->ms);
  s->ms = NULL;
}
