// Catches texts that are mixed up when the table grows, and texts that are found without having been added.
#include "base/alloc.h"
#include "base/text_table.h"
#include "test/harness/test.h"

TEST(text_table_numbers_texts_in_order) {
  TextTable t = {0};
  char text[16];
  EXPECT_INT(text_table_find(&t, ""), -1);
  for (int round = 0; round < 2; round++)
    for (int i = 0; i < 300; i++) {
      snprintf(text, sizeof text, "%d", i);
      EXPECT_INT(text_table_add(&t, text), i);
    }
  EXPECT_INT(t.n, 300);
  EXPECT_STR(t.text[299], "299");
  EXPECT_INT(text_table_find(&t, "300"), -1);
  EXPECT_INT(text_table_add(&t, ""), 300);
  text_table_free(&t);
}
