// Catches data of boxes only for which a model with masks is chosen, and the reverse.
#include <stdlib.h>
#include "base/alloc.h"
#include "base/basics.h"
#include "data/coco/mask_scan.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

TEST(mask_scan_takes_what_the_reader_takes) {
  static const struct {
    const char *annotation;
    bool found;
  } cases[] = {{"", false},
               {"\"segmentation\":[]", false},
               {"\"segmentation\" :\r\n\t[ ]", false},
               {"\"segmentation\":null", false},
               {"\"caption\":\"segmentation\"", false},
               {"\"caption\":\"a \\\"segmentation\\\":[[1]]\"", false},
               {"\"segmentation\":[[]]", true}, // no mask that can be used, but meant to be one
               {"\"segmentation\":[[1,2,3,4,5,6]]", true},
               {"\"segmentation\":[],\"x\":{\"segmentation\":{\"size\":[1,1],\"counts\":[1]}}", true},
               {"\"segmentation\":\"W1\"", true}};
  char *path = xasprintf("%s/mask-scan.json", test_tmp());
  for (int i = 0; i < COUNT(cases); i++) {
    char *text = xasprintf("{\"annotations\":[{%s}]}", cases[i].annotation);
    write_text(path, text);
    if (!EXPECT(mask_scan_finds(path) == cases[i].found)) printf("    %s\n", text);
    free(text);
  }
  write_text(path, "{\"segmentation\"");
  EXPECT(!mask_scan_finds(path));
  EXPECT(mask_scan_finds(test_tmp())); // a folder
  free(path);
}
