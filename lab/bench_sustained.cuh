// bench sustained: the cost of a forward convolution that runs for long, on operands like real activations: TFLOP/s
// from idle and at the clock that the power limit allows, watts, joules. A line and a record each.
#pragma once
#include "lab/bench_report.cuh"
extern "C" {
#include "nn/sustained.h"
}

// Boxes and masks of an image at inference.
enum { SUSTAINED_BOXES = 1000, SUSTAINED_MASKS = 100 };

static void print_sustained(const BenchCase *c, const Contender *who, const Sustained *s) {
  const double flops = flop_of(c);
  printf("%-16s %-8s %-10s %8.1f us %7.1f TFLOP/s cold %7.1f sustained", c->layer->name, name_of(who),
         who->tile ? who->tile : "", 1e6 * s->seconds, flops / s->cold / 1e12, flops / s->seconds / 1e12);
  if (isnan(s->watts))
    printf("        - W        - J/call      - pJ/FLOP     - MHz\n");
  else
    printf(" %8.1f W %8.5f J/call %6.3f pJ/FLOP %5.0f MHz\n", s->watts, s->joules, 1e12 * s->joules / flops, s->mhz);
  fflush(stdout);
}

static void record_sustained(ConvBench *b, const BenchCase *c, const Contender *who, const Sustained *s) {
  Record j = {};
  record_begin(&j);
  record_case(&j, b, c, CONV_FORWARD, who);
  record_str(&j, "tile", who->tile);
  record_int(&j, "calls", s->calls);
  record_num(&j, "us", 1e6 * s->seconds);
  record_num(&j, "us_cold", 1e6 * s->cold);
  record_num(&j, "tflops", flop_of(c) / s->seconds / 1e12);
  record_num(&j, "tflops_cold", flop_of(c) / s->cold / 1e12);
  record_num(&j, "watts", s->watts);
  record_num(&j, "joules", s->joules);
  record_num(&j, "pj_flop", 1e12 * s->joules / flop_of(c));
  record_num(&j, "mhz", s->mhz);
  record_int(&j, "cudnn_version", cudnn_version(b->dev));
  device_origin(b->dev, &j);
  fprintf(b->file, "%s\n", record_end(&j));
  fflush(b->file);
  record_free(&j);
}
