// Catches annotations that are misread or lost, and malformed ones that crash the reader or pass without a message.
#include <math.h>
#include "base/alloc.h"
#include "base/rng.h"
#include "data/coco/coco.h"
#include "test/harness/fixtures.h"
#include "test/harness/test.h"

static const char *write_file(const char *name, const char *text, size_t size) {
  static char path[512];
  snprintf(path, sizeof path, "%s/%s", test_tmp(), name);
  FILE *f = fopen(path, "wb");
  CHECK(f);
  fwrite(text, 1, size, f);
  fclose(f);
  return path;
}

static bool load_text(Coco *c, const char *text, Err *err) {
  return coco_load(c, write_file("doc.json", text, strlen(text)), err);
}

// Whatever was loaded holds together: sorted, grouped, every index in range.
static void check_invariants(const Coco *c) {
  int next = 0;
  for (int i = 0; i < c->num_images; i++) {
    const CocoImage *image = &c->images[i];
    EXPECT(i == 0 || c->images[i - 1].id < image->id);
    EXPECT_INT(coco_find_image(c, image->id), i);
    EXPECT_INT(image->first_ann, next);
    next += image->anns;
    for (int k = 0; k < image->anns; k++) {
      const CocoAnn *a = &c->anns[image->first_ann + k];
      EXPECT(a->image_id == image->id);
      EXPECT_INT(coco_find_category(c, a->category_id), a->category);
      EXPECT(a->type != SEG_POLYGONS || (a->parts > 0 && a->first_part + a->parts <= c->num_parts));
    }
  }
  EXPECT_INT(next, c->num_anns);
  for (int i = 0; i < c->num_categories; i++) EXPECT_INT(coco_find_category(c, c->categories[i].id), i);
}

typedef struct Totals {
  int images, empty_images, categories, anns, crowd, multi_part;
} Totals;

// Loads a real data set; every annotation must give a mask of its image's size, and runs the file's area (not
// for crowds: COCO states the area of the polygons that they once were).
static void check_data_set(const char *relative, Totals want) {
  const char *path = shared_path(relative);
  if (!path) {
    test_skip("no shared data sets");
    return;
  }
  Coco c;
  Err err;
  if (!EXPECT(coco_load(&c, path, &err))) {
    printf("  %s\n", err.msg);
    return;
  }
  check_invariants(&c);
  Totals got = {.images = c.num_images, .categories = c.num_categories, .anns = c.num_anns};
  for (int i = 0; i < c.num_images; i++) {
    const CocoImage *image = &c.images[i];
    EXPECT(image->file_name && image->h > 0 && image->w > 0);
    got.empty_images += image->anns == 0;
    for (int k = image->first_ann; k < image->first_ann + image->anns; k++) {
      const CocoAnn *a = &c.anns[k];
      got.crowd += a->crowd;
      got.multi_part += a->type == SEG_POLYGONS && a->parts > 1;
      Rle mask;
      EXPECT(a->has_bbox && a->category >= 0);
      if (!EXPECT(coco_ann_rle(&c, a, image->h, image->w, &mask))) continue;
      EXPECT(mask.h == image->h && mask.w == image->w);
      if (a->type == SEG_RLE && !a->crowd) EXPECT_NEAR((double)rle_area(&mask), a->area, 0);
      rle_free(&mask);
    }
  }
  EXPECT_INT(got.images, want.images);
  EXPECT_INT(got.empty_images, want.empty_images);
  EXPECT_INT(got.categories, want.categories);
  EXPECT_INT(got.anns, want.anns);
  EXPECT_INT(got.crowd, want.crowd);
  EXPECT_INT(got.multi_part, want.multi_part);
  EXPECT_INT(c.unknown_image + c.unknown_category + c.no_segmentation + c.bad_segmentation + c.duplicate_images, 0);
  coco_free(&c);
}

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

