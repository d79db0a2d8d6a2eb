// Catches benchmarks of collectives that skip a size or type, or accept a wrong sum.
#include <string.h>
#include "base/error.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

static int occurrences(const char *text, const char *what) {
  int n = 0;
  for (const char *at = text; (at = strstr(at, what)); at++) n++;
  return n;
}

TEST(bench_reduce_times_every_size_and_type) {
  const char *said;
  const int status =
      command(&said, "%s --device cpu --gpus 2 --ctas 0,4 --max-mb 0.3 --rounds 3 --repeats 2", tool("bench_reduce"));
  if (!EXPECT_INT(status, 0)) printf("%s\n", said);
  EXPECT_INT(occurrences(said, "\"bench\":\"reduce\""), 8);
  EXPECT_INT(occurrences(said, "\"world\":2"), 8);
  EXPECT_INT(occurrences(said, "\"bytes\":65536,\"dtype\":\"fp32\""), 2);
  EXPECT_INT(occurrences(said, "\"bytes\":262144,\"dtype\":\"bf16\""), 2);
  EXPECT_INT(occurrences(said, "\"transport\":\"tcp\""), 8);
}

TEST(bench_reduce_of_three_ranks_is_checked_to_rounding) {
  const char *said;
  const int status =
      command(&said, "%s --device cpu --gpus 3 --max-mb 0.07 --rounds 1 --repeats 1", tool("bench_reduce"));
  if (!EXPECT_INT(status, 0)) printf("%s\n", said);
  EXPECT_INT(occurrences(said, "\"world\":3"), 2);
}

TEST(bench_reduce_refuses_what_it_cannot_time) {
  const char *said, *bench = tool("bench_reduce");
  EXPECT_INT(command(&said, "%s --device cpu --gpus 1", bench), EXIT_USAGE);
  EXPECT(strstr(said, "give --gpus 2 or more"));
  static const char *const lists[] = {"", "4,", "4,x", "-1", "33", "1;2"};
  for (int i = 0; i < COUNT(lists); i++) {
    EXPECT_INT(command(&said, "%s --device cpu --gpus 2 --ctas '%s'", bench, lists[i]), EXIT_USAGE);
    EXPECT(strstr(said, "--ctas") && occurrences(said, "\n") == 1);
  }
}
