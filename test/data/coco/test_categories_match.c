// Catches categories that are compared only by their ids or only by their names.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "data/coco/categories_match.h"
#include "test/harness/test.h"

enum { MOST = 8 };
static const CocoCategory of_training[] = {
    {.id = 1, .name = "disc"}, {.id = 2, .name = "ring"}, {.id = 3, .name = "square"}};
static const CategoryList known = {.of = "TRAIN", .item = of_training, .n = COUNT(of_training)};

typedef struct Matched {
  bool ok;
  int to[MOST];
  Notes notes;
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
  const CocoCategory turned[] = {{.id = 1, .name = "ring"}, {.id = 2, .name = "square"}, {.id = 3, .name = "disc"}},
                     few[] = {{.id = 3, .name = "square"}};
  Matched m = match(&known, turned, 3, NULL);
  EXPECT(maps(&m, (int[]){1, 2, 0}, 3) && m.notes.n == 1);
  EXPECT(notes(&m, "VAL: ids differ from those of TRAIN; categories are mapped by name: 1 ring to 2, 2 square to 3, "));
  notes_free(&m.notes);
  m = match(&known, few, 1, NULL);
  EXPECT(maps(&m, (int[]){2}, 1) && m.notes.n == 0);
  m = match(&known, of_training, 3, NULL);
  EXPECT(maps(&m, (int[]){0, 1, 2}, 3) && m.notes.n == 0);
}

TEST(categories_match_refuses_what_has_objects) {
  const CocoCategory other[] = {{.id = 1, .name = "disc"}, {.id = 2, .name = "thing"}, {.id = 7, .name = "bird"}};
  Matched m = match(&known, other, 3, (int[]){5, 9, 1});
  EXPECT(!m.ok);
  EXPECT_STR(m.err.msg,
             "VAL: 2 categories are not in TRAIN: 2 thing (there it is 2 ring), 7 bird; rename or remove them");
  m = match(&known, other, 3, (int[]){5, 0, 0});
  EXPECT(maps(&m, (int[]){0, -1, -1}, 3) && m.notes.n == 1);
  EXPECT(notes(&m, "categories without objects that are not in TRAIN are left out: 2 thing, 7 bird"));
  notes_free(&m.notes);
}

TEST(categories_match_notes_names_that_nearly_agree) {
  const CocoCategory near[] = {{.id = 1, .name = "Disc "}, {.id = 2, .name = "square"}, {.id = 9, .name = "RING"}};
  Matched m = match(&known, near, 3, NULL);
  EXPECT(maps(&m, (int[]){0, 2, 1}, 3) && m.notes.n == 2);
  EXPECT(notes(&m, "2 square to 3, 9 RING to 2") && notes(&m, "\"Disc \" for \"disc\", \"RING\" for \"ring\""));
  notes_free(&m.notes);
}

// Names of digits are names; only a list without any is taken by its ids, and that is said.
TEST(categories_match_takes_numbers_for_names) {
  const CocoCategory from_1[] = {{.id = 1, .name = "0"}, {.id = 2, .name = "1"}, {.id = 3, .name = "2"}},
                     from_0[] = {{.id = 0, .name = "0"}, {.id = 1, .name = "1"}, {.id = 2, .name = "2"}},
                     turned[] = {{.id = 0, .name = "2"}, {.id = 1, .name = "0"}, {.id = 2, .name = "1"}};
  const CategoryList digits = {.of = "TRAIN", .item = from_0, .n = 3},
                     weights = {.of = "W", .item = from_0, .n = 3, .of_weights = true};
  Matched m = match(&digits, from_1, 3, (int[]){1, 1, 0});
  EXPECT(maps(&m, (int[]){0, 1, 2}, 3) && notes(&m, "mapped by name: 1 0 to 0, 2 1 to 1, 3 2 to 2"));
  notes_free(&m.notes);
  m = match(&digits, turned, 3, NULL);
  EXPECT(maps(&m, (int[]){2, 0, 1}, 3));
  notes_free(&m.notes);
  m = match(&weights, turned, 3, NULL);
  EXPECT(maps(&m, (int[]){2, 0, 1}, 3));
  notes_free(&m.notes);
}

