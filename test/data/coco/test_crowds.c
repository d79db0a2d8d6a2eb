// Catches objects that are lost because a tool marks them as crowds, and COCO's crowds that are taken for objects.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "data/coco/coco_index.h"
#include "data/coco/crowds.h"
#include "data/survey/defects.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

static bool connected(int h, int w, const char *picture) {
  uint8_t *bytes = xcalloc((size_t)h * w, 1);
  for (int i = 0; i < h * w; i++) bytes[i] = picture[i] == '#';
  Rle mask = rle_from_bytes(bytes, h, w);
  const bool is = mask_is_connected(&mask);
  rle_free(&mask);
  free(bytes);
  return is;
}

TEST(crowds_in_one_piece) {
  EXPECT(connected(2, 3,
                   "###"
                   "###"));
  EXPECT(connected(3, 3,
                   "#.."
                   ".#."
                   "..#")); // at their corners
  EXPECT(connected(3, 3,
                   "..#"
                   ".#."
                   "#.."));
  EXPECT(connected(3, 5,
                   "#####"
                   "#...#"
                   "#.#.#") == false);
  EXPECT(connected(3, 5,
                   "#.#.#"
                   "#.#.#"
                   "#####")); // joined late
  EXPECT(connected(3, 5,
                   "#####"
                   "#.#.#"
                   "#.#.#"));
  EXPECT(!connected(1, 3, "#.#") && !connected(3, 1, "#.#") && !connected(2, 2, "....") && connected(1, 1, "#"));
  char many[10 * 20];
  memset(many, '#', sizeof many);
  memset(many + 8 * 20, '.', 20);
  memset(many + 9 * 20, '.', 20);
  many[9 * 20 + 3] = '#'; // of 161 pixels one is stray
  EXPECT(connected(10, 20, many));
  memset(many + 9 * 20, '#', 9);
  EXPECT(!connected(10, 20, many));
}

// ---- annotation files -----------------------------------------------------------------------------------------------

#define IN_ONE "[[20,10,40,10,40,30,20,30]]"
#define IN_TWO "[[2,2,12,2,12,12,2,12],[30,20,40,20,40,30,30,30]]"

// A set of one image; each letter is an annotation: of category a or b, a capital one is a crowd, 'C' of b in two
// pieces.
static const char *set_of(const char *letters) {
  const char *dir = small_set("crowds");
  char text[8192], path[1024];
  int used = snprintf(text, sizeof text,
                      "{\"categories\":[{\"id\":1,\"name\":\"a\"},{\"id\":2,\"name\":\"b\"}],\"images\":[{\"id\":1,"
                      "\"file_name\":\"1.png\",\"height\":41,\"width\":60}],\"annotations\":[");
  for (int i = 0; letters[i]; i++)
    used += snprintf(text + used, sizeof text - (size_t)used,
                     "%s{\"id\":%d,\"image_id\":1,\"category_id\":%d,\"iscrowd\":%d,\"bbox\":[%d,2,38,28],"
                     "\"segmentation\":%s}",
                     i ? "," : "", i + 1, letters[i] == 'a' || letters[i] == 'A' ? 1 : 2, letters[i] < 'a', i,
                     letters[i] == 'C' ? IN_TWO : IN_ONE);
  snprintf(text + used, sizeof text - (size_t)used, "]}");
  snprintf(path, sizeof path, "%s/annotations/instances_train.json", dir);
  write_text(path, text);
  return dir;
}

TEST(crowds_of_a_brush_are_objects) {
  static const struct {
    const char *letters;
    int objects, crowds;
  } cases[] = {{"AABB", 4, 0},
               {"aaBB", 4, 0},
               {"aaaA", 4, 0},
               {"bbbbbbbbbB", 9, 1},
               {"bbbbbbbbB", 9, 0},
               {"bbBC", 2, 2},
               {"AaBC", 2, 2},
               {"aaaaaaaaaaaaaaaaaaA", 18, 1},
               {"BBBBC", 5, 0}, // one is half hidden
               {"BBCCaa", 2, 4},
               {"aaaaaaaaaaaaAAA", 15, 0},
               {"ab", 2, 0},
               {"C"
                "bbbb",
                4, 1}};
  for (int i = 0; i < COUNT(cases); i++) {
    Dataset d;
    if (!open_set(&d, set_of(cases[i].letters), &small_options)) return;
    const int objects = d.first_object[d.num_images];
    if (!EXPECT(objects == cases[i].objects && d.crowds == cases[i].crowds))
      printf("  %s: %d objects, %d crowds\n", cases[i].letters, objects, d.crowds);
    dataset_close(&d);
  }
}

