// Catches texts in weights about what was held out that crash infer, or change when they are written again.
//
// Fuzzes data/batches/holdout.h: read, written and read again, compared, and applied to a list of images. Seeds:
// test/corpus/holdout.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "data/batches/holdout.h"

static void select_side(const Holdout *h, HoldoutSide side) {
  const char *name[] = {"a.png", "b/c.png", "d.png", "\xc3\xa9.png"};
  uint64_t key[] = {1, 2, 3, 4};
  const uint32_t annotations[] = {1, 2, 3, 4};
  bool keep[4];
  Notes notes = {0};
  Err err = {""};
  ImageList l = {.of = "set", .n = 4, .name = name, .annotations = annotations, .key = key};
  CHECK(holdout_select(h, &l, side, keep, &notes, &err) || (*err.msg && !strchr(err.msg, '\n')));
  notes_free(&notes);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  char *text = memcpy(xmalloc(size + 1), bytes, size);
  Holdout h, again;
  Err err = {""};
  text[size] = '\0';
  if (holdout_read(&h, text, &err)) {
    char *written = holdout_text(&h);
    CHECK(holdout_read(&again, written, &err));
    char *twice = holdout_text(&again);
    CHECK(!strcmp(written, twice) && holdout_same(&h, &again, false, &err));
    select_side(&h, HOLDOUT_TRAIN);
    select_side(&h, HOLDOUT_VAL);
    holdout_free(&h);
    holdout_free(&again);
    free(written);
    free(twice);
  } else {
    CHECK(*err.msg && !strchr(err.msg, '\n'));
  }
  free(text);
  return 0;
}