TEST(categories_match_without_names) {
  const CocoCategory bare[] = {{.id = 1, .name = "1", .unnamed = true}, {.id = 3}},
                     blank[] = {{.id = 1, .name = " "}, {.id = 3, .name = ""}},
                     mixed[] = {{.id = 1, .name = "ring"}, {.id = 2, .name = ""}},
                     turned[] = {{.id = 1, .name = "square"}, {.id = 3, .name = "disc"}};
  Matched m = match(&known, bare, 2, NULL);
  EXPECT(maps(&m, (int[]){0, 2}, 2) && m.notes.n == 1);
  EXPECT(notes(&m, "VAL does not name its categories: they are matched by id with those of TRAIN"));
  notes_free(&m.notes);
  m = match(&known, blank, 2, NULL);
  EXPECT(maps(&m, (int[]){0, 2}, 2) && m.notes.n == 1);
  notes_free(&m.notes);
  m = match(&(CategoryList){.of = "TRAIN", .item = bare, .n = 2}, turned, 2, NULL);
  EXPECT(maps(&m, (int[]){0, 1}, 2) && m.notes.n == 1);
  EXPECT(notes(&m, "TRAIN does not name its categories: those of VAL are matched by id"));
  notes_free(&m.notes);
  m = match(&known, mixed, 2, NULL);
  EXPECT(!m.ok && strstr(m.err.msg, "VAL: 1 category is not in TRAIN: 2 (there it is 2 ring); rename or remove it"));
  Notes said = {0};
  categories_examine(&(CategoryList){.of = "FILE", .item = bare, .n = 2}, &said);
  EXPECT(said.n == 1 && strstr(said.line[0], "FILE: categories without a name; ") && strstr(said.line[0], ": 1, 3"));
  notes_free(&said);
}

// Weights have a number for a name that their data did not give.
TEST(categories_match_weights_without_names) {
  const CocoCategory classes[] = {{.id = 1, .name = "class 1"}, {.id = 2, .name = "class 2"}},
                     numbers[] = {{.id = 1, .name = "1"}, {.id = 2, .name = "2"}},
                     own[] = {{.id = 1, .name = "a"}, {.id = 7, .name = "b"}, {.id = 9, .name = "c"}},
                     bare[] = {{.id = 2, .name = "2", .unnamed = true}};
  for (int k = 0; k < 2; k++) {
    const CategoryList weights = {.of = "W.pth", .item = k ? numbers : classes, .n = 2, .of_weights = true};
    Matched m = match(&weights, own, 2, NULL);
    EXPECT(maps(&m, (int[]){0, 1}, 2) &&
           notes(&m, "W.pth does not name its 2 categories: those of VAL are matched in the order of their ids"));
    notes_free(&m.notes);
    for (int n = 1; n <= 3; n += 2) {
      m = match(&weights, own, n, NULL);
      EXPECT(!m.ok && strstr(m.err.msg, "W.pth does not name its 2 categories, so VAL must have ") &&
             strstr(m.err.msg, " as many, but it has "));
    }
    m = match(&weights, bare, 1, NULL);
    EXPECT(maps(&m, (int[]){1}, 1));
    notes_free(&m.notes);
  }
}

