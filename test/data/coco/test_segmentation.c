// Catches segmentations that are misread, lost in one of the forms in which tools write them, or counted as good.
#include "base/alloc.h"
#include "test/harness/coco_text.h"

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

// A list of many run lists takes no more memory than they: the unions in between are not kept.
TEST(coco_unites_many_run_lists_in_their_place) {
  enum { LISTS = 200, SIZE = 100 };
  char list[LISTS * 64];
  int used = 0;
  for (int i = 0; i < LISTS; i++)
    used += snprintf(list + used, sizeof list - (size_t)used, "%s{\"size\":[%d,%d],\"counts\":[%d,1,%d]}", i ? "," : "",
                     SIZE, SIZE, 2 * i + 1, SIZE * SIZE - 2 * i - 2);
  char *text = xasprintf("{\"images\":[{\"id\":1,\"height\":%d,\"width\":%d}],\"annotations\":[{\"image_id\":1,"
                         "\"category_id\":1,\"segmentation\":[%s]},{\"image_id\":1,\"category_id\":1,"
                         "\"segmentation\":{\"size\":[2,2],\"counts\":[1,3]}}]}",
                         SIZE, SIZE, list);
  Coco c;
  Err err;
  if (EXPECT(load_text(&c, text, &err)) && EXPECT_INT(c.num_anns, 2) && EXPECT_INT(c.anns[0].num_runs, 2 * LISTS + 1)) {
    const Rle mask = coco_ann_runs(&c, &c.anns[0]), other = coco_ann_runs(&c, &c.anns[1]);
    for (int k = 0; k < 2 * LISTS; k++) EXPECT_INT(mask.runs[k], 1);
    EXPECT_INT(mask.runs[2 * LISTS], SIZE * SIZE - 2 * LISTS);
    EXPECT(other.n == 2 && other.runs[0] == 1 && other.runs[1] == 3);
    EXPECT(c.num_runs == (size_t)(mask.n + other.n));
  }
  coco_free(&c);
  free(text);
}

// So does a mask of many polygons: they are not all in memory at once.
TEST(coco_unites_many_polygons) {
  enum { PARTS = 5000, SIZE = 100 };
  static char list[PARTS * 40];
  int used = 0;
  for (int i = 0; i < PARTS; i++) {
    const int x = i / SIZE % SIZE, y = i % SIZE; // the left half
    used += snprintf(list + used, sizeof list - (size_t)used, "%s[%d,%d,%d,%d,%d,%d,%d,%d]", i ? "," : "", x, y, x + 1,
                     y, x + 1, y + 1, x, y + 1);
  }
  char *text = xasprintf("{\"images\":[{\"id\":1,\"height\":%d,\"width\":%d}],\"annotations\":[{\"image_id\":1,"
                         "\"category_id\":1,\"segmentation\":[%s]}]}",
                         SIZE, SIZE, list);
  Coco c;
  Err err;
  Rle mask;
  Scratch scratch = {0};
  if (EXPECT(load_text(&c, text, &err)) && EXPECT_INT(c.anns[0].parts, PARTS) &&
      EXPECT(coco_ann_rle_in(&scratch, &c, &c.anns[0], SIZE, SIZE, &mask))) {
    EXPECT(mask.n == 3 && mask.runs[0] == 0 && mask.runs[1] == PARTS && mask.runs[2] == SIZE * SIZE - PARTS);
    EXPECT(scratch.used + scratch.more_bytes < 10000);
  }
  scratch_free(&scratch);
  coco_free(&c);
  free(text);
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
