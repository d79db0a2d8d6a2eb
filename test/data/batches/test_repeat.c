// Catches rare categories that are not shown as often as LVIS's rule says.
#include <math.h>
#include "data/batches/repeat.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

// Of four images one has the category a, all have b: with t = 0.5 an image with a counts sqrt(0.5 / 0.25) times.
TEST(repeat_factors_are_those_of_lvis) {
  Dataset d;
  char path[1024];
  const char *dir = small_set("repeat");
  snprintf(path, sizeof path, "%s/annotations/instances_train.json", dir);
  write_text(path, "{\"categories\":[{\"id\":3,\"name\":\"a\"},{\"id\":5,\"name\":\"b\"},{\"id\":6,\"name\":\"c\"}],"
                   "\"images\":[{\"id\":1,\"file_name\":\"1.png\"},{\"id\":2,\"file_name\":\"2.png\"},"
                   "{\"id\":3,\"file_name\":\"3.png\"},{\"id\":4,\"file_name\":\"4.png\"}],\"annotations\":["
                   "{\"id\":1,\"image_id\":1,\"category_id\":5,\"bbox\":[1,1,9,9]},"
                   "{\"id\":2,\"image_id\":2,\"category_id\":5,\"bbox\":[1,1,9,9]},"
                   "{\"id\":3,\"image_id\":2,\"category_id\":3,\"bbox\":[1,1,9,9]},"
                   "{\"id\":4,\"image_id\":2,\"category_id\":3,\"bbox\":[5,5,9,9]},"
                   "{\"id\":5,\"image_id\":3,\"category_id\":5,\"bbox\":[1,1,9,9]},"
                   "{\"id\":6,\"image_id\":4,\"category_id\":5,\"bbox\":[1,1,9,9]}]}");
  if (!open_set(&d, dir, &(DatasetOptions){.resize = {.size = 64, .max_size = 96}, .max_canvases = 1})) return;
  repeat_images(&d, 0.25); // no category is in fewer
  EXPECT(!d.repeat);
  repeat_images(&d, 0.5);
  if (EXPECT(d.repeat))
    for (int i = 0; i < 4; i++) EXPECT_NEAR(d.repeat[i], i == 1 ? sqrt(2) : 1, 1e-6);
  dataset_close(&d);
}
