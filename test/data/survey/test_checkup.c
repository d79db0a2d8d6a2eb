// Catches doctor's lines that are missing or wrong, categories of two splits mixed up, and overlooked mistakes.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/text.h"
#include "data/batches/objects.h"
#include "data/survey/checkup.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

static const CheckupOptions usual = {
    .train_split = "train", .val_split = "val", .size = 96, .max_size = 160, .canvases = 2, .decode = true};

static void look(Checkup *c, Diagnosis *f, const CheckupOptions *o, const char *dir) {
  CheckupOptions here = *o;
  here.data = dir;
  checkup_take(c, &here);
  checkup_diagnosis(f, c, &here);
}

static void forget(Checkup *c, Diagnosis *f) {
  diagnosis_free(f);
  checkup_free(c);
}

static const char *said(const DiagnosisSplit *s, const char *name) {
  for (int i = 0; i < s->num_statistics; i++)
    if (!strcmp(s->statistic[i].name, name)) return s->statistic[i].text;
  return NULL;
}

// A split to evaluate on with one image and these categories; its object has the first.
static void write_val(const char *dir, const char *categories, int first) {
  char *images = xasprintf("%s/val", dir), *copy = xasprintf("cp %s/train/1.png %s/x.png", dir, images);
  char *path = xasprintf("%s/annotations/instances_val.json", dir);
  char *text =
      xasprintf("{\"categories\":[%s],\"images\":[{\"id\":1,\"file_name\":\"x.png\",\"height\":41,\"width\":60}],"
                "\"annotations\":[{\"id\":1,\"image_id\":1,\"category_id\":%d,\"bbox\":[1,1,30,30]}]}",
                categories, first);
  CHECK(dirs_make(images, NULL) && system(copy) == 0);
  write_text(path, text);
  char *all[] = {images, copy, path, text};
  for (int i = 0; i < COUNT(all); i++) free(all[i]);
}

TEST(checkup_says_what_there_is) {
  Checkup c;
  Diagnosis f;
  look(&c, &f, &usual, small_set("checkup"));
  const DiagnosisSplit *s = &f.split[0];
  EXPECT_STR(
      said(s, "images"),
      "14, of which 2 without objects are left out (--keep-empty uses them); median 60 x 47 px, largest 60 x 53 px");
  EXPECT_STR(said(s, "input"), "resized 2.1x (median), padded to 160 x 96, 96 x 160; 22 % of the pixels are padding");
  EXPECT_STR(said(s, "objects"), "24 in 2 of 2 categories; at most 3 per image; 2 crowd annotations left out");
  EXPECT_STR(said(s, "object size"), "15 / 16 / 19 px after resizing (10th, 50th, 90th percentile)");
  EXPECT(said(s, "decoding") && !s->stop);
  EXPECT_STR(f.read_as, "as loaded by train with --size 96 --max-size 160 --canvases 2");
  EXPECT_STR(f.absent, "no split val to evaluate on; --val-fraction 0.2 holds out a fifth of the training images");
  EXPECT(strstr(c.suggestion.flags, " --val-fraction 0.2"));
  EXPECT(!f.unseen && !f.split[1].name);
  char *text;
  size_t size;
  FILE *out = text_open(&text, &size);
  objects_with_masks.print(&c.train.data, out); // as train does
  text_close(out);
  for (char *p = text; (p = strstr(p, "\n  "));) { // wrapped lines
    *p = ' ';
    memmove(p + 1, p + 3, strlen(p + 3) + 1);
  }
  EXPECT(strstr(text, "data: 12 training images, ") && strstr(text, "; 2 without objects left out (--keep-empty"));
  free(text);
  EXPECT_INT(f.categories, 2);
  EXPECT(!strcmp(f.category[0].name, "a") && f.category[0].count[0] == 16 && f.category[0].count[1] == -1);
  EXPECT(!strcmp(f.category[1].name, "b") && f.category[1].count[0] == 8 && f.category[1].images == 8);
  forget(&c, &f);
}

// Categories are matched by name; the one with most objects comes first.
TEST(checkup_joins_the_categories_of_both_splits) {
  Checkup c;
  Diagnosis f;
  CheckupOptions o = usual;
  const char *dir = small_set("checkup-both");
  write_val(dir, "{\"id\":8,\"name\":\"b\"}", 8);
  o.decode = false;
  o.exif = EXIF_YES;
  o.keep_empty = true;
  look(&c, &f, &o, dir);
  EXPECT_STR(f.read_as, "as loaded by train with --size 96 --max-size 160 --canvases 2 --exif yes --keep-empty");
  EXPECT_STR(f.unseen, " in the annotations; image files and masks were not checked");
  EXPECT(!f.absent && !f.split[1].stop && !said(&f.split[1], "decoding"));
  EXPECT_INT(f.categories, 2);
  EXPECT(f.category[0].id == 3 && f.category[0].count[0] == 16 && f.category[0].count[1] == 0);
  EXPECT(f.category[1].id == 8 && f.category[1].count[0] == 8 && f.category[1].count[1] == 1);
  EXPECT(f.split[0].category[0] == 0 && f.split[0].category[1] == 1 && f.split[1].category[1] == 1);
  forget(&c, &f);
}

TEST(checkup_says_why_training_would_stop) {
  Checkup c;
  Diagnosis f;
  CheckupOptions o = usual;
  const char *dir = small_set("checkup-stop");
  write_val(dir, "{\"id\":8,\"name\":\"b\"},{\"id\":9,\"name\":\"c\"}", 9);
  look(&c, &f, &o, dir);
  EXPECT(!f.sound && !f.split[0].stop && f.split[1].stop && strstr(f.split[1].stop, ": 1 category is not in "));
  EXPECT_INT(f.categories, 3);
  forget(&c, &f);
  o.val_split = "test"; // asked for, and not there
  look(&c, &f, &o, dir);
  EXPECT(!f.sound && !f.absent && f.split[1].stop && strstr(f.split[1].stop, "no annotations of a split test"));
  forget(&c, &f);
}
