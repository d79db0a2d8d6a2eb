// Catches a form of data.yaml's names or paths that is misread.
#include "data/import/yaml.h"
#include "test/harness/test.h"

static void expect_names(const char *text, const char *first, const char *second) {
  Yaml y = yaml_read(text);
  const YamlEntry *names = yaml_find(&y, "names");
  if (EXPECT(names != NULL) && EXPECT_INT(names->n, 2)) {
    EXPECT_STR(names->value[0], first);
    EXPECT_STR(names->value[1], second);
  }
  yaml_free(&y);
}

TEST(yaml_lists_and_maps) {
  expect_names("names: ['a', \"b c\"]\n", "a", "b c");
  expect_names("names: [a,\n  b] # more\nnc: 2", "a", "b");
  expect_names("\xEF\xBB\xBFnames:\r\n- a\r\n- b # c\r\nnc: 2\r\n", "a", "b");
  expect_names("nc: 2\nnames:\n  0: a\n\n  1: 'it''s'\n", "a", "it's");
  expect_names("names: {0: a, 1: \"b, c\"}\n", "a", "b, c");
  expect_names("names:\n  - \"\\xE9\\u4e2d\\n\"\n  - a: b#c\n", "é中\n", "a: b#c");
  expect_names("names:\n- a long\n  name\n- b\n", "a long name", "b");
  expect_names("names: # all\n  [\n    a, # it's: ]\n    # c,\n    b,\n  ]\n", "a", "b");
}

TEST(yaml_scalars_and_what_is_skipped) {
  Yaml y = yaml_read(
      "# all\npath: C:\\Users\\me # here\ndownload: |\n  names: [x]\n  train: y\ntrain:\n  - a/b\n  - c\nval: "
      "\ntest: ~\n");
  EXPECT_STR(yaml_find(&y, "path")->value[0], "C:\\Users\\me");
  EXPECT(yaml_find(&y, "names") == NULL);
  EXPECT_INT(yaml_find(&y, "train")->n, 2);
  EXPECT_INT(yaml_find(&y, "val")->n, 0);
  EXPECT_STR(yaml_find(&y, "test")->value[0], "~");
  yaml_free(&y);
}
