// Catches groups that are divided unevenly, categories on one side although they could be on both, and results that
// depend on the order of groups.
#include <stdlib.h>
#include "base/rng.h"
#include "data/batches/stratify.h"
#include "test/harness/test.h"

enum { GROUPS = 200, CATEGORIES = 12 };

static const int64_t fifth[] = {4, 1}, equal[] = {1, 1, 1, 1, 1};

// Groups of one to three images; category k is in about one of k + 2 groups, the last in two only.
typedef struct Drawn {
  int images[GROUPS], first[GROUPS + 1], part[GROUPS];
  uint64_t order[GROUPS];
  CategoryCount of[GROUPS * CATEGORIES];
} Drawn;

// With `reversed` the same groups in the opposite order.
static void draw(Drawn *d, uint64_t seed, bool reversed) {
  int n = 0;
  for (int i = 0; i < GROUPS; i++) {
    const int g = reversed ? GROUPS - 1 - i : i;
    d->images[i] = 1 + (int)(rng_u32(seed, (uint64_t)g) % 3);
    d->order[i] = rng_key(seed, (uint64_t)g);
    d->first[i] = n;
    for (int k = 0; k < CATEGORIES - 1; k++)
      if (rng_u32(d->order[i], (uint64_t)k) % (uint32_t)(k + 2) == 0)
        d->of[n++] = (CategoryCount){k, 1 + (int)(rng_u32(d->order[i], (uint64_t)k + 99) % (uint32_t)d->images[i])};
    if (g < 2) d->of[n++] = (CategoryCount){CATEGORIES - 1, 1};
  }
  d->first[GROUPS] = n;
}

static void divide(Drawn *d, const int64_t *share, int parts) {
  stratify(&(Strata){.groups = GROUPS,
                     .categories = CATEGORIES,
                     .images = d->images,
                     .order = d->order,
                     .first = d->first,
                     .of = d->of},
           share, parts, d->part);
}

// Images of a category in a part; category -1: all.
static int images_in(const Drawn *d, int category, int part) {
  int n = 0;
  for (int g = 0; g < GROUPS; g++) {
    if (d->part[g] != part) continue;
    if (category < 0) n += d->images[g];
    for (int k = d->first[g]; k < d->first[g + 1]; k++) n += d->of[k].category == category ? d->of[k].images : 0;
  }
  return n;
}

TEST(stratify_gives_each_part_its_share) {
  static Drawn d;
  for (uint64_t seed = 1; seed <= 8; seed++) {
    draw(&d, seed, false);
    divide(&d, fifth, 2);
    for (int k = -1; k < CATEGORIES; k++) {
      const int held = images_in(&d, k, 1), all = held + images_in(&d, k, 0);
      // A fifth, up to the images of a group and those that a category with two groups takes along.
      if (!EXPECT(held > 0 && held < all && abs(5 * held - all) <= 5 * 3)) printf("  %d: %d of %d\n", k, held, all);
    }
    divide(&d, equal, 5);
    for (int k = -1; k < CATEGORIES - 1; k++)
      for (int p = 0, all = 0; p < 5; p++, all = 0) {
        for (int q = 0; q < 5; q++) all += images_in(&d, k, q);
        if (!EXPECT(abs(5 * images_in(&d, k, p) - all) <= 5 * 4)) printf("  %d, part %d of %d\n", k, p, all);
      }
  }
}

TEST(stratify_does_not_depend_on_the_order_of_groups) {
  static Drawn d, r;
  draw(&d, 1, false);
  draw(&r, 1, true);
  divide(&d, fifth, 2);
  divide(&r, fifth, 2);
  int other = 0;
  for (int g = 0; g < GROUPS; g++) other += d.part[g] != r.part[GROUPS - 1 - g];
  EXPECT_INT(other, 0);
}

