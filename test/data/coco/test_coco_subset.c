// Catches annotations that stay with the wrong image or category, or go with one that stays.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "data/coco/coco.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

TEST(coco_keeps_images_with_their_annotations) {
  char *path = xasprintf("%s/coco-subset.json", test_tmp());
  write_text(path, "{\"categories\":[{\"id\":1,\"name\":\"a\"}],\"images\":["
                   "{\"id\":1,\"file_name\":\"1\",\"height\":9,\"width\":9},{\"id\":2,\"file_name\":\"2\"},"
                   "{\"id\":3,\"file_name\":\"3\"},{\"id\":4,\"file_name\":\"4\"}],\"annotations\":["
                   "{\"id\":10,\"image_id\":3,\"category_id\":1,\"bbox\":[0,0,3,3]},"
                   "{\"id\":11,\"image_id\":1,\"category_id\":1,\"bbox\":[0,0,1,1]},"
                   "{\"id\":12,\"image_id\":2,\"category_id\":1,\"bbox\":[0,0,2,2]},"
                   "{\"id\":12,\"image_id\":3,\"category_id\":1,\"bbox\":[0,0,4,4]},"
                   "{\"id\":13,\"image_id\":4,\"category_id\":1,\"bbox\":[0,0,5,5]},"
                   "{\"id\":14,\"image_id\":1,\"category_id\":1,\"bbox\":[0,0,Infinity,5]},"
                   "{\"id\":15,\"image_id\":3,\"category_id\":1,\"bbox\":[0,0,Infinity,5]}]}");
  Coco c;
  Err err;
  if (!EXPECT(coco_load(&c, path, &err))) return;
  coco_keep_images(&c, (const bool[]){false, true, true, false});
  EXPECT(c.num_images == 2 && c.num_anns == 3 && c.images[0].id == 2 && c.images[1].id == 3);
  EXPECT(c.images[0].anns == 1 && c.anns[c.images[0].first_ann].bbox[2] == 2);
  EXPECT(c.images[1].anns == 2 && c.anns[c.images[1].first_ann].id == 10 && c.anns[c.images[1].first_ann + 1].id == 12);
  EXPECT(c.anns[0].replaced && c.anns[0].by == 2);
  EXPECT(c.num_broken == 1 && c.broken[0].id == 15);
  coco_keep_images(&c, (const bool[]){true, false});
  EXPECT(c.num_images == 1 && c.num_anns == 1 && c.anns[0].by == -1);
  coco_free(&c);
  free(path);
}

TEST(coco_keeps_categories_with_their_annotations) {
  char *path = xasprintf("%s/coco-subset-categories.json", test_tmp());
  write_text(
      path, "{\"categories\":[{\"id\":1,\"name\":\"a\"},{\"id\":2,\"name\":\"b\"},{\"id\":\"x\",\"name\":\"c\"}],"
            "\"images\":[{\"id\":1,\"file_name\":\"1\"},{\"id\":2,\"file_name\":\"2\"},{\"id\":3,\"file_name\":\"3\"}],"
            "\"annotations\":[{\"id\":10,\"image_id\":1,\"category_id\":2,\"bbox\":[0,0,1,1]},"
            "{\"id\":11,\"image_id\":1,\"category_id\":1,\"bbox\":[0,0,2,2]},"
            "{\"id\":12,\"image_id\":2,\"category_id\":1,\"bbox\":[0,0,3,3]},"
            "{\"id\":13,\"image_id\":3,\"category_id\":\"x\",\"bbox\":[0,0,4,4]},"
            "{\"id\":10,\"image_id\":3,\"category_id\":2,\"bbox\":[0,0,5,5]},"
            "{\"id\":15,\"image_id\":3,\"category_id\":77,\"bbox\":[0,0,6,6]}]}");
  Coco c;
  Err err;
  if (!EXPECT(coco_load(&c, path, &err))) return;
  EXPECT_INT(c.num_categories, 3);
  coco_keep_categories(&c, (const bool[]){false, true, true});
  EXPECT(c.num_categories == 2 && c.categories[0].id == 2 && !strcmp(c.categories[1].name, "c"));
  EXPECT(c.num_images == 3 && c.num_anns == 4);
  EXPECT(c.images[0].anns == 1 && c.anns[c.images[0].first_ann].id == 10 &&
         c.anns[c.images[0].first_ann].category == 0);
  EXPECT(c.anns[0].replaced && c.anns[0].by == 2);
  EXPECT_INT(c.images[1].anns, 0);
  EXPECT(c.images[2].anns == 3 && c.anns[c.images[2].first_ann].category == 1);
  EXPECT(c.anns[c.images[2].first_ann + 2].id == 15 && c.anns[c.images[2].first_ann + 2].category == -1);
  coco_free(&c);
  free(path);
}