TEST(coco_loads_real_train) {
  check_data_set("coco/annotations/instances_train2017.json", (Totals){92, 1, 80, 829, 9, 67});
}
TEST(coco_loads_real_val) {
  check_data_set("coco/annotations/instances_val2017.json", (Totals){66, 2, 80, 560, 8, 47});
}
TEST(coco_loads_nuclei_train) {
  check_data_set("nuclei/annotations/instances_train.json", (Totals){120, 0, 1, 3609, 0, 0});
}
TEST(coco_loads_nuclei_val) { check_data_set("nuclei/annotations/instances_val.json", (Totals){40, 0, 1, 1102, 0, 0}); }

// Every evaluation fixture is a data set, a result file, both (with "detections" inside) or a table of expected
// figures.
static void check_fixture(const char *path, void *loaded) {
  Coco c;
  CocoResults r;
  Err err = {0};
  bool expected_figures = strstr(path, "expected") || strstr(path, "mask_api");
  bool data_set = coco_load(&c, path, &err);
  if (data_set) check_invariants(&c);
  bool results = coco_results_load(&r, path, data_set ? &c : NULL, &err);
  if (!EXPECT((data_set || results) == !expected_figures)) printf("  %s\n", err.msg);
  *(int *)loaded += data_set || results;
  coco_free(&c);
  coco_results_free(&r);
}

TEST(coco_loads_every_fixture) {
  int loaded = 0;
  if (!evaluator_fixtures(check_fixture, &loaded)) return;
  EXPECT_INT(loaded, 89);
}

TEST(coco_reads_odd_documents) {
  Coco c;
  Err err;
  // Annotations before images and categories; ids out of order, negative, beyond 2^53, and one written as a string.
  const char *text =
      "{\"annotations\":["
      "{\"image_id\":\"7\",\"category_id\":-3,\"id\":5,\"bbox\":[1,2,3.5,4],\"iscrowd\":1,\"extra\":{\"a\":[1]},"
      " \"segmentation\":{\"counts\":[0,6],\"size\":[2,3]}},"
      "{\"image_id\":9007199254740993,\"category_id\":90,\"segmentation\":[[0,0,2,0,2,2,0,2],[1,1,2,1,1,2]],"
      " \"area\":null,\"iscrowd\":null,\"bbox\":null},"
      "{\"image_id\":7,\"category_id\":8,\"segmentation\":[]},"
      "{\"image_id\":7,\"category_id\":90,\"bbox\":[],\"segmentation\":{\"size\":[2,3],\"counts\":\"06\"}},"
      "{\"image_id\":404,\"category_id\":90,\"segmentation\":{\"counts\":[6],\"size\":[2,3]}}],"
      "\"images\":[{\"id\":9007199254740993,\"height\":4,\"width\":5},{\"id\":7,\"file_name\":\"old\"},"
      "{\"id\":-1,\"height\":null,\"file_name\":null},{\"id\":7,\"file_name\":\"a/b \\u00e9.jpg\",\"height\":2.0,"
      "\"width\":3}],\"categories\":[{\"id\":90},{\"id\":-3,\"name\":\"cat\"},{\"id\":90,\"name\":7}]}";
  if (!EXPECT(load_text(&c, text, &err))) {
    printf("  %s\n", err.msg);
    return;
  }
  check_invariants(&c);
  EXPECT_INT(c.num_images, 3);
  EXPECT_INT(c.num_anns, 4);
  EXPECT_INT(c.num_categories, 2);
  EXPECT_INT(c.duplicate_images, 1);
  EXPECT_INT(c.duplicate_categories, 1);
  EXPECT(c.duplicate_image == 7 && c.duplicate_category == 90);
  EXPECT_INT(c.unknown_image, 1);
  EXPECT_INT(c.unknown_image_ann, 5); // without an id it is identified by its index
  EXPECT_INT(c.unknown_category, 1);
  EXPECT_INT(c.no_segmentation, 1);
  EXPECT_INT(c.bad_segmentation, 0);
  EXPECT_STR(c.categories[0].name, "cat");
  EXPECT_STR(c.categories[1].name, "7"); // a number is a name, too
  EXPECT_STR(c.images[1].file_name, "a/b \xC3\xA9.jpg");
  EXPECT(!c.images[0].file_name && c.images[0].h == 0 && c.images[0].anns == 0);
  EXPECT_INT(coco_find_image(&c, INT64_C(9007199254740993)), 2);
  EXPECT_INT(coco_find_image(&c, INT64_C(9007199254740992)), -1);

  const CocoAnn *crowd = &c.anns[0], *none = &c.anns[1], *text_rle = &c.anns[2], *polygons = &c.anns[3];
  EXPECT(crowd->crowd && crowd->has_bbox && crowd->category == 0 && crowd->id == 5 && crowd->area == 6);
  EXPECT_NEAR(crowd->bbox[2], 3.5, 0);
  EXPECT(none->type == SEG_NONE && none->category == -1 && none->category_id == 8 && none->id == 3);
  Rle text_runs = coco_ann_runs(&c, text_rle);
  EXPECT(!text_rle->has_bbox && text_rle->type == SEG_RLE && rle_area(&text_runs) == 6);
  EXPECT(polygons->type == SEG_POLYGONS && polygons->parts == 2 && !polygons->crowd && polygons->area == 4);
  EXPECT(!memcmp(polygons->extent, (int[]){0, 0, 2, 2}, sizeof polygons->extent));
  Rle mask;
  EXPECT(!coco_ann_rle(&c, none, 2, 3, &mask));
  EXPECT(!coco_ann_rle(&c, crowd, 3, 2, &mask)); // runs fit only the size that they were made for
  EXPECT(!coco_ann_rle(&c, polygons, 0, 5, &mask));
  EXPECT(!coco_ann_rle(&c, polygons, 1 << 30, 1 << 30, &mask));
  if (EXPECT(coco_ann_rle(&c, polygons, 4, 5, &mask))) EXPECT_INT((long long)rle_area(&mask), 4);
  rle_free(&mask);
  coco_free(&c);
}

