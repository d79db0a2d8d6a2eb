// Catches a choice of categories that keeps others, and misspelt names that pass silently.
#include "data/coco/choice.h"
#include "test/harness/test.h"

// Two classes of one name, a name that is another's id, one without a name.
static const ResultClass class_list[] = {{1, "person"}, {18, "dog"}, {30, "traffic light"}, {31, "dog"}, {50, "30"},
                                         {7, NULL},     {8, "doll"}};
static const ResultClasses classes = {class_list, COUNT(class_list)};

// Ids of the detections that are wanted of one of each class, as text.
static void expect_chosen_above(double above, const char *list, int top, const char *want) {
  CocoResult found[COUNT(class_list)];
  ResultChoice c;
  Err err;
  char text[200] = "";
  for (int i = 0; i < COUNT(found); i++) found[i] = (CocoResult){.category_id = class_list[i].id, .score = 1 - i / 8.};
  if (!EXPECT(choice_open(&c, list, top, above, &classes, &err))) return;
  const int n = choice_apply(&c, found, COUNT(found));
  for (int i = 0; i < COUNT(found); i++) // the others follow, in their order
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s%lld",
             i == n ? " | "
             : i    ? " "
                    : "",
             (long long)found[i].category_id);
  EXPECT_STR(text, want);
  choice_close(&c);
}

static void expect_chosen(const char *list, int top, const char *want) { expect_chosen_above(0, list, top, want); }

TEST(choice_of_scores) {
  expect_chosen_above(0.5, NULL, 0, "1 18 30 31 | 50 7 8"); // 50 has just that
  expect_chosen_above(0.4, "dog", 0, "18 31 | 1 30 50 7 8");
  expect_chosen_above(0.7, "dog", 2, "18 | 1 30 31 50 7 8");
}

TEST(choice_of_classes) {
  expect_chosen(NULL, 0, "1 18 30 31 50 7 8");
  expect_chosen(NULL, 2, "1 18 | 30 31 50 7 8");
  expect_chosen("dog", 0, "18 31 | 1 30 50 7 8");
  expect_chosen("dog", 1, "18 | 1 30 31 50 7 8");
  expect_chosen(" 7 , traffic light,1", 0, "1 30 7 | 18 31 50 8");
  expect_chosen("30", 0, "50 | 1 18 30 31 7 8"); // a name before an id
  expect_chosen("18,dog,18", 0, "18 31 | 1 30 50 7 8");
}

TEST(choice_says_what_is_near) {
  static const char *const cases[][2] = {
      {"dgo", "\"dgo\" is not the name or id of any of the 7 classes; did you mean dog?"},
      {"person,dol", "\"dol\" is not the name or id of any of the 7 classes; did you mean dog, doll?"},
      {"traffic", "\"traffic\" is not the name or id of any of the 7 classes; did you mean traffic light?"},
      {"19", "\"19\" is not the name or id of any of the 7 classes: person, dog, traffic light, dog, 30, …"},
      {"dog,", "\"dog,\" has an empty name between commas"},
      {",", "\",\" has an empty name between commas"},
  };
  for (int i = 0; i < COUNT(cases); i++) {
    ResultChoice c;
    Err err;
    if (EXPECT(!choice_open(&c, cases[i][0], 0, 0, &classes, &err))) EXPECT_STR(err.msg, cases[i][1]);
  }
}
