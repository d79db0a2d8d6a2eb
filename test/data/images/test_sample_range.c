// Catches 16-bit samples that become other bytes than the range says, and ranges that are misread.
#include "data/images/sample_range.h"
#include "test/harness/test.h"

// Cameras' ranges are exact: their bits shifted.
TEST(sample_range_keeps_the_upper_bits) {
  static const SampleRange type = {0}, twelve = {0, 4095}, eight = {0, 255};
  int wrong = 0;
  for (int v = 0; v < SAMPLE_VALUES; v++) {
    wrong += sample_range_byte(type, v) != v >> 8;
    wrong += sample_range_byte((SampleRange){0, 65535}, v) != v >> 8;
    wrong += sample_range_byte(twelve, v) != (v > 4095 ? 255 : v >> 4);
    wrong += sample_range_byte(eight, v) != (v > 255 ? 255 : v);
  }
  EXPECT_INT(wrong, 0);
}

TEST(sample_range_goes_from_black_to_white_and_saturates) {
  static const SampleRange ranges[] = {{0, 1}, {100, 101}, {90, 1100}, {0, 65520}, {32768, 33500}, {65534, 65535}};
  for (int i = 0; i < COUNT(ranges); i++) {
    const SampleRange r = ranges[i];
    int falls = 0;
    for (int v = 1; v < SAMPLE_VALUES; v++) falls += sample_range_byte(r, v) < sample_range_byte(r, v - 1);
    EXPECT_INT(falls, 0);
    EXPECT_INT(sample_range_byte(r, 0), 0);
    EXPECT_INT(sample_range_byte(r, r.low), 0);
    EXPECT_INT(sample_range_byte(r, r.high), 255);
    EXPECT_INT(sample_range_byte(r, 65535), 255);
  }
  EXPECT_INT(sample_range_byte((SampleRange){90, 1100}, 595), 127); // the middle
}

TEST(sample_range_is_read_from_text) {
  static const struct {
    const char *text;
    SampleRange range;
  } good[] = {{"0,4095", {0, 4095}}, {"type", {0, 65535}}, {"100,65535", {100, 65535}}, {"0,1", {0, 1}}};
  static const char *const bad[] = {
      "",        "auto",         "5",         "5,",      ",5",
      "5,5",     "6,5",          "-1,40",     "0,65536", "0, 4095",
      "0,4095 ", "0,4095,65535", "0x0,0xfff", "Type",    "99999999999999999999,999999999999999999999"};
  for (int i = 0; i < COUNT(good); i++) {
    SampleRange r;
    char text[SAMPLE_RANGE_TEXT];
    Err err = {""};
    EXPECT(sample_range_parse(&r, good[i].text, &err) && sample_range_same(r, good[i].range));
    sample_range_text(r, text);
    EXPECT_STR(text, i == 1 ? "0,65535" : good[i].text);
  }
  for (int i = 0; i < COUNT(bad); i++) {
    SampleRange r;
    Err err = {""};
    if (!EXPECT(!sample_range_parse(&r, bad[i], &err))) printf("    %s\n", bad[i]);
    EXPECT(strstr(err.msg, "LOW,HIGH with 0 <= LOW < HIGH <= 65535"));
  }
  EXPECT(sample_range_same((SampleRange){0}, (SampleRange){0, 65535}));
  EXPECT(!sample_range_same((SampleRange){0}, (SampleRange){0, 65534}));
}