// Group 0 has categories 0 and 1, group 1 has 0 and 2, the others have 3. Category 0 could only be on both sides if 1
// or 2 were nowhere in training.
TEST(stratify_leaves_the_only_group_of_a_category_in_training) {
  static const int images[10] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 9}, first[11] = {0, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  static const uint64_t order[10] = {5, 9, 1, 2, 3, 4, 6, 7, 8, 10};
  static const CategoryCount of[12] = {{0, 1}, {1, 1}, {0, 1}, {2, 1}, {3, 1}, {3, 1},
                                       {3, 1}, {3, 1}, {3, 1}, {3, 1}, {3, 1}, {3, 9}};
  const Strata s = {10, 4, images, order, first, of};
  int part[10], held = 0;
  stratify(&s, fifth, 2, part);
  EXPECT(part[0] == 0 && part[1] == 0 && part[9] == 0);
  for (int g = 0; g < 10; g++) held += part[g];
  EXPECT_INT(held, 4); // of all 18 images, 3.6
  stratify(&s, (const int64_t[]){1, 4}, 2, part);
  EXPECT(part[0] == 0 && part[1] == 0);
}

// Both groups of category 1 are in training, where 0 takes them; one is moved, which leaves category 0 where it was.
TEST(stratify_spreads_a_category_that_others_took_along) {
  static const int images[6] = {3, 3, 1, 1, 1, 1}, first[7] = {0, 2, 4, 5, 6, 7, 8};
  static const uint64_t order[6] = {1, 2, 3, 4, 5, 6};
  static const CategoryCount of[8] = {{0, 3}, {1, 3}, {0, 3}, {1, 3}, {0, 1}, {0, 1}, {0, 1}, {0, 1}};
  const Strata s = {6, 2, images, order, first, of};
  int part[6];
  stratify(&s, fifth, 2, part);
  EXPECT(part[0] + part[1] == 1);
}

// As photographs have them: 60 categories of two or three images each, which a fifth cannot all have. Half of the
// images have category 0, and 13 have category 1.
TEST(stratify_keeps_the_share_with_many_rare_categories) {
  enum { N = 92, RARE = 60 };
  int images[N], first[N + 1], part[N], total[RARE + 2] = {0}, held[RARE + 2] = {0}, n = 0, all = 0;
  uint64_t order[N];
  CategoryCount of[N * (RARE + 2)];
  for (int g = 0; g < N; g++) {
    images[g] = 1;
    order[g] = rng_key(3, (uint64_t)g);
    first[g] = n;
    if (g % 2) of[n++] = (CategoryCount){0, 1};
    if (g % 7 == 0 && g < 13 * 7) of[n++] = (CategoryCount){1, 1};
    for (int k = 0; k < RARE; k++) {
      bool has = false;
      for (uint32_t i = 0; i < 2 + (uint32_t)k % 2; i++) has |= rng_u32((uint64_t)k, i) % N == (uint32_t)g;
      if (has) of[n++] = (CategoryCount){k + 2, 1};
    }
  }
  first[N] = n;
  stratify(&(Strata){N, RARE + 2, images, order, first, of}, fifth, 2, part);
  for (int g = 0; g < N; g++) {
    all += part[g];
    for (int k = first[g]; k < first[g + 1]; k++) {
      total[of[k].category]++;
      held[of[k].category] += part[g];
    }
  }
  EXPECT_INT(all, 18); // of 18.4
  EXPECT(held[0] >= 7 && held[0] <= 11 && held[1] >= 2 && held[1] <= 4);
  for (int k = 0; k < RARE + 2; k++) EXPECT(held[k] < total[k]); // all can be learnt
}

TEST(stratify_without_categories) {
  static const int images[3] = {1, 1, 1}, first[4] = {0};
  static const uint64_t order[3] = {3, 2, 1};
  const Strata s = {3, 0, images, order, first, NULL};
  int part[3];
  stratify(&s, fifth, 2, part); // a part gets an image although its share is less
  EXPECT_INT(part[0] + part[1] + part[2], 1);
  stratify(&s, equal, 3, part);
  EXPECT(part[0] != part[1] && part[1] != part[2] && part[0] != part[2]);
}
