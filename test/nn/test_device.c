// Catches the wrong convolution kernel chosen, and resources of a device never freed.
#include <string.h>
#include "nn/device.h"
#include "nn/rung.h"
#include "test/harness/test.h"

static int closed;
static void count_close(Device *dev) {
  (void)dev;
  closed++;
}

static const Rung low = {.name = "low"}, high = {.name = "high", .close = count_close};
static const Rung *const ladder[] = {&low, &high, NULL};

static Device *device_with_ladder(void) {
  Err err;
  Device *dev = device_open("cpu", &err);
  CHECK(dev);
  dev->conv_rungs = ladder;
  return dev;
}

TEST(device_resolves_a_rung_once) {
  Device *dev = device_with_ladder();
  Err err;
  EXPECT(device_choose_rung(dev, "high", &err) && dev->conv_rung == &high);
  EXPECT(device_choose_rung(dev, "low", &err) && dev->conv_rung == &low);
  EXPECT(device_choose_rung(dev, "auto", &err) && !dev->conv_rung);
  EXPECT(device_choose_rung(dev, "low", &err) && device_choose_rung(dev, NULL, &err) && !dev->conv_rung);
  device_close(dev);
}

TEST(device_refuses_an_unknown_rung_and_lists_the_others) {
  Device *dev = device_with_ladder();
  Err err;
  EXPECT(device_choose_rung(dev, "low", &err));
  EXPECT(!device_choose_rung(dev, "lo", &err) && !dev->conv_rung);
  EXPECT(!strcmp(err.msg, "--conv lo: choose from auto, low, high"));
  device_close(dev);
}

TEST(device_resolves_a_rung_s_tile) {
  static const char *const tiles[] = {"wide", "2*wide", NULL};
  static const Rung tiled = {.name = "tiled", .tiles = tiles};
  static const Rung *const rungs[] = {&low, &tiled, NULL};
  Device *dev = device_with_ladder();
  Err err;
  EXPECT(!device_choose_rung(dev, "auto/wide", &err));
  EXPECT(!strcmp(err.msg, "--conv auto/wide: this tile is not available; choose from none"));
  dev->conv_rungs = rungs;
  EXPECT(device_choose_rung(dev, "tiled/2*wide", &err) && dev->conv_rung == &tiled && dev->conv_tile == tiles[1]);
  EXPECT(device_choose_rung(dev, "auto/wide", &err) && !dev->conv_rung && dev->conv_tile == tiles[0]);
  EXPECT(device_choose_rung(dev, "tiled", &err) && dev->conv_rung == &tiled && !dev->conv_tile);
  EXPECT(!device_choose_rung(dev, "low/wide", &err) && !dev->conv_rung && !dev->conv_tile);
  EXPECT(!strcmp(err.msg, "--conv low/wide: this tile is not available; choose from none"));
  EXPECT(!device_choose_rung(dev, "auto/narrow", &err));
  EXPECT(!strcmp(err.msg, "--conv auto/narrow: this tile is not available; choose from wide, 2*wide"));
  EXPECT(!device_choose_rung(dev, "narrow/wide", &err) && !dev->conv_tile);
  device_close(dev);
}

TEST(device_closes_what_a_rung_keeps) {
  closed = 0;
  device_close(device_with_ladder());
  EXPECT(closed == 1);
}

// A number after a device type with a single device, or text that is no number, is a mistake and not another device.
TEST(device_names_are_read_to_their_end) {
  static const char *const wrong[] = {"",        "cp",      "cpu:",    "cpu:0",   "cpu:5",
                                      "cpu-v1",  "cpu-v5",  "cpu-v33", "cpu-3",   "cpu:v3",
                                      "cuda-v3", "cuda-1",  "cpu64:1", "cuda:",   "cuda:x",
                                      "cuda:1x", "cuda:-1", "cuda: 1", "cuda:+1", "cuda:4294967296",
                                      "gpu"};
  for (int i = 0; i < COUNT(wrong); i++) {
    Err err = {""};
    char says[64];
    snprintf(says, sizeof says, "--device %s: this build supports cpu", wrong[i]);
    if (!EXPECT(!device_open(wrong[i], &err) && strstr(err.msg, says))) printf("    %s\n", wrong[i]);
  }
}

// Ops run synchronously: nothing runs concurrently, and there is no side stream.
TEST(device_has_no_side_stream_on_the_cpu) {
  Device *dev = device_open("cpu", NULL);
  if (!EXPECT(dev)) return;
  int from = 7, to = 0;
  device_fork(dev);
  device_copy(dev, &to, &from, sizeof to);
  device_join(dev);
  EXPECT_INT(to, from);
  EXPECT(!dev->side_stream && !dev->gpu);
  EXPECT_INT(dev->multiprocessors, 0);
  EXPECT_INT(dev->granted, 0);
  device_close(dev);
}
