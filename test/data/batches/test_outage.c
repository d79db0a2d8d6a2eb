// Catches a run that ends, or waits forever, when its data are unreachable for a while.
#include "base/clock.h"
#include "data/batches/outage.h"
#include "test/harness/test.h"

static double seconds_of_patience(Outage *o) {
  const double begin = now_seconds();
  const Err why = {"a file is away"};
  while (outage_wait(o, begin, &why)) {
  }
  return now_seconds() - begin;
}

// Patience is counted from the first file that cannot be read, and is over once.
TEST(outage_is_waited_for_once) {
  Outage o;
  outage_open(&o, 0.25);
  EXPECT(!outage_lasts(&o));
  EXPECT(seconds_of_patience(&o) >= 0.25);
  EXPECT(outage_lasts(&o));
  outage_end(&o);
  EXPECT(!outage_lasts(&o));
  EXPECT(!outage_wait(&o, now_seconds(), &(Err){"another is away"}));
  EXPECT(outage_lasts(&o));
  outage_close(&o);
}

// A file that is tried for too long is given up though others can be read.
TEST(outage_of_one_file_ends) {
  Outage o;
  outage_open(&o, 5);
  const Err why = {"a file is away"};
  EXPECT(!outage_wait(&o, now_seconds() - 5, &why));
  outage_end(&o);
  EXPECT(!outage_lasts(&o));
  outage_close(&o);
  outage_open(&o, 0);
  EXPECT(!outage_wait(&o, now_seconds(), &why) && !outage_lasts(&o));
  outage_close(&o);
}
