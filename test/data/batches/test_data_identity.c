// Catches two sets that are taken for the same although they differ, and the same set that is not recognised.
#include <stdlib.h>
#include "base/alloc.h"
#include "data/batches/data_identity.h"
#include "test/harness/test.h"

enum { IMAGES = 40 };

// A set in memory whose images are files of 100 + i bytes with one box each, `from` shifts names and boxes.
typedef struct FakeSet {
  Dataset d;
  CocoCategory category[2];
} FakeSet;

static void fake_open(FakeSet *f, int images, int from) {
  *f = (FakeSet){.category = {{.id = 1, .name = (char *)"disc"}, {.id = 2, .name = (char *)"ring"}}};
  Dataset *d = &f->d;
  d->num_images = d->coco.num_images = images;
  d->coco.path = (char *)"FILE";
  d->coco.categories = f->category;
  d->coco.num_categories = 2;
  d->coco.images = xcalloc((size_t)images, sizeof *d->coco.images);
  d->image = xcalloc((size_t)images, sizeof *d->image);
  d->file_bytes = xcalloc((size_t)images, sizeof *d->file_bytes);
  d->first_object = xcalloc((size_t)images + 1, sizeof *d->first_object);
  for (int i = 0; i < images; i++) {
    d->coco.images[i] = (CocoImage){.id = i,
                                    .file_name = xasprintf("%06d.png", i + from),
                                    .h = 8,
                                    .w = 9,
                                    .drawn = (uint64_t)(1000 + i + from),
                                    .labelled = 5};
    d->image[i] = i;
    d->file_bytes[i] = 100 + i + from;
  }
}

static void fake_close(FakeSet *f) {
  for (int i = 0; i < f->d.num_images; i++) free(f->d.coco.images[i].file_name);
  free(f->d.coco.images);
  free(f->d.image);
  free(f->d.file_bytes);
  free(f->d.first_object);
}

TEST(data_identity_names_what_changed) {
  FakeSet f;
  Err err = {""};
  fake_open(&f, IMAGES, 0);
  char *list = trained_on_text(NULL, &f.d);
  f.d.coco.images[3].id = 77; // means nothing
  EXPECT(trained_on_same(list, &f.d, false, &err));
  f.d.file_bytes[3]++;
  EXPECT(!trained_on_same(list, &f.d, false, &err));
  EXPECT_STR(err.msg, "FILE differs from the data of this run in its image files (names, lengths or sizes)");
  f.d.file_bytes[3]--;
  f.d.coco.images[7].drawn++;
  EXPECT(!trained_on_same(list, &f.d, false, &err) && strstr(err.msg, "run in its annotations"));
  f.d.coco.images[7].drawn--;
  f.d.coco.images[7].labelled++;
  EXPECT(!trained_on_same(list, &f.d, false, &err) && strstr(err.msg, "run in its annotations"));
  f.d.coco.images[7].labelled--;
  f.d.coco.images[7].areas++;
  EXPECT(!trained_on_same(list, &f.d, false, &err) && strstr(err.msg, "run in its annotations"));
  f.d.coco.images[7].areas--;
  f.category[1].name = (char *)"box";
  EXPECT(!trained_on_same(list, &f.d, false, &err) && strstr(err.msg, "run in its categories"));
  f.category[1].name = (char *)"ring";
  EXPECT(trained_on_same(list, &f.d, false, &err));
  EXPECT(!trained_on_same("[{\"images\":", &f.d, false, &err) && strstr(err.msg, "cannot be read"));
  bool read[IMAGES] = {true, true};
  const DataIdentity all = data_identity(&f.d, NULL), two = data_identity(&f.d, read);
  EXPECT(two.images == 2 && data_identity_number(&all) != data_identity_number(&two));
  EXPECT(data_identity_number(&all) > 0 && data_identity_number(&all) < (int64_t)1 << 52);
  free(list);
  fake_close(&f);
}

TEST(trained_on_counts_images_that_were_learnt_from) {
  FakeSet train, val;
  bool exact;
  fake_open(&train, IMAGES, 0);
  fake_open(&val, IMAGES, IMAGES - 3); // three of them are training's
  char *list = trained_on_text(NULL, &train.d);
  EXPECT_INT(trained_on_count(list, &train.d, NULL, &exact), IMAGES);
  EXPECT_INT(trained_on_count(list, &val.d, NULL, &exact), 3);
  char *bare = val.d.coco.images[0].file_name; // the name counts, not the folder
  val.d.coco.images[0].file_name = xasprintf("folder/%s", bare);
  free(bare);
  EXPECT_INT(trained_on_count(list, &val.d, NULL, &exact), 3);
  char *named = val.d.coco.images[1].file_name; // a copy under another name
  val.d.coco.images[1].file_name = xstrdup("copy.png");
  EXPECT_INT(trained_on_count(list, &val.d, NULL, &exact), 3);
  free(val.d.coco.images[1].file_name);
  val.d.coco.images[1].file_name = named;
  for (int i = 0; i < 3; i++) val.d.coco.images[i].drawn += 99; // names and lengths may come again by chance
  EXPECT(trained_on_count(list, &val.d, NULL, &exact) == 0 && exact);
  for (int i = 0; i < IMAGES; i++) train.d.coco.images[i].drawn += 99; // … but not most of them
  EXPECT_INT(trained_on_count(list, &train.d, NULL, &exact), IMAGES);
  char *both = trained_on_text(list, &val.d); // a run on val that began with these weights
  EXPECT_INT(trained_on_count(both, &train.d, NULL, &exact), IMAGES);
  EXPECT_INT(trained_on_count(both, &val.d, NULL, &exact), IMAGES);
  char *again = trained_on_text(both, &val.d);
  EXPECT_STR(again, both);
  EXPECT_INT(trained_on_count("junk", &val.d, NULL, &exact), -1);
  free(list);
  free(both);
  free(again);
  fake_close(&train);
  fake_close(&val);
}

// Of many images a sample is kept, from which the number is estimated.
TEST(trained_on_estimates_of_many_images) {
  enum { MANY = 5 * TRAINED_SAMPLE };
  FakeSet train, val;
  bool exact;
  fake_open(&train, MANY, 0);
  fake_open(&val, MANY, MANY / 2);
  char *list = trained_on_text(NULL, &train.d);
  EXPECT(strlen(list) < 16 * TRAINED_SAMPLE + 200);
  EXPECT(trained_on_count(list, &train.d, NULL, &exact) == MANY && !exact);
  const int half = trained_on_count(list, &val.d, NULL, &exact);
  EXPECT(half > MANY * 0.45 && half < MANY * 0.55);
  free(list);
  fake_close(&train);
  fake_close(&val);
}
