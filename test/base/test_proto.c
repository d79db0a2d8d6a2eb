// Catches a change of the wire format, which other programs read.
#include <string.h>
#include "base/proto.h"
#include "test/harness/test.h"

// The bytes of https://protobuf.dev/programming-guides/encoding/, and numbers that need all ten bytes of a varint.
TEST(proto_has_the_bytes_of_its_description) {
  static const unsigned char all[] = {
      0x08, 0x96, 0x01,                                                 // field 1: 150
      0x12, 0x07, 't',  'e',  's',  't',  'i',  'n',  'g',              // field 2: text
      0x1a, 0x03, 0x08, 0x96, 0x01,                                     // field 3: a message
      0x20, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, // field 4: -1
      0x2d, 0x00, 0x00, 0x80, 0x3f,                                     // field 5: float 1
      0x31, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xc0,             // field 6: double -2
      0xa0, 0x01, 0x00,                                                 // field 20: 0
  };
  Proto p = {0}, part = {0};
  proto_int(&p, 1, 150);
  proto_text(&p, 2, "testing");
  proto_int(&part, 1, 150);
  proto_message(&p, 3, &part);
  proto_int(&p, 4, -1);
  proto_float(&p, 5, 1);
  proto_double(&p, 6, -2);
  proto_int(&p, 20, 0);
  EXPECT(!part.bytes);
  EXPECT(p.n == sizeof all && !memcmp(p.bytes, all, sizeof all));
  proto_free(&p);
}
