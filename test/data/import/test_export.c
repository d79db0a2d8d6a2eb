// Catches a mask that changes on its way to labelme or YOLO and back.
#include <string.h>
#include "data/import/export.h"
#include "test/harness/command.h"
#include "test/harness/import.h"
#include "test/harness/test.h"

// Three objects: one with a hole and a part of its own, which touches the rest by a corner; one along the edge; a box.
static Rle draw(int which) {
  uint8_t m[48][64] = {{0}};
  for (int y = 5; which == 0 && y < 25; y++)
    for (int x = 7; x < 30; x++) m[y][x] = !(y > 9 && y < 14 && x > 10 && x < 20);
  for (int y = 25; which == 0 && y < 29; y++)
    for (int x = 30; x < 34; x++) m[y][x] = 1;
  for (int y = 40; which == 0 && y < 41; y++) m[y][60] = m[y][62] = 1;
  for (int y = 0; which == 1 && y < 48; y++) m[y][y] = m[y][63] = 1;
  return rle_from_bytes(&m[0][0], 48, 64);
}

static void write_detections(const char *path) {
  FILE *f = fopen(path, "w");
  CHECK(f);
  fprintf(f, "[");
  for (int i = 0; i < 3; i++) {
    const CocoResult r = {
        .category_id = i + 1, .bbox = {2, 40, 7, 5}, .score = 0.9, .has_bbox = true, .has_segm = i < 2, .rle = draw(i)};
    CocoResult out = r;
    fprintf(f, "%s{\"image_id\":1,\"file_name\":\"test/exports/via-shapes/img.png\",\"category\":\"c%d: é\",",
            i ? "," : "", i);
    coco_result_write(f, &out, false);
    fprintf(f, "}");
    rle_free(&out.rle);
  }
  fprintf(f, ",{\"image_id\":1,\"file_name\":\"test/exports/via-shapes/img.png\",\"category\":\"c9\",\"category_id\":9,"
             "\"score\":0.2,\"bbox\":[1,1,2,2]}]");
  fclose(f);
}

static void expect_round_trip(ExportWrite *to, const char *format, bool rectangle) {
  Tree tree = {0};
  ImportSet set = {.tree = &tree};
  uint64_t lost = 0;
  Err err;
  write_detections(in_tmp("detections.json"));
  export_read(&set, in_tmp("detections.json"), 0.5);
  import_settle(&set);
  EXPECT_INT(set.n, 1);
  EXPECT(to(&set, in_tmp("exported"), &lost, &err));
  EXPECT_INT(lost, 0);
  import_free(&set);
  tree_free(&tree);
  Imported i = import_folder(in_tmp("exported"), NULL, (ImportOptions){0});
  Coco c = imported_split("train");
  EXPECT_STR(i.format->name, format);
  EXPECT_INT(c.num_anns, 3);
  EXPECT_INT(imported_count(&i, "data.yaml: val has the images of train, and is left out"), !rectangle); // once
  EXPECT_STR(c.categories[1].name, "c1: é");
  for (int k = 0; k < c.num_anns; k++) {
    const CocoAnn *a = &c.anns[k];
    Rle want = draw(a->category), got;
    const bool has = coco_ann_rle(&c, a, 48, 64, &got);
    EXPECT_INT(has, a->category < 2 || rectangle);
    if (a->category < 2 && has) {
      EXPECT_INT(got.n, want.n);
      EXPECT(got.n == want.n && !memcmp(got.runs, want.runs, (size_t)got.n * sizeof *got.runs));
    }
    if (has) rle_free(&got);
    rle_free(&want);
  }
  expect_object(&c, "img.png", "c2: é", BOX(2, 40, 7, 5), 35, 0, rectangle);
  coco_free(&c);
  imported_free(&i);
}

TEST(export_to_labelme_and_back) { expect_round_trip(export_labelme, "labelme", true); }
TEST(export_to_yolo_and_back) { expect_round_trip(export_yolo, "yolo", false); }

TEST_TIER(export_program, 1) {
  const char *said;
  write_detections(in_tmp("detections.json"));
  EXPECT_INT(command(&said, "%s %s --to %s --yolo --images test/exports/via-shapes", tool("export"),
                     in_tmp("detections.json"), in_tmp("exported")),
             0);
  EXPECT(strstr(said, "1 images, 3 objects") && strstr(said, "pixels lost: 0"));
  EXPECT_INT(command(&said, "%s %s --to %s --yolo", tool("export"), in_tmp("detections.json"), in_tmp("exported")), 2);
  EXPECT(strstr(said, "not empty") != NULL);
  EXPECT_INT(
      command(&said, "%s %s --to %s --yolo --score 0.95", tool("export"), in_tmp("detections.json"), in_tmp("x")), 2);
  EXPECT(strstr(said, "none of 4 detections has a score of at least 0.95 (--score)") != NULL);
  EXPECT_INT(command(&said, "sed s:test/exports:away:g %s >%s", in_tmp("detections.json"), in_tmp("away.json")), 0);
  EXPECT_INT(command(&said, "%s %s --to %s --yolo", tool("export"), in_tmp("away.json"), in_tmp("x")), 2);
  EXPECT(strstr(said, "img.png not found; give --images DIR") != NULL);
  EXPECT_INT(command(&said, "%s %s --to %s --yolo", tool("export"), "test/exports/layout-flat/*.json", in_tmp("x")), 2);
  EXPECT(strstr(said, "expected detections.json as infer writes it") != NULL);
}

// Pictures that differ only in their endings do not share a file of annotations.
TEST_TIER(export_of_pictures_with_one_stem, 1) {
  const char *said;
  EXPECT_INT(command(&said,
                     "cd %s && mkdir in && cp $OLDPWD/test/exports/via-shapes/img.png in/a.png && "
                     "cp $OLDPWD/test/exports/labelme-exif/a.jpg in/a.jpg && echo '[]' >d.json",
                     test_tmp()),
             0);
  for (int k = 0; k < 2; k++) {
    const char *out = in_tmp(k ? "yolo" : "labelme");
    EXPECT_INT(command(&said, "%s %s --images %s --to %s --%s", tool("export"), in_tmp("d.json"), in_tmp("in"), out,
                       k ? "yolo" : "labelme"),
               0);
    EXPECT_INT(command(&said, "find %s -name '*.%s' | wc -l", out, k ? "txt" : "json"), 0);
    EXPECT_STR(said, "2\n");
  }
}
