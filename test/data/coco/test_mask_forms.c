// Catches unusable forms of masks that are silently trained on as boxes, and forms reported under another's name.
#include <string.h>
#include "data/coco/mask_forms.h"
#include "data/survey/checkup.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

// A set of three objects: two with this segmentation, and one with another.
static const char *set_of(const char *form, const char *other) {
  const char *dir = small_set("mask-forms");
  char path[1024], text[2048];
  const char *ann = "{\"id\":%d,\"image_id\":1,\"category_id\":1,\"bbox\":[20,10,20,20],\"segmentation\":%s}";
  int used = snprintf(text, sizeof text,
                      "{\"categories\":[{\"id\":1,\"name\":\"a\"}],\"images\":[{\"id\":1,\"file_name\":\"1.png\","
                      "\"height\":41,\"width\":60}],\"annotations\":[");
  for (int i = 0; i < 3; i++) {
    used += snprintf(text + used, sizeof text - (size_t)used, "%s", i ? "," : "");
    used += snprintf(text + used, sizeof text - (size_t)used, ann, 7 + i, i == 1 ? other : form);
  }
  snprintf(text + used, sizeof text - (size_t)used, "]}");
  snprintf(path, sizeof path, "%s/annotations/instances_train.json", dir);
  write_text(path, text);
  return dir;
}

#define GOOD "[[20,10,40,10,40,30]]"

static const struct {
  const char *segmentation;
  SegForm form;
  const char *says;
} forms[] = {
    {"[[20,10,40,30]]", FORM_FEW, "they are polygons with fewer than three points"},
    {"{\"counts\":[5,5],\"size\":[41,60]}", FORM_RUNS, "they are run lengths that do not add up to h x w"},
    {"\"20 10 40 10 40 30\"", FORM_TEXT, "they are strings"},
    {"{\"counts\":[2460],\"size\":[60,41]}", FORM_RLE_SIZE,
     "they are run lengths whose size differs from their image's"},
    {"[[0.3,0.2,0.6,0.2,0.6,0.7]]", FORM_FRACTIONS, "they are polygons with coordinates from 0 to 1"},
};

TEST(mask_forms_are_named) {
  for (int i = 0; i < COUNT(forms); i++) {
    Dataset d;
    Err err;
    if (!open_set(&d, set_of(forms[i].segmentation, GOOD), &small_options)) return;
    const MaskForms f = mask_forms(&d.coco);
    if (!EXPECT(f.masks == 3 && f.unusable == 2 && f.first->id == 7 && mask_forms_most(&f) == forms[i].form) ||
        !EXPECT(!mask_forms_check(&d.coco, &err) && strstr(err.msg, forms[i].says)) ||
        !EXPECT(strstr(err.msg, "instances_train.json: 2 of 3 masks cannot be used (first: annotation 7)")))
      printf("  %s: %s\n", forms[i].segmentation, err.msg);
    dataset_close(&d);
  }
}

// Where no mask can be used, the set does not open, and the message names the form, too.
TEST(mask_forms_are_named_where_nothing_is_usable) {
  Dataset d;
  Err err = {0};
  const char *text = "\"20 10 40 10 40 30\"";
  EXPECT(!dataset_open(&d, set_of(text, text), "train", &small_options, &err));
  if (!EXPECT(strstr(err.msg, "3 of 3 masks cannot be used (first: annotation 7): they are strings")))
    printf("  %s\n", err.msg);
}

// Half of the masks, or a set of boxes, is no reason to stop.
TEST(mask_forms_may_be_few) {
  static const char *const few[][2] = {{GOOD, "[20,10,40,10,null,30]"}, {"[]", GOOD}, {"[]", "[]"}, {GOOD, "null"}};
  for (int i = 0; i < COUNT(few); i++) {
    Dataset d;
    Err err;
    if (!open_set(&d, set_of(few[i][0], few[i][1]), &small_options)) return;
    if (!EXPECT(mask_forms_check(&d.coco, &err))) printf("  %s\n", err.msg);
    dataset_close(&d);
  }
}

TEST(mask_forms_stop_a_checkup) {
  Checkup c;
  Diagnosis f;
  const CheckupOptions o = {.data = set_of(forms[0].segmentation, GOOD),
                            .train_split = "train",
                            .val_split = "val",
                            .size = 96,
                            .max_size = 160,
                            .canvases = 2};
  checkup_take(&c, &o);
  checkup_diagnosis(&f, &c, &o);
  EXPECT(!c.sound && f.split[0].stop && strstr(f.split[0].stop, forms[0].says));
  bool named = false;
  for (size_t i = 0; i < f.num_defects; i++)
    if (!strcmp(f.defect[i].what, defect_info[DEFECT_MASK_BAD].what)) {
      named = true;
      EXPECT_STR(f.defect[i].detail[0], "first: annotation 7, file 1.png");
      EXPECT_STR(f.defect[i].detail[1], "ids: 7, 9");
      EXPECT(f.defect[i].detail[2] && strstr(f.defect[i].detail[2], "most are polygons with fewer than three points"));
    }
  EXPECT(named);
  diagnosis_free(&f);
  checkup_free(&c);
}
