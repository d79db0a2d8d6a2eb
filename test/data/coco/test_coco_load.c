// Catches ids, names and repeated entries of images, categories and annotations that are misread.
#include "base/alloc.h"
#include "test/harness/coco_text.h"

// VIA writes null where a class is no number.
TEST(coco_takes_null_for_no_category) {
  char *path = xasprintf("%s/null-category.json", test_tmp());
  FILE *f = fopen(path, "w");
  CHECK(f &&
        fputs("{\"images\":[{\"id\":1}],\"categories\":[{\"id\":0,\"name\":\"plate\"}],\"annotations\":[{\"id\":1,"
              "\"image_id\":1,\"category_id\":null},{\"id\":2,\"image_id\":1,\"category_id\":0}]}",
              f) >= 0 &&
        !fclose(f));
  Coco c;
  Err err;
  if (EXPECT(coco_load(&c, path, &err))) {
    EXPECT(c.num_anns == 2 && c.unknown_category == 1 && c.anns[0].category == -1 && c.anns[1].category == 0);
    coco_free(&c);
  }
  free(path);
}

// Each list may be an object keyed by id.
TEST(coco_reads_lists_keyed_by_id) {
  Coco c;
  Err err;
  if (!EXPECT(
          load_text(&c,
                    "{\"annotations\":{\"7\":{\"image_id\":3,\"category_id\":2},\"x\":{\"id\":9,\"image_id\":\"3\","
                    "\"category_id\":2}},\"images\":{\"3\":{\"file_name\":\"a.png\"}},\"categories\":{\"2\":{\"name\":"
                    "\"c\"}}}",
                    &err)))
    return;
  check_invariants(&c);
  EXPECT(c.num_images == 1 && c.images[0].id == 3 && c.num_categories == 1 && c.categories[0].id == 2);
  EXPECT(c.num_anns == 2 && c.anns[0].id == 7 && c.anns[1].id == 9);
  coco_free(&c);
}

// Ids that are texts get numbers above the others', in the order of the lists.
TEST(coco_numbers_text_ids) {
  Coco c;
  Err err;
  if (!EXPECT(
          load_text(&c,
                    "{\"annotations\":[{\"image_id\":\"b\",\"category_id\":\"cat\"},{\"image_id\":\"gone\","
                    "\"category_id\":4},{\"image_id\":\"a\",\"category_id\":\"none\"}],\"images\":[{\"id\":\"a\"},{"
                    "\"id\":6},{\"id\":\"b\"},{\"id\":\"a\",\"file_name\":\"last\"}],\"categories\":[{\"id\":\"cat\"},{"
                    "\"id\":4,\"name\":\"dog\"}]}",
                    &err)))
    return;
  check_invariants(&c);
  EXPECT(c.num_images == 3 && c.images[0].id == 6 && c.images[1].id == 7 && c.images[2].id == 8);
  EXPECT_STR(c.images[1].text_id, "a");
  EXPECT_STR(c.images[1].file_name, "last");
  EXPECT(c.num_anns == 2 && c.anns[0].image_id == 7 && c.anns[1].image_id == 8 && c.unknown_image == 1);
  EXPECT(c.anns[0].category == -1 && c.anns[1].category == 1 && c.unknown_category == 1);
  EXPECT(c.num_categories == 2 && c.categories[1].id == 5 && !c.categories[1].unnamed);
  EXPECT_STR(c.categories[1].name, "cat");
  coco_free(&c);
}

// Roboflow's root names the project; the others have it as supercategory. One with objects stays a class.
TEST(coco_drops_the_root_category) {
  for (int objects = 0; objects < 2; objects++) {
    Coco c;
    Err err;
    char *text =
        xasprintf("{\"images\":[{\"id\":1}],\"categories\":[{\"id\":0,\"name\":\"all\",\"supercategory\":\"none\"},"
                  "{\"id\":1,\"name\":\"a\",\"supercategory\":\"all\"},{\"id\":2,\"name\":\"b\",\"supercategory\":"
                  "\"b\"}],\"annotations\":[{\"image_id\":1,\"category_id\":1},{\"image_id\":1,\"category_id\":%d}]}",
                  objects ? 0 : 1);
    if (EXPECT(load_text(&c, text, &err))) {
      check_invariants(&c);
      EXPECT_INT(c.num_categories, 2 + objects); // b has no object, but is nobody else's supercategory
      EXPECT_STR(c.categories[objects].name, "a");
      coco_free(&c);
    }
    free(text);
  }
}

// Python keeps the last of repeated keys; pycocotools the last of repeated ids.
TEST(coco_takes_the_last_of_repeated_keys) {
  Coco c;
  Err err;
  const char *text = "{\"images\":[{\"id\":1,\"height\":4,\"width\":5,\"id\":2,\"height\":6}],\"annotations\":["
                     "{\"image_id\":9,\"category_id\":1,\"bbox\":[1,2,3,4],\"image_id\":2,\"bbox\":null,"
                     "\"segmentation\":[[0,0,2,0,2,2,9]],\"segmentation\":{\"counts\":[30],\"size\":[6,5]}},"
                     "{\"image_id\":2,\"category_id\":1,\"bbox\":[1,2,3,4],\"segmentation\":3,"
                     "\"segmentation\":[[0,0,2,0,2,2]]}]}";
  if (!EXPECT(load_text(&c, text, &err))) return;
  EXPECT(c.num_images == 1 && c.images[0].id == 2 && c.images[0].h == 6 && c.images[0].w == 5);
  EXPECT(c.num_anns == 2 && !c.anns[0].has_bbox && c.anns[0].type == SEG_RLE && c.anns[1].type == SEG_POLYGONS);
  EXPECT_INT(c.odd_polygon, 0);
  EXPECT_INT(c.bad_segmentation, 0);
  coco_free(&c);
}

