#include "base/json.h"
#include "page/precision_recall.h"
#include "test/harness/coco_scene.h"
#include "test/harness/test.h"

static char *in_folder(const char *name) {
  static char path[512];
  snprintf(path, sizeof path, "%s/%s", test_tmp(), name);
  return path;
}

// Writes both files of a scene's evaluation and frees the scene.
static EvalSummary write_scene(Scene *s) {
  EvalSummary e;
  Err err = {{0}};
  EXPECT(cocoeval_run(&e, &s->gt, &s->dt, EVAL_BBOX, &err));
  if (!EXPECT(precision_recall_write(test_tmp(), &e, &err))) printf("  %s\n", err.msg);
  return e;
}

// The numbers at the reader are the curve's, to the last bit.
static void expect_curve(Json *j, const double *want) {
  int n = 0;
  if (!EXPECT(json_begin_array(j))) return;
  for (; json_next(j); n++)
    if (n < EVAL_RECALLS) EXPECT_NEAR(json_number(j), want[n], 0);
  EXPECT_INT(n, EVAL_RECALLS);
}

static void expect_curves(Json *j, EvalPrecision want, const char *name) {
  static const char *const keys[EVAL_CURVES] = {"precision_50", "precision_75", "precision"};
  const char *key;
  int found = 0;
  json_begin_object(j);
  while ((key = json_key(j))) {
    int c = 0;
    while (c < EVAL_CURVES && strcmp(key, keys[c]) != 0) c++;
    if (c < EVAL_CURVES && want[c][0] >= 0) {
      expect_curve(j, want[c]);
      found++;
    } else if (strcmp(key, "name") == 0) {
      size_t length;
      EXPECT_STR(json_string(j, &length), name);
    } else {
      json_skip(j);
    }
  }
  EXPECT_INT(found, want[0][0] >= 0 ? EVAL_CURVES : 0);
}

TEST(precision_recall_as_json) {
  static char odd[] = "a<b>&\"\x01";
  Scene *s = three_detections();
  s->categories[0].name = odd;
  EvalSummary e = write_scene(s);
  size_t size;
  char *text = file_read(in_folder("precision_recall.json"), &size, NULL);
  Json j;
  const char *key;
  json_open(&j, "precision_recall.json", text, size);
  json_begin_object(&j);
  while ((key = json_key(&j))) {
    if (strcmp(key, "all") == 0) {
      expect_curves(&j, e.precision[2], NULL);
    } else if (strcmp(key, "category") == 0) {
      json_begin_array(&j);
      for (int k = 0; json_next(&j); k++) expect_curves(&j, e.precision[k], k ? "thing" : odd);
    } else {
      json_skip(&j);
    }
  }
  EXPECT(json_done(&j));
  json_close(&j);
  EXPECT(strncmp(text, "{\"iou\":\"bbox\",\"max_dets\":100,\"recall\":[0,0.01,", 46) == 0);
  EXPECT(strstr(text, ",0.99,1],\"all\":{\"AP\":0.60") != NULL);
  EXPECT(strstr(text, "\"name\":\"thing\",\"AP\":null,\"precision_50\":null,") != NULL);
  free(text);
  cocoeval_free(&e);
  free(s);
}

// A curve that falls from 1 to 2 / 3 at recall 0.50: its corners alone.
TEST(precision_recall_as_picture) {
  static char odd[] = "a<b>&\"\x01";
  Scene *s = three_detections();
  s->categories[0].name = odd;
  EvalSummary e = write_scene(s);
  size_t size;
  char *svg = file_read(in_folder("precision_recall.svg"), &size, NULL);
  EXPECT(strstr(svg, "<path class=\"curve c0\" d=\"M56.0 82.0L446.0 82.0L453.8 178.0L836.0 178.0\"/>") != NULL);
  EXPECT(strstr(svg, "AP 0.604") && strstr(svg, "a&lt;b") && !strstr(svg, "a<b") && !strstr(svg, "nan"));
  EXPECT(strstr(svg, "left out, without objects: 1<") && !strstr(svg, "the lowest") && strstr(svg, "</svg>\n"));
  free(svg);
  cocoeval_free(&e);
  free(s);
}

// Of many categories the lowest; of none an empty panel.
TEST(precision_recall_of_many_and_of_none) {
  enum { MANY = 130 };
  static EvalCategory category[MANY];
  static EvalPrecision precision[MANY + 1];
  static char names[MANY][8];
  for (int k = 0; k < MANY; k++) {
    snprintf(names[k], sizeof names[k], "n%d", k);
    category[k] = (EvalCategory){.id = k, .name = names[k], .ap = 1 - k / 200.};
  }
  EvalSummary e = {.categories = category, .num_categories = MANY, .precision = precision, .max_dets = {1, 10, 100}};
  EXPECT(precision_recall_write(test_tmp(), &e, NULL));
  size_t size;
  char *svg = file_read(in_folder("precision_recall.svg"), &size, NULL);
  EXPECT(strstr(svg, ">n129<") && strstr(svg, ">n30<") && !strstr(svg, ">n29<") && strstr(svg, "lowest 100 of 130"));
  free(svg);
  Scene *s = scene_new(1, 0);
  e = write_scene(s);
  svg = file_read(in_folder("precision_recall.svg"), &size, NULL);
  char *legend = strstr(svg, "class=\"curve c0\"");
  EXPECT(legend && !strstr(legend + 1, "class=\"curve c0\"") && strstr(svg, "</svg>\n") && !strstr(svg, "nan"));
  free(svg);
  cocoeval_free(&e);
  free(s);
  Err err;
  EXPECT(!precision_recall_write("/nowhere/at/all", &(EvalSummary){.precision = precision}, &err));
}
