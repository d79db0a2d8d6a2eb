// Catches reported speeds that include the warm-up.
#include <unistd.h>
#include "base/alloc.h"
#include "base/file.h"
#include "inference/speed.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

// What speed_print says; malloc'ed.
static char *said_by(Speed *s, int batch, int under_way) {
  char *path = xstrdup(in_tmp("speed.txt"));
  fflush(stdout);
  const int kept = dup(STDOUT_FILENO);
  CHECK(kept >= 0 && freopen(path, "w", stdout));
  speed_print(s, batch, under_way);
  fflush(stdout);
  CHECK(dup2(kept, STDOUT_FILENO) >= 0 && !close(kept));
  size_t size;
  Err err;
  char *said = file_read(path, &size, &err);
  CHECK(said);
  free(path);
  return said;
}

// 2 batches of each of two shapes warm up, a second long; 100 others take 1 … 100 ms.
TEST(speed_leaves_the_warm_up_out) {
  Speed s;
  speed_begin(&s, 1, "masks");
  speed_opened(&s, 0.25);
  for (int i = 0; i < 4; i++) speed_batch(&s, i % 2, 8, 1);
  for (int i = 100; i > 0; i--) speed_batch(&s, i % 2, 8, 1e-3 * i);
  speed_opened(&s, 0.13);
  s.decoders = 91.26;
  EXPECT(s.n == 100 && s.left_out == 4 && s.images == 832 && s.images_first == 8);
  char *said = said_by(&s, 8, 3);
  EXPECT(strstr(said, " s: 0.25 to load the model, "));
  EXPECT(strstr(said, "\nthe other 824 images: ") &&
         strstr(said, ", 0.13 of it to set up the model for other image sizes, "));
  EXPECT(strstr(said, " images/s\ndecoding alone: 91.3 images/s\n"));
  EXPECT(strstr(said, "\nlatency of 100 batches of 8, from decoded images to masks, 3 in flight\n"
                      "  without 4 warm-up batches, the first 2 of each shape\n"));
  // Quantiles as numpy's of 1 … 100.
  static const char *const rows[] = {"average", "50.50\n", "50%",     "50.50\n", "90%",
                                     "90.10\n", "95%",     "95.05\n", "99%",     "99.01\n"};
  const char *at = said;
  for (int i = 0; i < COUNT(rows); i++)
    if (EXPECT((at = strstr(at, rows[i]))))
      at += strlen(rows[i]);
    else
      at = said;
  free(said);
  speed_free(&s);
}

TEST(speed_of_hardly_any_batches) {
  Speed s;
  speed_begin(&s, 3, "classes");
  char *said = said_by(&s, 1, 1);
  EXPECT_STR(said, "");
  free(said);
  for (int i = 0; i < 6; i++) speed_batch(&s, 0, 1, 1); // of three ranks
  said = said_by(&s, 1, 1);
  EXPECT(strstr(said, "\nlatency: no batches remain after warm-up: give more images or a smaller --batch\n"));
  EXPECT(!strstr(said, "latency of"));
  free(said);
  speed_free(&s);
  speed_begin(&s, 1, "classes");
  speed_batch(&s, 0, 1, 1); // of a single image there is none to speak of
  said = said_by(&s, 1, 1);
  EXPECT(!strncmp(said, "start-up ", 9) && !strstr(said, "latency"));
  free(said);
  speed_free(&s);
}