TEST(coco_marks_categories_without_a_name) {
  Coco c;
  Err err;
  if (!EXPECT(load_text(&c,
                        "{\"images\":[],\"categories\":[{\"id\":1},{\"id\":2,\"name\":null},{\"id\":3,\"name\":\" \"},"
                        "{\"id\":4,\"name\":\"4\"},{\"id\":5,\"name\":7}]}",
                        &err)))
    return;
  static const char *const name[] = {"1", "2", "3", "4", "7"};
  for (int i = 0; i < COUNT(name) && EXPECT_INT(c.num_categories, COUNT(name)); i++) {
    EXPECT_STR(c.categories[i].name, name[i]);
    EXPECT_INT(c.categories[i].unnamed, i < 3);
  }
  coco_free(&c);
}

// What is told of objects is the name of their category, whatever its id, and whether they are crowds.
TEST(coco_labels_are_names_and_crowds) {
  static const char *const labels[] = {
      "{\"id\":1,\"name\":\"a\"},{\"id\":2,\"name\":\"b\"}", // the first
      "{\"id\":1,\"name\":\"b\"},{\"id\":2,\"name\":\"a\"}", // exchanged
      "{\"id\":5,\"name\":\"b\"},{\"id\":9,\"name\":\"a\"}", // the first under other ids
  };
  uint64_t digest[COUNT(labels)] = {0}, areas[COUNT(labels)] = {0};
  for (int i = 0; i < COUNT(labels); i++) {
    char text[512];
    Coco c;
    Err err;
    snprintf(text, sizeof text,
             "{\"images\":[{\"id\":1,\"height\":9,\"width\":9}],\"categories\":[%s],\"annotations\":[{\"id\":1,"
             "\"image_id\":1,\"category_id\":%d,\"bbox\":[1,1,3,3],\"area\":9,\"segmentation\":[]}]}",
             labels[i], i < 2 ? 1 : 9);
    if (!EXPECT(load_text(&c, text, &err))) return;
    digest[i] = c.images[0].labelled;
    areas[i] = c.images[0].areas;
    c.anns[0].crowd = true;
    coco_digest_labels(&c);
    EXPECT(c.images[0].labelled != digest[i]);
    coco_free(&c);
  }
  EXPECT(digest[0] != digest[1] && digest[0] == digest[2] && areas[0] == areas[1] && areas[0]);
}

// Nobody refers to annotations: an id that is no number is the position in the file.
TEST(coco_numbers_annotations_with_text_ids) {
  static const char *const given[] = {"\"ann-1\"", "7", "\"8\"", "null", "\"9f1c-77\"", "\"\"", "-3"};
  static const int64_t want[] = {1, 7, 8, 4, 5, 6, -3};
  Coco c;
  Err err;
  char text[1024];
  int n = snprintf(text, sizeof text, "{\"images\":[{\"id\":1}],\"annotations\":[");
  for (int i = 0; i < COUNT(given); i++)
    n += snprintf(text + n, sizeof text - (size_t)n, "%s{\"id\":%s,\"image_id\":1,\"category_id\":1}", i ? "," : "",
                  given[i]);
  snprintf(text + n, sizeof text - (size_t)n, "]}");
  if (!EXPECT(load_text(&c, text, &err))) printf("  %s\n", err.msg);
  for (int i = 0; i < c.num_anns; i++) EXPECT_INT(c.anns[i].id, want[i]);
  EXPECT_INT(c.num_anns, COUNT(want));
  coco_free(&c);
}

// An id that comes again is the last one's of the file, which may be of an earlier image, or of one that is not there.
TEST(coco_tells_which_annotation_replaces_another) {
  Coco c;
  Err err;
#define ANN(id, image) "{\"id\":" #id ",\"image_id\":" #image ",\"category_id\":1}"
  const char *text = "{\"images\":[{\"id\":5},{\"id\":3}],\"annotations\":[" ANN(1, 5) "," ANN(2, 5) "," ANN(
      1, 3) "," ANN(4, 3) "," ANN(1, 5) "," ANN(4, 9) "]}";
#undef ANN
  if (!EXPECT(load_text(&c, text, &err))) return;
  static const struct {
    int64_t image, id;
    bool replaced;
    int by;
  } want[] = {{3, 1, true, 4}, {3, 4, true, -1}, {5, 1, true, 4}, {5, 2, false, 0}, {5, 1, false, 0}};
  EXPECT_INT(c.num_anns, COUNT(want));
  for (int i = 0; i < COUNT(want) && i < c.num_anns; i++) {
    const CocoAnn *a = &c.anns[i];
    EXPECT(a->image_id == want[i].image && a->id == want[i].id);
    EXPECT(a->replaced == want[i].replaced && a->by == want[i].by);
  }
  coco_free(&c);
}

// Scores take memory for each category: a small file must not take gigabytes.
TEST(coco_has_a_limit_on_categories) {
  enum { MORE = 100001, ROOM = 16 };
  char *text = xmalloc(MORE * ROOM + 64),
       *to = text + sprintf(text, "{\"images\":[],\"annotations\":[],\"categories\":[");
  for (int i = 0; i < MORE; i++) to += sprintf(to, "%s{\"id\":%d}", i ? "," : "", i);
  strcpy(to, "]}");
  Coco c;
  Err err;
  EXPECT(!load_text(&c, text, &err) && strstr(err.msg, "more than 100000 categories"));
  free(text);
}
