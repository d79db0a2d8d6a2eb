// Catches library options that break callers compiled with an older or newer header.
#include <stddef.h>
#include "lib/options.h"
#include "test/harness/test.h"

static maskrcnn_options usable(void) {
  maskrcnn_options o;
  maskrcnn_options_init(&o, sizeof o);
  o.weights = "w";
  return o;
}

TEST(options_have_defaults) {
  maskrcnn_options own;
  Err err;
  const maskrcnn_options given = usable();
  if (!EXPECT(options_take(&own, &given, &err))) return;
  EXPECT_STR(own.device, "auto");
  EXPECT_STR(own.amp, "off");
  EXPECT_INT(own.batch, 1);
  EXPECT_INT(own.queue, 4);
  EXPECT_NEAR(own.min_score, 0.05f, 0);
  EXPECT_NEAR(own.mask_threshold, 0.5, 0);
  EXPECT_INT(own.max_pixels, 16 << 20);
}

// A caller that was compiled when there were fewer members, and one that was compiled when there were more.
TEST(options_of_another_size) {
  Err err;
  maskrcnn_options own;
  char larger[sizeof own + 8];
  maskrcnn_options older;
  memset(&older, 0xff, sizeof older);
  maskrcnn_options_init(&older, offsetof(maskrcnn_options, mask_threshold));
  EXPECT_INT((long long)older.size, offsetof(maskrcnn_options, mask_threshold));
  older.weights = "w";
  older.batch = 3;
  EXPECT(older.image_size == -1); // not its caller's memory
  if (EXPECT(options_take(&own, &older, &err))) {
    EXPECT_INT(own.batch, 3);
    EXPECT_NEAR(own.mask_threshold, 0.5f, 0);
    EXPECT_INT(own.image_size, 0);
  }
  maskrcnn_options_init((maskrcnn_options *)larger, sizeof larger);
  EXPECT(!options_take(&own, (maskrcnn_options *)larger, &err));
  EXPECT(strstr(err.msg, "older than maskrcnn.h"));
  EXPECT(!options_take(&own, &(maskrcnn_options){.weights = "w"}, &err));
  EXPECT(strstr(err.msg, "maskrcnn_options_init"));
  older.size = offsetof(maskrcnn_options, device) + 1; // a byte of a pointer
  EXPECT(!options_take(&own, &older, &err) &&
         strstr(err.msg, " bytes, which ends inside a member: call maskrcnn_options_init(&options, sizeof options)"));
  EXPECT(!options_take(&own, NULL, &err));
  maskrcnn_options_init(NULL, sizeof own);
}

static void expect_refused(const maskrcnn_options *o, const char *want) {
  maskrcnn_options own;
  Err err = {""};
  if (!EXPECT(!options_take(&own, o, &err) && strstr(err.msg, want))) printf("    wanted %s: %s\n", want, err.msg);
}

TEST(options_out_of_range_are_refused) {
#define REFUSED(member, value, want)                                                                                   \
  {                                                                                                                    \
    maskrcnn_options o = usable();                                                                                     \
    o.member = value;                                                                                                  \
    expect_refused(&o, want);                                                                                          \
  }
  REFUSED(weights, NULL, "weights is NULL")
  REFUSED(batch, 0, "batch is 0")
  REFUSED(batch, -1, "batch is -1")
  REFUSED(queue, -1, "queue is -1")
  REFUSED(min_score, NAN, "min_score is nan")
  REFUSED(min_score, 1.5f, "min_score is 1.5")
  REFUSED(mask_threshold, -1, "mask_threshold is -1")
  REFUSED(amp, "fp8", "amp is \"fp8\"")
  REFUSED(tf32, 2, "tf32 is 2")
  REFUSED(image_size, -5, "image_size is -5")
  REFUSED(max_pixels, 0, "max_pixels is 0")
  REFUSED(threads, -1, "threads is -1")
  REFUSED(detections_per_image, 10001, "detections_per_image is 10001: it must be from 0 to 10000")
  REFUSED(proposals_per_image, 10001, "proposals_per_image is 10001: it must be from 0 to 10000")
  REFUSED(nms, 1.5f, "nms is 1.5: it must be from 0 to 1")
  REFUSED(nms, NAN, "nms is nan: it must be from 0 to 1")
  REFUSED(num_canvases, 2, "canvases is NULL")
#undef REFUSED
  maskrcnn_options o = usable();
  const maskrcnn_size odd[] = {{64, 64}, {64, 70}};
  o.canvases = odd;
  o.num_canvases = 2;
  expect_refused(&o, "canvas 1 is 64 x 70");
  o.num_canvases = 0;
  expect_refused(&o, "num_canvases is 0");
  o = usable();
  o.batch = 8;
  o.queue = 4;
  expect_refused(&o, "queue is 4");
}

TEST(options_are_named_as_callers_know_them) {
  Err err;
  err_set(&err, "--device x: a smaller --batch, --size, --max-size or --detections; --device cpu");
  options_words(&err);
  EXPECT_STR(err.msg, "device x: a smaller batch, image_size, max_image_size or detections_per_image; device cpu");
}
