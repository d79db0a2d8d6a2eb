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
  EXPECT(strstr(said, "2 of YOLO's label files, too: not read; --format yolo takes them instead") != NULL);
  EXPECT_INT(command(&said, "%s %s --to %s --format yolo", tool("import"), in_tmp("in"), in_tmp("yolo")), 0);
  EXPECT(strstr(said, "category 2: wedge, 2 objects") != NULL);
  EXPECT_INT(command(&said, "diff -r %s %s", in_tmp("before"), in_tmp("in")), 0);
  EXPECT_INT(command(&said, "%s %s --to %s", tool("import"), in_tmp("in"), in_tmp("in/coco")), 0); // and once more:
  EXPECT_INT(command(&said, "%s %s --to %s --format yolo", tool("import"), in_tmp("in"), in_tmp("again")), 0);
  EXPECT(strstr(said, "train: 1 images") != NULL); // those of in/coco are copies
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
  EXPECT(strstr(said, "COCO's already") != NULL);
  EXPECT_INT(command(&said, "%s test/exports/labels-colour-jpeg --to %s", import, in_tmp("out")), 2);
  EXPECT(strstr(said, "668") != NULL);
  EXPECT_INT(command(&said, "%s test/exports/labels-colour-jpeg --to %s --strict", import, in_tmp("out")), 2);
  EXPECT(strstr(said, "--strict stops here") != NULL);
  EXPECT_INT(command(&said, "%s /nowhere --to %s", import, in_tmp("out")), 2);
  EXPECT_INT(command(&said, "%s %s --to %s", import, in_tmp("full"), in_tmp("out")), 2);
  EXPECT(strstr(said, "no annotations of a known format") != NULL);
  EXPECT_INT(command(&said, "test ! -e %s", in_tmp("out")), 0);
}