// Roboflow's root category is called as a class is and has no objects.
TEST(categories_match_of_one_name) {
  const CocoCategory root[] = {{.id = 0, .name = "disc"}, {.id = 1, .name = "disc"}, {.id = 2, .name = "ring"}},
                     twins[] = {{.id = 5, .name = "disc"}, {.id = 6, .name = "disc"}};
  Matched m = match(&known, root, 3, (int[]){0, 4, 4});
  EXPECT(maps(&m, (int[]){-1, 0, 1}, 3) && notes(&m, "are left out: 0 disc"));
  notes_free(&m.notes);
  m = match(&known, twins, 2, (int[]){1, 1});
  EXPECT(!m.ok);
  EXPECT_STR(m.err.msg, "VAL: category 6 disc is ambiguous: VAL has 5 disc, 6 disc, TRAIN has 1 disc; "
                        "give each category its own name");
  m = match(&(CategoryList){.of = "TRAIN", .item = twins, .n = 2}, of_training, 1, NULL);
  EXPECT(!m.ok && strstr(m.err.msg, "VAL has 1 disc, TRAIN has 5 disc, 6 disc; give each "));
  Notes odd = {0};
  const CocoCategory alike[] = {
      {.id = 1, .name = "disc"}, {.id = 2, .name = "ring"}, {.id = 4, .name = "disc"}, {.id = 5, .name = "Ring"}};
  categories_examine(&(CategoryList){.of = "FILE", .item = alike, .n = 4}, &odd);
  if (EXPECT_INT(odd.n, 2)) {
    EXPECT(strstr(odd.line[0], "FILE: categories with the same name ") && strstr(odd.line[0], "disc (1, 4)"));
    EXPECT(strstr(odd.line[1], "\"ring\" and \"Ring\""));
  }
  notes_free(&odd);
}

// One without objects takes nothing from one with objects, although it has the id and nearly the name.
TEST(categories_match_those_with_objects_first) {
  const CocoCategory idle[] = {{.id = 1, .name = "Disc"}, {.id = 2, .name = "disc"}, {.id = 3, .name = "square"}},
                     near[] = {{.id = 1, .name = "disc"}, {.id = 5, .name = "DISC"}};
  Matched m = match(&known, idle, 3, (int[]){0, 3, 3});
  EXPECT(maps(&m, (int[]){-1, 0, 2}, 3) && notes(&m, "are left out: 1 Disc") && notes(&m, ": 2 disc to 1"));
  notes_free(&m.notes);
  m = match(&known, near, 2, (int[]){0, 3});
  EXPECT(maps(&m, (int[]){-1, 0}, 2));
  notes_free(&m.notes);
  m = match(&known, idle, 3, (int[]){3, 3, 3}); // the exact name first
  EXPECT(!m.ok && strstr(m.err.msg, "VAL: category 1 Disc is ambiguous: VAL has 1 Disc, 2 disc, "));
}

TEST(categories_match_says_that_names_look_the_same) {
  const CocoCategory composed[] = {{.id = 1, .name = "Zelle \xc3\xbc"}},
                     other[] = {{.id = 4, .name = "Zelle u\xcc\x88"}};
  Matched m = match(&(CategoryList){.of = "TRAIN", .item = composed, .n = 1}, other, 1, NULL);
  EXPECT(!m.ok && strstr(m.err.msg, "(there it is 1 Zelle \xc3\xbc, written with other Unicode characters)"));
}

TEST(categories_same_by_id_and_name) {
  const CocoCategory renamed[] = {{.id = 1, .name = "disc"}, {.id = 2, .name = "ring"}, {.id = 3, .name = "box"}};
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
  Notes said = {0};
  Err err;
  for (int i = 0; i < MANY; i++) {
    a[i] = (CocoCategory){.id = i, .name = xasprintf("name %d", i)};
    b[i] = (CocoCategory){.id = i, .name = a[i].name};
  }
  for (int i = 0; i < MANY; i++) b[i].name = a[MANY - 1 - i].name;
  EXPECT(categories_match(&(CategoryList){.of = "A", .item = a, .n = MANY},
                          &(CategoryList){.of = "B", .item = b, .n = MANY}, NULL, to, &said, &err));
  EXPECT(to[0] == MANY - 1 && to[MANY - 1] == 0 && strstr(said.line[0], "and 9996 more"));
  notes_free(&said);
  for (int i = 0; i < MANY; i++) free(a[i].name);
  free(a);
  free(b);
  free(to);
}
