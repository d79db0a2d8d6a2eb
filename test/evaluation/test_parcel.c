// Catches reads past the end of a message between ranks.
#include <stdint.h>
#include "evaluation/parcel.h"
#include "test/harness/test.h"

TEST(parcel_gives_what_was_put) {
  Parcel p = {0};
  double number = 0;
  char word[4];
  parcel_put(&p, NULL, 0);
  parcel_put(&p, &(double){0.1}, sizeof number);
  parcel_put(&p, "abc", 4);
  Unpacking all = {p.data, p.bytes}, part;
  EXPECT(parcel_take(&all, &number, sizeof number) && number == 0.1);
  EXPECT(parcel_take_part(&all, &part, 4) && !all.left && part.left == 4);
  EXPECT(parcel_take(&all, NULL, 0) && !parcel_take(&all, word, 1));
  EXPECT(parcel_take(&part, word, 4) && !strcmp(word, "abc"));
  parcel_empty(&p);
  EXPECT(p.bytes == 0 && p.room >= 12);
  parcel_free(&p);
}

TEST(parcel_ends_where_it_was_cut) {
  char to[8], from[8] = "1234567";
  Unpacking u = {from, 5}, part;
  EXPECT(parcel_take(&u, to, 2) && !parcel_take(&u, to, 4));
  EXPECT(!parcel_take(&u, to, 1) && u.left == 0);
  u = (Unpacking){from, 5};
  EXPECT(!parcel_take_part(&u, &part, SIZE_MAX) && !u.left);
}