// Both splits of a run take a category's crowds alike, whatever there is of them in each.
TEST(crowds_of_both_splits) {
  static const struct {
    const char *train, *val;
    int objects, crowds;
  } cases[] = {{"BBBb", "CCbb", 4, 0},                                  // objects, there as here
               {"BBBb", "bbbbbbbbbbbB", 12, 0},                         // that are few
               {"CCBb", "BBbb", 2, 2},                                  // crowds
               {"bbbbbbbbbbbB", "BBbb", 2, 2},  {"aabb", "BBbb", 4, 0}, // training's tell nothing
               {"aabb", "CCbb", 2, 2},          {"AAbb", "BBCC", 0, 4}};
  for (int i = 0; i < COUNT(cases); i++) {
    Dataset train, val;
    DatasetOptions options = small_options;
    if (!open_set(&train, set_of(cases[i].train), &options)) return;
    options.train = &train.coco;
    options.keep_empty = true;
    if (!open_set(&val, set_of(cases[i].val), &options)) return;
    const int objects = val.first_object[val.num_images];
    if (!EXPECT(objects == cases[i].objects && val.crowds == cases[i].crowds))
      printf("  %s after %s: %d objects, %d crowds\n", cases[i].val, cases[i].train, objects, val.crowds);
    dataset_close(&val);
    dataset_close(&train);
  }
}

TEST(crowds_are_said_to_be_objects) {
  Dataset d;
  Defects f;
  if (!open_set(&d, set_of("aBBbAaa"), &small_options)) return;
  defects_find(&f, &d, DEPTH_ANNOTATIONS, NULL, NULL);
  char *line = defects_line(&f, DEFECT_CROWD, false);
  EXPECT_STR(
      line,
      "crowd annotations that cover one object each, such as CVAT's brush masks: 3; treated as "
      "objects; --crowd ignore leaves them out; first: annotation 2, file 1.png; by category: a 1 of 4, b 2 of 3");
  free(line);
  EXPECT_INT(d.former_crowds, 3);
  defects_free(&f);
  dataset_close(&d);

  DatasetOptions ignore = small_options;
  ignore.crowd = CROWD_IGNORE;
  if (!open_set(&d, set_of("aBBbAaa"), &ignore)) return;
  defects_find(&f, &d, DEPTH_ANNOTATIONS, NULL, NULL);
  EXPECT(d.first_object[d.num_images] == 4 && d.crowds == 3 && f.of_type[DEFECT_CROWD].count == 0);
  defects_free(&f);
  dataset_close(&d);
}

// An index is shared by processes, and holds what the file says.
TEST(crowds_of_an_index) {
  char *folder = xasprintf("%s/crowds-index", test_tmp());
  char *path = xasprintf("%s/annotations/instances_train.json", set_of("AABB"));
  char *old = xasprintf("touch -d '1 minute ago' %s && sleep 0.2", path);
  CHECK(dirs_make(folder, NULL) && system(old) == 0);
  for (int i = 0; i < 3; i++) {
    Coco c;
    Err err;
    CHECK(coco_open(&c, path, folder, &err));
    EXPECT(i == 0 || c.map);
    EXPECT_INT(crowds_become_objects(&c, NULL), 4);
    for (int k = 0; k < c.num_anns; k++) EXPECT(!c.anns[k].crowd && c.anns[k].was_crowd);
    coco_free(&c);
  }
  free(folder);
  free(path);
  free(old);
}

TEST(crowds_of_coco_stay) {
  static const char *const files[] = {"coco/annotations/instances_train2017.json",
                                      "coco/annotations/instances_val2017.json",
                                      "cocoeval/cocoapi_val2014_100/gt.json"};
  for (int i = 0; i < COUNT(files); i++) {
    const char *path = shared_path(files[i]);
    if (!path) {
      test_skip("no shared data sets");
      return;
    }
    Coco c;
    Err err;
    int crowds = 0;
    CHECK(coco_load(&c, path, &err));
    EXPECT_INT(crowds_become_objects(&c, NULL), 0);
    for (int k = 0; k < c.num_anns; k++) crowds += c.anns[k].crowd;
    EXPECT(crowds > 0);
    coco_free(&c);
  }
}
