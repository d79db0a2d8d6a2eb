// Catches precision-recall curves written wrongly to JSON, or broken by categories without objects.
#include "base/json.h"
#include "data/coco/precision_recall.h"
#include "test/harness/coco_scene.h"
#include "test/harness/test.h"

static char *in_folder(const char *name) {
  static char path[512];
  snprintf(path, sizeof path, "%s/%s", test_tmp(), name);
  return path;
}

// Writes the curves of a scene's evaluation.
static EvalSummary write_scene(Scene *s) {
  EvalSummary e;
  Err err = {{0}};
  EXPECT(cocoeval_run(&e, &s->gt, &s->dt, EVAL_BBOX, &err));
  if (!EXPECT(precision_recall_json(in_folder("precision_recall.json"), &e, &err))) printf("  %s\n", err.msg);
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

TEST(precision_recall_of_none_and_nowhere) {
  Scene *s = scene_new(1, 0);
  EvalSummary e = write_scene(s);
  size_t size;
  char *text = file_read(in_folder("precision_recall.json"), &size, NULL);
  EXPECT(strstr(text, "\"all\":{\"AP\":null,\"precision_50\":null,") && !strstr(text, "nan"));
  free(text);
  Err err;
  EXPECT(!precision_recall_json("/nowhere/at/all.json", &e, &err));
  cocoeval_free(&e);
  free(s);
}
