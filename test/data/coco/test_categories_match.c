// Catches categories that are compared only by their ids or only by their names.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "data/coco/categories_match.h"
#include "test/harness/test.h"

enum { MOST = 8 };
static const CocoCategory of_training[] = {{1, "disc"}, {2, "ring"}, {3, "square"}};
static const CategoryList known = {.of = "TRAIN", .item = of_training, .n = COUNT(of_training)};

typedef struct Matched {
  bool ok;
  int to[MOST];
  CategoryNotes notes;
  Err err;
} Matched;

static Matched match(const CategoryList *to, const CocoCategory *item, int n, const int *objects) {
  Matched m = {0};
  const CategoryList own = {.of = "VAL", .item = item, .n = n};
  m.ok = categories_match(to, &own, objects, m.to, &m.notes, &m.err);
  return m;
}

static bool maps(const Matched *m, const int *to, int n) { return m->ok && !memcmp(m->to, to, (size_t)n * sizeof *to); }

static bool notes(const Matched *m, const char *text) {
  for (int i = 0; i < m->notes.n; i++)
    if (strstr(m->notes.line[i], text)) return true;
  return false;
}

TEST(categories_match_by_name_before_id) {
  const CocoCategory turned[] = {{1, "ring"}, {2, "square"}, {3, "disc"}}, few[] = {{3, "square"}};
  Matched m = match(&known, turned, 3, NULL);
  EXPECT(maps(&m, (int[]){1, 2, 0}, 3) && m.notes.n == 1);
  EXPECT(notes(&m, "VAL: ids differ from those of TRAIN; categories are mapped by name: 1 ring to 2, 2 square to 3, "));
  category_notes_free(&m.notes);
  m = match(&known, few, 1, NULL);
  EXPECT(maps(&m, (int[]){2}, 1) && m.notes.n == 0);
  m = match(&known, of_training, 3, NULL);
  EXPECT(maps(&m, (int[]){0, 1, 2}, 3) && m.notes.n == 0);
}

TEST(categories_match_refuses_what_has_objects) {
  const CocoCategory other[] = {{1, "disc"}, {2, "thing"}, {7, "bird"}};
  Matched m = match(&known, other, 3, (int[]){5, 9, 1});
  EXPECT(!m.ok);
  EXPECT_STR(m.err.msg,
             "VAL: 2 categories are not in TRAIN: 2 thing (there it is 2 ring), 7 bird; rename or remove them");
  m = match(&known, other, 3, (int[]){5, 0, 0});
  EXPECT(maps(&m, (int[]){0, -1, -1}, 3) && m.notes.n == 1);
  EXPECT(notes(&m, "categories without objects that are not in TRAIN are left out: 2 thing, 7 bird"));
  category_notes_free(&m.notes);
}

TEST(categories_match_notes_names_that_nearly_agree) {
  const CocoCategory near[] = {{1, "Disc "}, {2, "square"}, {9, "RING"}};
  Matched m = match(&known, near, 3, NULL);
  EXPECT(maps(&m, (int[]){0, 2, 1}, 3) && m.notes.n == 2);
  EXPECT(notes(&m, "2 square to 3, 9 RING to 2") && notes(&m, "\"Disc \" for \"disc\", \"RING\" for \"ring\""));
  category_notes_free(&m.notes);
}

// Where one of the two has no name, ids decide; but a name that is known goes first.
TEST(categories_match_without_names) {
  const CocoCategory numbers[] = {{1, "1"}, {3, NULL}}, mixed[] = {{1, "ring"}, {2, ""}};
  Matched m = match(&known, numbers, 2, NULL);
  EXPECT(maps(&m, (int[]){0, 2}, 2) && m.notes.n == 0);
  m = match(&known, mixed, 2, NULL);
  EXPECT(!m.ok && strstr(m.err.msg, "VAL: 1 category is not in TRAIN: 2 (there it is 2 ring); rename or remove it"));
  const CocoCategory unknown[] = {{1, "class 1"}, {2, "class 2"}, {3, "class 3"}},
                     own[] = {{4, "a"}, {7, "b"}, {9, "c"}};
  const CategoryList weights = {.of = "W.pth", .item = unknown, .n = 3};
  m = match(&weights, own, 3, NULL);
  EXPECT(maps(&m, (int[]){0, 1, 2}, 3) &&
         notes(&m, "W.pth does not name its 3 categories: those of VAL are taken in "));
  category_notes_free(&m.notes);
  m = match(&weights, own, 2, NULL);
  EXPECT(!m.ok);
  EXPECT_STR(m.err.msg, "W.pth does not name its 3 categories, and VAL has 2: there must be as many");
}

// Roboflow's root category is called as a class is and has no objects.
TEST(categories_match_of_one_name) {
  const CocoCategory root[] = {{0, "disc"}, {1, "disc"}, {2, "ring"}}, twins[] = {{5, "disc"}, {6, "disc"}};
  Matched m = match(&known, root, 3, (int[]){0, 4, 4});
  EXPECT(maps(&m, (int[]){-1, 0, 1}, 3) && notes(&m, "are left out: 0 disc"));
  category_notes_free(&m.notes);
  m = match(&known, twins, 2, (int[]){1, 1});
  EXPECT(!m.ok && strstr(m.err.msg, "6 disc"));
  CategoryNotes odd = {0};
  const CocoCategory alike[] = {{1, "disc"}, {2, "ring"}, {4, "disc"}, {5, "Ring"}};
  categories_examine(&(CategoryList){.of = "FILE", .item = alike, .n = 4}, &odd);
  if (EXPECT_INT(odd.n, 2)) {
    EXPECT(strstr(odd.line[0], "FILE: categories with the same name ") && strstr(odd.line[0], "disc (1, 4)"));
    EXPECT(strstr(odd.line[1], "\"ring\" and \"Ring\""));
  }
  category_notes_free(&odd);
}

TEST(categories_same_by_id_and_name) {
  const CocoCategory renamed[] = {{1, "disc"}, {2, "ring"}, {3, "box"}};
  Err err;
  EXPECT(categories_same(&known, &known, &err));
  EXPECT(!categories_same(&known, &(CategoryList){.of = "DATA", .item = renamed, .n = 3}, &err));
  EXPECT_STR(err.msg, "category 3 is 3 (square) in TRAIN, but 3 (box) in DATA");
}

// Ten thousand names under other ids take no time worth seeing.
TEST(categories_match_many) {
  enum { MANY = 10000 };
  CocoCategory *a = xcalloc(MANY, sizeof *a), *b = xcalloc(MANY, sizeof *b);
  int *to = xcalloc(MANY, sizeof *to);
  CategoryNotes said = {0};
  Err err;
  for (int i = 0; i < MANY; i++) {
    a[i] = (CocoCategory){i, xasprintf("name %d", i)};
    b[i] = (CocoCategory){i, a[i].name};
  }
  for (int i = 0; i < MANY; i++) b[i].name = a[MANY - 1 - i].name;
  EXPECT(categories_match(&(CategoryList){.of = "A", .item = a, .n = MANY},
                          &(CategoryList){.of = "B", .item = b, .n = MANY}, NULL, to, &said, &err));
  EXPECT(to[0] == MANY - 1 && to[MANY - 1] == 0 && strstr(said.line[0], "and 9996 more"));
  category_notes_free(&said);
  for (int i = 0; i < MANY; i++) free(a[i].name);
  free(a);
  free(b);
  free(to);
}
