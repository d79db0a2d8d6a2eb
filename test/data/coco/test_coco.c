// Catches annotation files that are lost, that crash the reader, or that are malformed and pass without a message.
#include <math.h>
#include "base/alloc.h"
#include "base/rng.h"
#include "test/harness/coco_text.h"
#include "test/harness/fixtures.h"

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
