// Catches suggested commands that training refuses, or whose options do not follow from the data.
#include <math.h>
#include <stdlib.h>
#include "base/alloc.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

enum { IMAGES = 24, EACH = 3 }; // of the shapes' set

// The shapes' training images with bars of 24 x 8 pixels whose angles are multiples of `step` degrees, the first
// `images` of them; with masks, or boxes alone.
static const char *set_of_bars(const char *name, double step, int images, bool masks) {
  static char dir[512];
  snprintf(dir, sizeof dir, "%s", in_tmp(name));
  CHECK(!command(NULL, "mkdir -p %s/annotations && cp -r %s/train %s", dir, shapes_set(), dir));
  char *path = xasprintf("%s/annotations/instances_train.json", dir);
  FILE *f = fopen(path, "w");
  CHECK(f);
  fprintf(f, "{\"categories\":[{\"id\":1,\"name\":\"bar\"}],\"images\":[");
  for (int i = 1; i <= images; i++)
    fprintf(f, "%s{\"id\":%d,\"file_name\":\"%06d.png\",\"width\":64,\"height\":64}", i > 1 ? "," : "", i, i);
  fprintf(f, "],\"annotations\":[");
  for (int k = 0; k < images * EACH; k++) {
    static const double corner[4][2] = {{-12, -4}, {12, -4}, {12, 4}, {-12, 4}};
    const double angle = k * step * 3.14159265358979 / 180;
    fprintf(f, "%s{\"id\":%d,\"image_id\":%d,\"category_id\":1,\"area\":192,\"bbox\":[16,16,32,32]", k ? "," : "",
            k + 1, 1 + k / EACH);
    for (int i = 0; masks && i < 4; i++)
      fprintf(f, "%s%.3f,%.3f", i ? "," : ",\"segmentation\":[[",
              32 + corner[i][0] * cos(angle) - corner[i][1] * sin(angle),
              32 + corner[i][0] * sin(angle) + corner[i][1] * cos(angle));
    fprintf(f, masks ? "]]}" : "}");
  }
  fprintf(f, "]}");
  CHECK(!fclose(f));
  free(path);
  return dir;
}

// The command that doctor suggests, with more options of doctor; malloc'ed.
static char *suggested(const char *data, const char *more, const char **said) {
  static const char title[] = "suggested command\n  ";
  CHECK(command(said, "%s --data %s --decode=false %s", tool("doctor"), data, more) <= 1);
  const char *at = strstr(*said, title);
  if (!EXPECT(at)) return xstrdup("false");
  at += strlen(title);
  return xasprintf("%.*s", (int)strcspn(at, "\n"), at);
}

// Training takes it as it stands, up to the memory plan.
static void expect_accepted(const char *suggestion) {
  const char *said, *arguments = strchr(suggestion, ' ');
  if (!EXPECT(arguments)) return;
  if (!EXPECT_INT(command(&said, "%s%s --plan --device cpu --amp=off", tool("train"), arguments), 0))
    printf("    %s\n%s\n", suggestion, said);
}

// Pictures are turned where objects lie in all directions.
TEST_TIER(doctor_suggests_by_directions, 1) {
  static const struct {
    const char *name;
    double step;
    int images;
    const char *option, *reason;
  } cases[] = {
      {"bars-all", 25, IMAGES, "--batch 8 --epochs 834 --augment any-orientation",
       "orientations of 72 elongated objects are random"},
      {"bars-sides", 90, IMAGES, "--epochs 834 --augment standard", "72 elongated objects lie along the image's sides"},
      {"bars-few", 25, 8, "--batch 4 --epochs 2500 --augment standard", "elongated objects with masks: 24, too few"},
  };
  const char *said;
  for (int i = 0; i < COUNT(cases); i++) {
    char *line = suggested(set_of_bars(cases[i].name, cases[i].step, cases[i].images, true), "--size 64", &said);
    if (!EXPECT(strstr(line, cases[i].option) && strstr(said, cases[i].reason))) printf("%s\n", said);
    EXPECT(strstr(line, " --anchors auto") && strstr(said, "--anchors auto: "));
    EXPECT(strstr(line, "--model maskrcnn-r50-fpn") && strstr(said, "maskrcnn_resnet50_fpn_coco-bf2d0c1e.pth "));
    EXPECT(strstr(said, "(its SHA-256 starts with bf2d0c1e)") && !strstr(said, "  --batch "));
    EXPECT(strstr(line, " --val-fraction 0.2") && strstr(said, "\n  --val-fraction 0.2: there is no split"));
    free(line);
    line = suggested(set_of_bars(cases[i].name, cases[i].step, cases[i].images, true), "--model tiny", &said);
    EXPECT(strstr(line, " --model tiny") && !strstr(said, "download"));
    expect_accepted(line);
    free(line);
  }
}

// The command keeps --classes; images that had objects of other classes alone are no background.
TEST_TIER(doctor_examines_some_classes, 1) {
  const char *said;
  char *line = suggested(shapes_set(), "--model tiny --classes disc", &said);
  EXPECT(strstr(line, " --classes disc ") && !strstr(line, "--keep-empty") && strstr(said, " in 1 of 1 categories;"));
  expect_accepted(line);
  free(line);
  EXPECT_INT(command(&said, "%s --data %s --classes disk", tool("doctor"), shapes_set()), 1);
  EXPECT(strstr(said, "did you mean disc"));
}

TEST_TIER(doctor_suggests_models_and_weights, 1) {
  const char *said, *boxes = set_of_bars("bars-boxes", 25, IMAGES, false);
  char *line = suggested(boxes, "", &said), *out = xstrdup(in_tmp("bars-run"));
  EXPECT(strstr(line, "--model fasterrcnn-r50-fpn") && strstr(said, "fasterrcnn_resnet50_fpn_coco-258fb6c6.pth ("));
  free(line);
  EXPECT_INT(command(&said, "%s --data %s --model tiny --device cpu --iters 1 --eval-every never --out %s",
                     tool("train"), shapes_set(), out),
             0);
  char *more = xasprintf("--weights %s/model.safetensors", out);
  line = suggested(boxes, more, &said);
  EXPECT(strstr(line, "train --weights ") && strstr(line, ".safetensors --reset-heads --data ") &&
         strstr(line, "--epochs 209 ") && !strstr(line, "--model"));
  EXPECT(!strstr(said, "pretrained") && !strstr(said, "download"));
  free(line);
  line = suggested(shapes_set(), more, &said); // tiny's size, whose masks are pasted at pixel centres
  EXPECT(strstr(line, " --size 128 ") && !strstr(line, "mask_paste_exact"));
  free(line);
  free(more);
  free(out);
  EXPECT_INT(command(&said, "%s --data %s --weights %s/none", tool("doctor"), boxes, boxes), 2);
  EXPECT(strstr(said, "cannot read ") && strstr(said, "/none: "));
  EXPECT_INT(command(&said, "%s --data %s --weights %s", tool("doctor"), boxes, boxes), 2);
}