// A mask that cannot be used costs that mask, not the data set.
TEST(coco_counts_bad_segmentations) {
  static const char *bad[] = {"[[1,2,3,4]]",
                              "[[1,2,3,4,5,null]]",
                              "[[1,2],[3,4]]",
                              "[{\"x\":1,\"y\":2}]",
                              "{\"x\":1,\"y\":2}",
                              "[[[[[1,2,3,4,5,6]]]]]",
                              "[1,2,3,4,5,6,null]",
                              "[[]]",
                              "\"text\"",
                              "3",
                              "{}",
                              "{\"counts\":[1,2],\"size\":[2,2]}",
                              "{\"counts\":[-1,5],\"size\":[2,2]}",
                              "{\"counts\":[4],\"size\":[2,2,1]}",
                              "{\"counts\":[4]}",
                              "{\"size\":[2,2]}",
                              "{\"counts\":\"\\u0000\",\"size\":[2,2]}",
                              "{\"counts\":\"4\",\"size\":[2,3]}"};
  for (int i = 0; i < COUNT(bad); i++) {
    Coco c;
    Err err;
    char *text = xasprintf("{\"images\":[{\"id\":1}],\"annotations\":[{\"image_id\":1,\"category_id\":1,"
                           "\"segmentation\":%s}]}",
                           bad[i]);
    if (!EXPECT(load_text(&c, text, &err))) printf("  %s: %s\n", bad[i], err.msg);
    EXPECT_INT(c.bad_segmentation, 1);
    EXPECT_INT(c.no_segmentation, 0);
    EXPECT(c.num_anns == 1 && c.anns[0].type == SEG_NONE);
    coco_free(&c);
    free(text);
  }
}

