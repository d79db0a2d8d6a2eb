// Catches reads past the end of a message between ranks.
#include <stdint.h>
#include "evaluation/byte_buffer.h"
#include "test/harness/test.h"

TEST(byte_buffer_gives_what_was_put) {
  ByteBuffer p = {0};
  double number = 0;
  char word[4];
  byte_buffer_put(&p, NULL, 0);
  byte_buffer_put(&p, &(double){0.1}, sizeof number);
  byte_buffer_put(&p, "abc", 4);
  ByteReader all = {p.data, p.bytes}, part;
  EXPECT(byte_reader_take(&all, &number, sizeof number) && number == 0.1);
  EXPECT(byte_reader_part(&all, &part, 4) && !all.left && part.left == 4);
  EXPECT(byte_reader_take(&all, NULL, 0) && !byte_reader_take(&all, word, 1));
  EXPECT(byte_reader_take(&part, word, 4) && !strcmp(word, "abc"));
  byte_buffer_empty(&p);
  EXPECT(p.bytes == 0 && p.room >= 12);
  byte_buffer_free(&p);
}

TEST(byte_buffer_ends_where_it_was_cut) {
  char to[8], from[8] = "1234567";
  ByteReader u = {from, 5}, part;
  EXPECT(byte_reader_take(&u, to, 2) && !byte_reader_take(&u, to, 4));
  EXPECT(!byte_reader_take(&u, to, 1) && u.left == 0);
  u = (ByteReader){from, 5};
  EXPECT(!byte_reader_part(&u, &part, SIZE_MAX) && !u.left);
}
