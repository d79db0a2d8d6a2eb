// Catches an import that hides what it took, writes over files, or alters its source.
#include <string.h>
#include "test/harness/command.h"
#include "test/harness/test.h"

TEST_TIER(import_program_says_what_it_took, 1) {
  const char *said;
  EXPECT_INT(command(&said,
                     "cp -r test/exports/yolo-seg-yaml-list %s && cp test/exports/labelme-exif/* %s && cp -r %s %s",
                     in_tmp("in"), in_tmp("in"), in_tmp("in"), in_tmp("before")),
             0);
  EXPECT_INT(command(&said, "%s %s --to %s", tool("import"), in_tmp("in"), in_tmp("out")), 0);
  EXPECT(strstr(said, "format: labelme") != NULL);
  EXPECT(strstr(said, "also found 2 YOLO label files, not read; --format yolo reads those instead") != NULL);
  EXPECT_INT(command(&said, "%s %s --to %s --format yolo", tool("import"), in_tmp("in"), in_tmp("yolo")), 0);
  EXPECT(strstr(said, "category 2: wedge, 2 objects") != NULL);
  EXPECT_INT(command(&said, "%s test/exports/yolo-seg --to %s", tool("import"), in_tmp("seg")), 0);
  EXPECT(strstr(said, "5 objects (4 polygon, 0 RLE, 1 box only)") != NULL);
  EXPECT(strstr(said, "dropped 1 row: expected CLASS x y x y …, or CLASS x y w h (first: train/labels/p5.txt:3)") !=
         NULL);
  EXPECT_INT(command(&said, "diff -r %s %s", in_tmp("before"), in_tmp("in")), 0);
  EXPECT_INT(command(&said, "mv %s %s", in_tmp("out"), in_tmp("in/coco")), 0); // and once more:
  EXPECT_INT(command(&said, "%s %s --to %s --format yolo", tool("import"), in_tmp("in"), in_tmp("again")), 0);
  EXPECT(strstr(said, "train: 1 image,") != NULL); // those of in/coco are copies
  EXPECT_INT(command(&said, "%s --data %s --model tiny", tool("doctor"), in_tmp("yolo")), 0);
}

TEST_TIER(import_program_refuses, 1) {
  const char *said, *import = tool("import");
  EXPECT_INT(command(&said, "mkdir %s && touch %s", in_tmp("full"), in_tmp("full/x")), 0);
  EXPECT_INT(command(&said, "%s test/exports/labelme-exif --to %s", import, in_tmp("full")), 2);
  EXPECT(strstr(said, "not empty") != NULL);
  EXPECT_INT(command(&said, "%s test/exports/labelme-exif --to %s --format x", import, in_tmp("out")), 2);
  EXPECT(strstr(said, "expected one of cvat, label-studio, via") != NULL);
  EXPECT_INT(command(&said, "%s test/exports/layout-flat --to %s", import, in_tmp("out")), 2);
  EXPECT(strstr(said, "COCO already") != NULL);
  EXPECT_INT(command(&said, "%s test/exports/layout-flat/_annotations.coco.json --to %s", import, in_tmp("out")), 2);
  EXPECT(strstr(said, " --train-json test/exports/layout-flat/_annotations.coco.json --train-images DIR") != NULL);
  EXPECT_INT(command(&said, "%s test/exports/labels-colour-jpeg --to %s", import, in_tmp("out")), 2);
  EXPECT(strstr(said, "668") != NULL);
  EXPECT_INT(command(&said, "%s test/exports/labels-colour-jpeg --to %s --strict", import, in_tmp("out")), 2);
  EXPECT(strstr(said, "--strict stops here") != NULL);
  EXPECT_INT(command(&said, "%s test/exports/yolo-seg --to %s --strict", import, in_tmp("out")), 2);
  EXPECT(strstr(said, "p5.txt:2: object: class 7, but there are 2 class names; --strict stops here") != NULL);
  EXPECT_INT(command(&said, "%s /nowhere --to %s", import, in_tmp("out")), 2);
  EXPECT_INT(command(&said, "%s %s --to %s", import, in_tmp("full"), in_tmp("out")), 2);
  EXPECT(strstr(said, "no annotations of a known format") != NULL);
  EXPECT_INT(command(&said, "test ! -e %s", in_tmp("out")), 0);
}

// What would write into its source, write nothing of use, or lose the names of classes.
TEST_TIER(import_program_refuses_what_has_no_use, 1) {
  const char *said, *import = tool("import");
  EXPECT_INT(command(&said, "cp -r test/exports/labels-16bit %s", in_tmp("in")), 0);
  EXPECT_INT(command(&said, "%s %s --to %s", import, in_tmp("in"), in_tmp("in/new/out")), 2);
  EXPECT(strstr(said, "choose a folder outside it") != NULL);
  EXPECT_INT(command(&said, "%s test/exports/labels-16bit --to %s --format yolo", import, in_tmp("out")), 2);
  EXPECT(strstr(said, "no object could be read from") && strstr(said, "background"));
  EXPECT_INT(command(&said, "%s test/exports/labels-16bit --to %s --format labelme", import, in_tmp("out")), 2);
  EXPECT(strstr(said, "no labelme JSON files found") != NULL);
  EXPECT_INT(command(&said, "cp test/exports/layout-flat/*.json %s", in_tmp("in")), 0);
  EXPECT_INT(command(&said, "%s %s --to %s", import, in_tmp("in"), in_tmp("out")), 2);
  EXPECT(strstr(said, "already has COCO annotations (1 file)") && strstr(said, "--format label-images"));
  EXPECT_INT(command(&said, "touch %s && %s %s --to %s", in_tmp("a.zip"), import, in_tmp("a.zip"), in_tmp("out")), 2);
  EXPECT(strstr(said, "is an archive") != NULL);
  EXPECT_INT(command(&said, "mkdir -p %s && touch %s && %s %s --to %s", in_tmp("voc/Annotations"),
                     in_tmp("voc/Annotations/a.xml"), import, in_tmp("voc"), in_tmp("out")),
             2);
  EXPECT(strstr(said, "Pascal VOC boxes") != NULL);
  EXPECT_INT(command(&said, "test ! -e %s && test ! -e %s", in_tmp("out"), in_tmp("in/new")), 0);
}