// One broken annotation costs itself, not the data set, and is listed by its id.
TEST(coco_leaves_out_broken_annotations) {
  static const struct {
    const char *members;
    CocoFault fault; // FAULT_NONE: it is used
  } cases[] = {
      {"\"image_id\":1,\"category_id\":1,\"bbox\":[Infinity,Infinity,-Infinity,-Infinity]", FAULT_NUMBER},
      {"\"image_id\":1,\"category_id\":1,\"bbox\":[NaN,1,1,1]", FAULT_NUMBER},
      {"\"image_id\":1,\"category_id\":1,\"bbox\":[1e999,1,1,1]", FAULT_NUMBER},
      {"\"image_id\":1,\"category_id\":1,\"bbox\":[1,1,3,3],\"segmentation\":[[1,2,3,NaN,5,6]]", FAULT_NUMBER},
      {"\"image_id\":1,\"category_id\":1,\"bbox\":[1,1,3]", FAULT_BOX},
      {"\"image_id\":1,\"category_id\":1,\"bbox\":[1,1,3,null]", FAULT_BOX},
      {"\"image_id\":1,\"category_id\":1,\"bbox\":\"1 1 3 3\"", FAULT_BOX},
      {"\"image_id\":1", FAULT_IDS},
      {"\"image_id\":null,\"category_id\":1", FAULT_IDS},
      {"\"image_id\":1.5,\"category_id\":1", FAULT_IDS},
      {"\"image_id\":1,\"category_id\":[1]", FAULT_IDS},
      {"\"image_id\":1,\"category_id\":1,\"iscrowd\":2", FAULT_TYPE},
      {"\"image_id\":1,\"category_id\":1,\"iscrowd\":NaN", FAULT_TYPE},
      {"\"image_id\":1,\"category_id\":1,\"area\":\"9\"", FAULT_TYPE},
      {"\"image_id\":1,\"category_id\":1,\"bbox\":[1,1,3,3],\"area\":NaN", FAULT_NONE}, // it is the box's
      {"\"image_id\":1,\"category_id\":1,\"bbox\":null,\"score\":NaN", FAULT_NONE},
  };
  for (int i = 0; i < COUNT(cases); i++) {
    Coco c;
    Err err;
    char *text = xasprintf("{\"info\":NaN,\"images\":[{\"id\":1}],\"categories\":[{\"id\":1}],\"annotations\":[{\"id\":"
                           "5,\"image_id\":1,\"category_id\":1},{\"id\":6,%s}]}",
                           cases[i].members);
    if (EXPECT(load_text(&c, text, &err))) {
      const bool left = cases[i].fault != FAULT_NONE;
      if (!EXPECT(c.num_anns == 2 - left && c.num_broken == left)) printf("  %s\n", text);
      if (left && c.num_broken) EXPECT(c.broken[0].id == 6 && c.broken[0].fault == cases[i].fault);
      if (!left) EXPECT(isfinite(c.anns[1].area));
      check_invariants(&c);
    } else {
      printf("  %s: %s\n", text, err.msg);
    }
    coco_free(&c);
    free(text);
  }
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

// Masks in the forms that tools write are the same mask.
TEST(coco_reads_segmentations_in_many_forms) {
  static const char *const forms[] = {
      "[[1,1,4,1,4,3,1,3]]",
      "[1,1,4,1,4,3,1,3]",
      "[[1,1],[4,1],[4,3],[1,3]]",
      "[[[1,1],[4,1],[4,3],[1,3]]]",
      "[[[1,1,4,1,4,3,1,3]]]",
      "[{\"x\":1,\"y\":1},{\"x\":4,\"y\":1},{\"y\":3,\"x\":4},{\"x\":1,\"y\":3}]",
      "[[{\"x\":1,\"y\":1},{\"x\":4,\"y\":1},{\"y\":3,\"x\":4},{\"x\":1,\"y\":3}]]",
      "[{\"counts\":[6,2,3,2,3,2,7],\"size\":[5,5]}]",
      "[{\"counts\":[6,2,17],\"size\":[5,5]},{\"counts\":[11,2,3,2,7],\"size\":[5,5]}]", // its union
  };
  for (int i = 0; i < COUNT(forms); i++) {
    Coco c;
    Err err;
    char *text = xasprintf("{\"images\":[{\"id\":1,\"height\":5,\"width\":5}],\"annotations\":[{\"image_id\":1,"
                           "\"category_id\":1,\"segmentation\":%s}]}",
                           forms[i]);
    Rle mask = {0};
    if (EXPECT(load_text(&c, text, &err)) && EXPECT(coco_ann_rle(&c, &c.anns[0], 5, 5, &mask))) {
      static const uint32_t runs[] = {6, 2, 3, 2, 3, 2, 7};
      if (!EXPECT(mask.n == COUNT(runs) && !memcmp(mask.runs, runs, sizeof runs))) printf("  %s\n", forms[i]);
      EXPECT_INT(c.bad_segmentation, 0);
    }
    rle_free(&mask);
    coco_free(&c);
    free(text);
  }
}

TEST(coco_keeps_good_parts_of_bad_polygons) {
  Coco c;
  Err err;
  const char *text = "{\"images\":[{\"id\":1}],\"annotations\":[{\"image_id\":1,\"category_id\":1,"
                     "\"segmentation\":[[0,0,1],[0,0,2,0,2,2,9],[5,5,5,5,null,5,9,9]]}]}";
  EXPECT(load_text(&c, text, &err));
  EXPECT_INT(c.bad_segmentation, 1);
  EXPECT_INT(c.odd_polygon, 1);
  EXPECT(c.num_anns == 1 && c.anns[0].type == SEG_POLYGONS && c.anns[0].parts == 1 && c.part_points[0] == 3);
  EXPECT(c.anns[0].bad_segmentation && c.anns[0].odd_polygon);
  coco_free(&c);
}

TEST(coco_rejects_with_position) {
  static const struct {
    const char *text, *message; // after the path
  } cases[] = {
      {"", ":1:1: expected '{', found the end of the file"},
      {"[]", ":1:1: expected '{', found '['"},
      {"{}", ": no list \"images\"; is this a COCO annotation file?"},
      {"{\"annotations\":[]}", ": no list \"images\"; is this a COCO annotation file?"},
      {"{\"images\":3}", ":1:11: expected '[', found '3'"},
      {"{\"images\":[{}]}", ":1:14: an image without an id"},
      {"{\"images\":[{\"id\":1.5}]}", ":1:18: expected a whole number, found 1.5"},
      {"{\"images\":[{\"id\":1,\n\"width\":-2}]}", ":2:11: expected a size in pixels, found -2"},
      {"{\"images\":[],\"categories\":[{\"name\":\"x\"}]}", ":1:40: a category without an id"},
      {"{\"images\":[],\"annotations\":[{\"image_id\":1}]}",
       ": 1 of 1 annotations cannot be used; the first is annotation 1: its image_id or category_id is missing or not "
       "an id"},
      {"{\"images\":[],\"annotations\":[{\"id\":8,\"bbox\":[1,2,3]}]}",
       ": 1 of 1 annotations cannot be used; the first is annotation 8: its bbox is not 4 numbers"},
      {"{\"images\":[],\"annotations\":[{\"bbox\":[1,NaM,3,4]}]}", ":1:40: expected a value, found 'NaM'"},
      {"{\"images\":[],\"annotations\":[{\"bbox\":[1,-Inf,3,4]}]}", ":1:41: expected a digit, found 'Inf'"},
      {"{\"images\":[]}}", ":1:14: expected the end of the file, found '}'"},
      {"{\"images\":[],\"images\":[]}", ":1:23: a second list \"images\"; merge the two"},
      {"{\"images\":[{\"id\":1e30}]}", ":1:18: expected a whole number, found 1e30"},
  };
  for (int i = 0; i < COUNT(cases); i++) {
    Coco c;
    Err err = {0};
    EXPECT(!load_text(&c, cases[i].text, &err));
    char *want = xasprintf("%s/doc.json%s", test_tmp(), cases[i].message);
    EXPECT_STR(err.msg, want);
    free(want);
    EXPECT(c.num_images == 0 && !c.images && !c.path);
  }
  Coco c;
  Err err;
  EXPECT(!coco_load(&c, "/nonexistent/x.json", &err));
  EXPECT_STR(err.msg, "cannot open /nonexistent/x.json: No such file or directory");
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

// A box or an area that is absent is the mask's, also where the image has no size; without a mask the area is the
// box's.
TEST(coco_completes_annotations_by_their_masks) {
#define POLYGON "\"segmentation\":[[2,3,12,3,12,9,2,9]]"
#define RUNS "\"segmentation\":{\"size\":[4,5],\"counts\":[5,2,2,2,9]}"
  static const struct {
    const char *has;
    int h, w; // of the image; 0: not in the file
    double bbox[4], area;
  } cases[] = {
      {POLYGON, 20, 30, {2, 3, 10, 6}, 60},
      {POLYGON, 8, 10, {2, 3, 8, 5}, 40},
      {POLYGON, 0, 0, {2, 3, 10, 6}, 60},
      {RUNS, 4, 5, {1, 1, 2, 2}, 4},
      {RUNS, 0, 0, {1, 1, 2, 2}, 4},
      {RUNS ",\"bbox\":null,\"area\":7", 4, 5, {1, 1, 2, 2}, 7},
      {RUNS ",\"bbox\":[],\"area\":null", 4, 5, {1, 1, 2, 2}, 4},
      {RUNS, 8, 8, {0, 0, 0, 0}, 0}, // of another size: none
      {POLYGON ",\"bbox\":[1,2,3,4.5]", 20, 30, {1, 2, 3, 4.5}, 60},
      {"\"bbox\":[1,2,3,4.5]", 20, 30, {1, 2, 3, 4.5}, 13.5},
      {"\"bbox\":[1,2,3,4.5],\"area\":0", 20, 30, {1, 2, 3, 4.5}, 0},
      {"\"iscrowd\":1", 20, 30, {0, 0, 0, 0}, 0},
  };
#undef POLYGON
#undef RUNS
  for (int i = 0; i < COUNT(cases); i++) {
    Coco c;
    Err err;
    char size[64] = "";
    if (cases[i].h) snprintf(size, sizeof size, ",\"height\":%d,\"width\":%d", cases[i].h, cases[i].w);
    char *text = xasprintf("{\"images\":[{\"id\":1%s}],\"annotations\":[{\"image_id\":1,\"category_id\":1,%s}]}", size,
                           cases[i].has);
    if (EXPECT(load_text(&c, text, &err)) && EXPECT_INT(c.num_anns, 1)) {
      bool same = EXPECT_NEAR(c.anns[0].area, cases[i].area, 0);
      for (int k = 0; k < 4; k++) same = EXPECT_NEAR(c.anns[0].bbox[k], cases[i].bbox[k], 0) && same;
      EXPECT_INT(c.anns[0].has_bbox, strstr(cases[i].has, "bbox\":[1") != NULL);
      if (!same) printf("  case %d: %s\n", i, text);
    }
    coco_free(&c);
    free(text);
  }
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

// Truncated anywhere, or with any byte replaced, a file loads or is rejected; a sanitizer watches over the rest.
TEST(coco_survives_damage) {
  static const char text[] =
      "{\"annotations\":[{\"image_id\":1,\"category_id\":2,\"id\":5,\"bbox\":[1,2,3,4],\"iscrowd\":1,"
      "\"segmentation\":{\"counts\":[0,6],\"size\":[2,3]},\"area\":2.5},{\"image_id\":1,\"category_id\":2,"
      "\"segmentation\":[[0,0,2,0,2,2]]},{\"image_id\":1,\"category_id\":2,\"segmentation\":{\"size\":[2,3],"
      "\"counts\":\"06\"}}],\"images\":[{\"id\":1,\"file_name\":\"x\",\"height\":2,\"width\":3}],"
      "\"categories\":[{\"id\":2,\"name\":\"c\"}]}";
  static const char replacements[] = "0\"]}{[,:-9e\\";
  size_t size = sizeof text - 1;
  Coco c;
  Err err;
  for (size_t i = 0; i < size; i++) EXPECT(!coco_load(&c, write_file("doc.json", text, i), &err));
  char damaged[sizeof text];
  int accepted = 0;
  for (size_t i = 0; i < size; i++) {
    memcpy(damaged, text, sizeof text);
    damaged[i] = replacements[i % (sizeof replacements - 1)];
    for (int more = 0; more < 3; more++, damaged[i] = replacements[rng_u32(i, (uint64_t)more) % 12]) {
      if (!coco_load(&c, write_file("doc.json", damaged, size), &err)) continue;
      accepted++;
      check_invariants(&c);
      for (int k = 0; k < c.num_anns; k++) {
        Rle mask;
        coco_ann_rle(&c, &c.anns[k], 5, 4, &mask);
        rle_free(&mask);
      }
      coco_free(&c);
    }
  }
  EXPECT(accepted > 0);
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
