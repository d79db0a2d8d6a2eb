// Catches training that depends on the number of threads, or differs after a resume.
#include <unistd.h>
#include "base/digest.h"
#include "base/json.h"
#include "base/run_folder.h"
#include "data/coco/coco.h"
#include "data/images/image.h"
#include "test/harness/command.h"
#include "test/harness/test.h"
#include "weights/checkpoint.h"
#include "weights/verify.h"

TEST_TIER(program_train_equals_itself_for_any_number_of_threads, 1) {
  if (!EXPECT_INT(train_shapes("OMP_NUM_THREADS=1", "threads-1", "--threads 1"), 0)) return;
  if (!EXPECT_INT(train_shapes("OMP_NUM_THREADS=3", "threads-3", "--threads 2"), 0)) return;
  EXPECT(same_file(in_tmp("threads-1/model.safetensors"), in_tmp("threads-3/model.safetensors")));
  EXPECT(same_file(in_tmp("threads-1/checkpoint.safetensors"), in_tmp("threads-3/checkpoint.safetensors")));
  EXPECT(path_is_file(in_tmp("threads-1/report.html")));
}

// The records of a log, one letter each: t of a training step, e of an evaluation.
static void log_types(const char *path, char types[64]) {
  size_t size;
  char *text = file_read(path, &size, NULL), *at = text;
  int n = 0;
  while (at && n < 63 && (at = strstr(at, "\"kind\":\""))) types[n++] = *(at += 8);
  types[n] = '\0';
  free(text);
}

// A run that ended while the scores of its last checkpoint were still being computed makes that evaluation again.
TEST_TIER(program_resume_makes_a_lost_evaluation_again, 1) {
  const char *more = "--eval-every 3 --val-limit 8", *said, *log = in_tmp("lost/log.jsonl");
  char types[64], options[64];
  snprintf(options, sizeof options, "%s --stop-after 3", more);
  if (!EXPECT_INT(train_shapes("", "lost", options), 0)) return;
  log_types(log, types);
  EXPECT_STR(types, "ttte");
  EXPECT_INT(command(&said, "sed -i '/\"eval\"/d' %s", log), 0);
  snprintf(options, sizeof options, "%s --resume", more);
  if (!EXPECT_INT(train_shapes("", "lost", options), 0)) return;
  log_types(log, types);
  EXPECT_STR(types, "tttetttette");
}

TEST_TIER(program_resume_equals_uninterrupted, 1) {
  if (!EXPECT_INT(train_shapes("", "whole", ""), 0)) return;
  if (!EXPECT_INT(train_shapes("", "parts", "--stop-after 2"), 0)) return;
  EXPECT(!path_is_file(in_tmp("parts/model.safetensors"))); // not done yet
  if (!EXPECT_INT(train_shapes("", "parts", "--stop-after 3 --resume"), 0)) return;
  if (!EXPECT_INT(train_shapes("", "parts", "--resume"), 0)) return;
  EXPECT(same_file(in_tmp("whole/model.safetensors"), in_tmp("parts/model.safetensors")));
  EXPECT(same_file(in_tmp("whole/checkpoint.safetensors"), in_tmp("parts/checkpoint.safetensors")));
}

TEST_TIER(program_resume_equals_uninterrupted_with_sizes, 1) {
  if (!EXPECT_INT(train_shapes("", "sizes-whole", "--sizes 48,64,80"), 0)) return;
  if (!EXPECT_INT(train_shapes("", "sizes-parts", "--sizes 48,64,80 --stop-after 5"), 0)) return;
  const char *said; // other sizes are another run
  EXPECT_INT(
      command(&said,
              "%s --data %s --out %s --model tiny --size 64 --batch 2 --iters 8 --lr 0.01 --seed 5 --eval-every never "
              "--detections 20 --resume --sizes 48,64",
              tool("train"), shapes_set(), in_tmp("sizes-parts")),
      2);
  EXPECT(strstr(said, "it was made with \"sizes\":\"48 64 80\", but this run has \"sizes\":\"48 64\": "));
  if (!EXPECT_INT(train_shapes("", "sizes-parts", "--sizes 48,64,80 --resume"), 0)) return;
  EXPECT(same_file(in_tmp("sizes-whole/checkpoint.safetensors"), in_tmp("sizes-parts/checkpoint.safetensors")));
  EXPECT(!same_file(in_tmp("sizes-whole/model.safetensors"), in_tmp("whole/model.safetensors")));
}

// The number behind a text's last `key`; NaN where it has none.
static double last_number(const char *text, const char *key) {
  double number = NAN;
  for (; (text = strstr(text, key)); text++) number = strtod(text + strlen(key), NULL);
  return number;
}

// The last evaluation of a run is of the weights that it left: what infer found scores the same.
static void expect_scored_as_trained(const char *log, const char *found) {
  const char *said;
  size_t size;
  char *text = file_read(in_tmp(log), &size, NULL);
  const double trained = text ? last_number(text, "\"bbox_AP\":") : NAN;
  free(text);
  EXPECT_INT(command(&said, "%s --gt %s/annotations/instances_val.json --dt %s --json | grep -m1 '\"AP\":'",
                     tool("cocoeval"), shapes_set(), in_tmp(found)),
             0);
  if (!EXPECT(last_number(said, "\"AP\":") == trained)) printf("  %.17g in training; %s\n", trained, said);
}

// --score limits what is written, from either side of the model's own 0.05, and no score of --eval.
static void expect_scored_alike(double trained) {
  double least[] = {0, 0, 0}; // the others: between the lowest and the highest score found at 0, and the highest
  static const char *const key = "\"bbox_AP\":";
  int written[COUNT(least)];
  for (int i = 0; i < COUNT(least); i++) {
    const char *said;
    CocoResults found;
    Err err;
    EXPECT_INT(command(&said, "%s --weights %s --data %s --out %s-%d --overlays 0 --eval --score %.9g", tool("infer"),
                       in_tmp("short/model.safetensors"), shapes_set(), in_tmp("scored"), i, least[i]),
               0);
    EXPECT(strstr(said, "page: "));
    EXPECT_INT(command(&said, "cat %s-%d/" SCORES, in_tmp("scored"), i), 0);
    EXPECT_NEAR(last_number(said, key), trained, 0);
    EXPECT_INT(command(&said, "echo %s-%d/detections.json", in_tmp("scored"), i), 0);
    char path[512];
    snprintf(path, sizeof path, "%.*s", (int)strcspn(said, "\n"), said);
    if (!EXPECT(coco_results_load(&found, path, NULL, &err))) return;
    double lowest = 1, highest = 0;
    for (int k = 0; k < found.n; k++) {
      EXPECT(found.items[k].score > least[i]);
      lowest = fmin(lowest, found.items[k].score);
      highest = fmax(highest, found.items[k].score);
    }
    written[i] = found.n;
    if (i == 0) {
      least[1] = (lowest + highest) / 2;
      least[2] = highest;
      EXPECT(least[1] > 0.05);
    }
    coco_results_free(&found);
  }
  EXPECT(written[0] > written[1] && written[1] > written[2]);
}

TEST_TIER(program_train_infer_score, 1) {
  const char *said;
  int status = command(&said,
                       "%s --data %s --out %s/short --model tiny --size 64 --batch 4 --iters 30 --lr 0.02 "
                       "--eval-every 15",
                       tool("train"), shapes_set(), test_tmp());
  if (!EXPECT_INT(status, 0)) return;
  EXPECT(strstr(said, "step 15: bbox AP ") && strstr(said, "step 30: bbox AP "));
  status = command(&said, "%s --weights %s --data %s --out %s --eval --score 0.05", tool("infer"),
                   in_tmp("short/model.safetensors"), shapes_set(), in_tmp("found"));
  if (!EXPECT_INT(status, 0)) return;
  EXPECT(strstr(said, "Average Precision  (AP) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ]"));
  EXPECT(strstr(said, "bbox AP 0."));
  expect_scored_as_trained("short/log.jsonl", "found/detections.json");
  char *log = file_read(in_tmp("short/log.jsonl"), &(size_t){0}, NULL);
  if (EXPECT(log)) expect_scored_alike(last_number(log, "\"bbox_AP\":"));
  free(log);
  CocoResults found;
  Err err;
  if (EXPECT(coco_results_load(&found, in_tmp("found/detections.json"), NULL, &err))) {
    EXPECT(found.n > 0); // training scores what is above 0.05, too
    for (int i = 0; i < found.n; i++) EXPECT(found.items[i].has_segm && found.items[i].rle.h == 64);
    coco_results_free(&found);
  }
  Image overlay;
  if (EXPECT(image_load(&overlay, in_tmp("found/000001.png"), &err))) {
    EXPECT(overlay.w == 64 && overlay.h == 64);
    image_free(&overlay);
  }
}

// The line that begins with { among a program's output, as a number by key; NaN where it has none.
static double record_number(const char *said, const char *key) {
  const char *line = said[0] == '{' ? said : strstr(said, "\n{");
  if (!line) return NAN;
  line += *line == '\n';
  Json j;
  double value = NAN;
  const char *found;
  json_open(&j, "record", line, strcspn(line, "\n"));
  for (bool open = json_begin_object(&j); open && (found = json_key(&j));)
    if (!strcmp(found, key) && json_peek(&j) == JSON_NUMBER)
      value = json_number(&j);
    else
      json_skip(&j);
  if (!json_done(&j)) value = NAN;
  json_close(&j);
  return value;
}

static void expect_benchmark(const char *said, const char *bench, int batch) {
  static const char *const numbers[] = {
      "img_s",          "step_ms",        "data_wait_ms",   "data_wait_percent",   "latency_ms_p50",
      "rois",           "positives",      "peak_bytes",     "transfer_ms",         "forward_input_ms",
      "forward_fpn_ms", "forward_rpn_ms", "forward_roi_ms", "forward_backbone_ms", "timed_steps"};
  char text[64];
  snprintf(text, sizeof text, "{\"bench\":\"%s\",\"model\":\"maskrcnn\",\"gpu\":\"CPU", bench);
  EXPECT(strstr(said, text) && strstr(said, ",\"amp\":\"off\",") && strstr(said, ",\"conv\":\"auto\","));
  EXPECT(strstr(said, ",\"date\":\"") && strstr(said, ",\"commit\":\"") && strstr(said, ",\"machine\":{"));
  for (int i = 0; i < COUNT(numbers); i++)
    if (!EXPECT(record_number(said, numbers[i]) >= 0)) fprintf(stderr, "  %s in %s\n", numbers[i], said);
  EXPECT_INT((int)record_number(said, "batch"), batch);
  EXPECT_INT((int)record_number(said, "steps"), 3);
  // Of images, not of places: the last batches of a data set may not be full.
  const double images = record_number(said, "images");
  EXPECT(images > 0 && images <= 3 * batch && (strcmp(bench, "train") || images == 3 * batch));
  EXPECT_NEAR(record_number(said, "img_s") * record_number(said, "step_ms"), 1e3 * images / 3, 1e-6 * batch);
  EXPECT(record_number(said, "data_wait_ms") <= record_number(said, "step_ms"));
}

TEST_TIER(program_benchmark, 1) {
  const char *said;
  char common[1024];
  snprintf(common, sizeof common, "%s --data %s --model tiny --size 64 --batch 2 --seed 5 --device cpu", tool("train"),
           shapes_set());
  if (!EXPECT_INT(command(&said, "%s --benchmark 3 --out %s", common, in_tmp("bench")), 0)) return;
  expect_benchmark(said, "train", 2);
  EXPECT(record_number(said, "backward_ms") > 0 && record_number(said, "update_ms") > 0);
  EXPECT(record_number(said, "positives") < 2 * 12);
  EXPECT(!path_is_dir(in_tmp("bench")));

  // 48 RoIs an image, a quarter of them objects.
  EXPECT_INT(command(&said, "%s --benchmark 3 --full-masks --profile --trace %s", common, in_tmp("trace.json")), 0);
  expect_benchmark(said, "train", 2);
  EXPECT(record_number(said, "positives") == 2 * 12 && strstr(said, "\"full_masks\":true"));
  EXPECT(strstr(said, "training, canvas 64 x 64 (h x w), batch 2\n") && strstr(said, "\nbackbone.body.conv1 "));
  size_t size;
  char *text = file_read(in_tmp("trace.json"), &size, NULL);
  Json j;
  int events = 0;
  json_open(&j, "trace.json", text, size);
  for (bool open = json_begin_array(&j); open && json_next(&j); events++) json_skip(&j);
  EXPECT(json_done(&j) && events > 100);
  json_close(&j);
  free(text);

  if (!EXPECT_INT(train_shapes("", "bench-model", ""), 0)) return;
  EXPECT_INT(
      command(&said,
              "%s --weights %s --data %s --batch 4 --benchmark 3 --profile --energy 0.001 --score 0.001 --device "
              "cpu --out %s",
              tool("infer"), in_tmp("bench-model/model.safetensors"), shapes_set(), in_tmp("bench")),
      0);
  expect_benchmark(said, "infer", 4);
  EXPECT(strstr(said, "- MHz\nall nodes ")); // which the CPU cannot tell
  EXPECT(record_number(said, "results_ms") > 0 && strstr(said, "inference, canvas 64 x 64 (h x w), batch 4\n"));
  EXPECT(!path_is_dir(in_tmp("bench")));
}

TEST_TIER(program_benchmark_loader, 1) {
  const char *said;
  EXPECT_INT(command(&said, "%s --data %s --model tiny --size 64 --batch 2 --threads 1 --benchmark-loader 2 --gpus all",
                     tool("train"), shapes_set()),
             0);
  EXPECT_INT(command(&said, "%s --data %s --model tiny --size 64 --batch 2 --threads 2 --benchmark-loader 5 --out %s",
                     tool("train"), shapes_set(), in_tmp("bench-loader")),
             0);
  static const char *const shares[] = {"read_percent", "decode_percent", "masks_percent", "copy_percent",
                                       "wait_percent"};
  for (int threads = 1; threads <= 2; threads++) {
    char text[64];
    snprintf(text, sizeof text, "\"threads\":%d,\"batch\":2,\"batches\":5,", threads);
    said = strstr(said, "{\"bench\":\"loader\""); // one record for each number of threads
    if (!EXPECT(said && strstr(said, text))) return;
    double sum = 0, cores = MIN(threads, record_number(said, "cores"));
    for (int i = 0; i < COUNT(shares); i++) sum += record_number(said, shares[i]);
    EXPECT_NEAR(sum, 100, 1e-9);
    EXPECT(record_number(said, "decode_percent") > 0 && record_number(said, "masks_percent") > 0);
    double speed = record_number(said, "img_s");
    EXPECT(speed > 0);
    EXPECT_NEAR(record_number(said, "img_s_core") * cores, speed, 1e-9 * speed);
    EXPECT_NEAR(record_number(said, "megapixels_s") * 1e6, speed * 64 * 64, 1e-6 * speed * 64 * 64);
    said++;
  }
  EXPECT(!strstr(said, "{\"bench\"") && !path_is_dir(in_tmp("bench-loader")));
}

// What a checkpoint says of its model, "" where it says nothing.
static const char *field_of(const char *path, const char *name) {
  static char value[256];
  Checkpoint c;
  char key[64];
  snprintf(key, sizeof key, "config.%s", name);
  *value = '\0';
  if (!EXPECT(ckpt_open(&c, path, NULL))) return value;
  const char *found = ckpt_find_meta(&c, key);
  snprintf(value, sizeof value, "%s", found ? found : "");
  ckpt_close(&c);
  return value;
}

// A copy of a checkpoint whose model has another value of equal length in a field, with a digest that fits.
static void copy_edited(const char *from, const char *to, const char *field, const char *was, const char *is) {
  char text[2][128];
  for (int i = 0; i < 2; i++) snprintf(text[i], sizeof text[i], "\"config.%s\":\"%s\"", field, i ? is : was);
  size_t size, n = strlen(text[0]);
  char *bytes = file_read(from, &size, NULL), *at = bytes;
  CHECK(bytes && strlen(text[1]) == n);
  while (at + n <= bytes + size && memcmp(at, text[0], n)) at++;
  if (EXPECT(at + n <= bytes + size)) memcpy(at, text[1], n);
  const char *digest = strstr(bytes + 8, "\"digest\":\""); // of the header, whose length is in the first eight bytes
  const size_t digits = (size_t)(digest - bytes) + strlen("\"digest\":\"");
  uint64_t header;
  memcpy(&header, bytes, 8);
  digest_write(verify_digest((unsigned char *)bytes, digits, 8 + (size_t)header), bytes + digits);
  FILE *f = fopen(to, "wb");
  CHECK(f && fwrite(bytes, 1, size, f) == size && !fclose(f));
  free(bytes);
}

static void infer(const char *model, const char *out) {
  const char *said;
  int status =
      command(&said, "%s --weights %s --data %s --out %s --score 0.01", tool("infer"), model, shapes_set(), out);
  if (!EXPECT_INT(status, 0)) fprintf(stderr, "%s\n", said);
}

typedef struct Convention {
  const char *conventions, *resize, *extra; // fields of its checkpoint
  const char *field, *was, *is;             // one that inference depends on, its value and another
} Convention;

// A set of conventions trains, and resumes to the same bits. infer computes by what the checkpoint says: the same
// weights under another convention find something else.
static void check_conventions(const Convention *c) {
  char options[64], whole[32], parts[32], model[512], other[512], found[2][512];
  snprintf(whole, sizeof whole, "%s-whole", c->conventions);
  snprintf(parts, sizeof parts, "%s-parts", c->conventions);
  snprintf(options, sizeof options, "--iters 5 --conventions %s", c->conventions);
  if (!EXPECT_INT(train_shapes("", whole, options), 0)) return;
  snprintf(options, sizeof options, "--iters 5 --conventions %s --stop-after 3", c->conventions);
  if (!EXPECT_INT(train_shapes("OMP_NUM_THREADS=1", parts, options), 0)) return;
  snprintf(options, sizeof options, "--iters 5 --conventions %s --resume", c->conventions);
  if (!EXPECT_INT(train_shapes("", parts, options), 0)) return;
  snprintf(model, sizeof model, "%s/%s/model.safetensors", test_tmp(), whole);
  snprintf(other, sizeof other, "%s/%s/model.safetensors", test_tmp(), parts);
  EXPECT(same_file(model, other));
  EXPECT_STR(field_of(model, "resize_rule"), c->resize);
  EXPECT_STR(field_of(model, "box_extra"), c->extra);
  copy_edited(model, other, c->field, c->was, c->is);
  for (int i = 0; i < 2; i++) {
    snprintf(found[i], sizeof found[i], "%s/%s-found-%d", test_tmp(), c->conventions, i);
    infer(i ? other : model, found[i]);
    strcat(found[i], "/detections.json");
  }
  EXPECT(!same_file(found[0], found[1]));
}

TEST_TIER(program_conventions, 1) {
  check_conventions(&(Convention){"torchvision", "torchvision", "0", "pixel_unit", "255", "254"});
  check_conventions(&(Convention){"detectron2", "detectron2", "0", "roi_aligned", "1", "0"});
  check_conventions(&(Convention){"mlperf", "maskrcnn-benchmark", "1", "box_extra", "1", "0"});
  // A run goes on by its own conventions only.
  const char *said;
  int status = command(&said,
                       "%s --data %s --out %s --model tiny --size 64 --batch 2 --iters 5 --lr 0.01 --seed 5 "
                       "--eval-every never --detections 20 --conventions mlperf --resume",
                       tool("train"), shapes_set(), in_tmp("detectron2-whole"));
  EXPECT_INT(status, 2);
  EXPECT(strstr(said, "its model has train_size_min = 51, but this run's has "));
  // Other flags win over it: detectron2's warmup would be 0 of 8 steps, its norm is the model's.
  if (EXPECT_INT(train_shapes("", "flags", "--conventions detectron2 --warmup 3 --norm bn --max-size 96"), 0)) {
    const char *model = in_tmp("flags/model.safetensors");
    EXPECT_STR(field_of(model, "norm"), "bn");
    EXPECT_STR(field_of(model, "max_size"), "96");
    EXPECT_STR(field_of(model, "roi_aligned"), "1");
    Checkpoint c;
    CHECK(ckpt_open(&c, model, NULL));
    EXPECT(strstr(ckpt_find_meta(&c, "run"), "\"conventions\":\"detectron2\"") &&
           strstr(ckpt_find_meta(&c, "run"), "\"warmup\":3"));
    EXPECT(strstr(ckpt_find_meta(&c, "run"), "\"sizes\":\"51 53 56 58 61 64\"")); // 51 + 13 i / 5
    ckpt_close(&c);
  }
  // --weights keeps the checkpoint's conventions; --conventions replaces them all.
  char weights[600];
  for (int replaced = 0; replaced < 2; replaced++) {
    snprintf(weights, sizeof weights, "%s/detectron2-whole/model.safetensors", test_tmp());
    status = command(&said, "%s --data %s --out %s --weights %s --iters 1 --eval-every never %s", tool("train"),
                     shapes_set(), in_tmp(replaced ? "replaced" : "inherited"), weights,
                     replaced ? "--conventions torchvision" : "");
    if (!EXPECT_INT(status, 0)) fprintf(stderr, "%s\n", said);
    const char *model = in_tmp(replaced ? "replaced/model.safetensors" : "inherited/model.safetensors");
    EXPECT_STR(field_of(model, "mask_source"), replaced ? "soft" : "polygon");
    EXPECT_STR(field_of(model, "rpn_loss_by_batch"), replaced ? "0" : "1");
    EXPECT_STR(field_of(model, "rpn_post_nms_train"), replaced ? "1000" : "500");
  }
}

TEST_TIER(program_trains_around_bad_images, 1) {
  static const char huge[] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\xff\xff\0\0\xff\xff\b\2\0\0\0\071\147\116\007";
  char dir[512];
  snprintf(dir, sizeof dir, "%s", in_tmp("spoilt"));
  CHECK(!command(NULL, "cp -r %s %s", shapes_set(), dir));
  CHECK(!remove(in_tmp("spoilt/train/000002.png")) && !truncate(in_tmp("spoilt/train/000003.png"), 100));
  CHECK(!truncate(in_tmp("spoilt/val/000001.png"), 100)); // met by two evaluations
  FILE *f = fopen(in_tmp("spoilt/train/000004.png"), "wb");
  CHECK(f && fwrite(huge, 1, sizeof huge, f) == sizeof huge && !fclose(f));
  const char *said;
  EXPECT_INT(
      command(
          &said,
          "%s --data %s --out %s --model tiny --size 64 --batch 4 --iters 13 --eval-every 7 --detections 10 --profile "
          "--trace %s",
          tool("train"), dir, in_tmp("spoilt-run"), in_tmp("spoilt-trace.json")),
      0);
  static const char *const lines[] = {
      "train: missing image files: 1; replaced by another image; --strict stops; first: image 2, file 000002",
      "000002.png: No such file",
      "000003.png: cannot read",
      ": cannot read the image: its header says 65535×65535 pixels, more than the maximum of 268435456; downscale it",
      "val/000001.png: cannot read",
      "unreadable images: 3 of 24 in training (replaced by others), 1 in evaluation (left out)"};
  for (int i = 0; i < COUNT(lines); i++) {
    const char *at = strstr(said, lines[i]);
    if (!EXPECT(at && !strstr(at + 1, lines[i]))) fprintf(stderr, "  %s, once, in: %s\n", lines[i], said);
  }
  EXPECT(strstr(said, "training, canvas 64 x 64 (h x w), batch 4\n") && strstr(said, "\nbackbone.body.conv1 "));
  char *trace = file_read(in_tmp("spoilt-trace.json"), &(size_t){0}, NULL);
  EXPECT(trace && strstr(trace, "backbone.body.conv1"));
  free(trace);
  EXPECT(strstr(said, "step 13: bbox AP ") &&
         strstr(said, "step 13: 1 of 6 images left out of the evaluation: they could not be read\n"));
  char *log = file_read(in_tmp("spoilt-run/log.jsonl"), &(size_t){0}, NULL);
  EXPECT(log && strstr(log, ",\"images\":5,\"left_out\":1,"));
  free(log);
  // Scores of nothing are none.
  static const char found[] = "%s --weights %s --data %s --out %s --eval";
  char model[512];
  snprintf(model, sizeof model, "%s", in_tmp("spoilt-run/model.safetensors"));
  EXPECT_INT(command(&said, found, tool("infer"), model, dir, in_tmp("spoilt-found")), 0);
  EXPECT(strstr(said, "  on 5 images; 1 unreadable images left out\n"));
  CHECK(!command(NULL, "truncate -s 100 %s/val/*.png", dir));
  EXPECT_INT(command(&said, found, tool("infer"), model, dir, in_tmp("spoilt-nothing")), 1);
  EXPECT(strstr(said, "none of its 6 images can be read\n") && !strstr(said, "AP"));
  CHECK(!command(NULL, "cp %s/train/000005.png %s", shapes_set(), in_tmp("spoilt/train/000002.png")));
  EXPECT_INT(command(&said, "%s --data %s --out %s --model tiny --size 64 --batch 4 --iters 13 --strict", tool("train"),
                     dir, in_tmp("spoilt-strict")),
             2);
  EXPECT(strstr(said, "000003.png: cannot read") || strstr(said, "000004.png: cannot read"));
}

TEST_TIER(program_stops_at_what_is_not_finite, 1) {
  const char *said;
  EXPECT_INT(
      command(&said,
              "%s --data %s --out %s --model tiny --size 64 --batch 4 --iters 100 --warmup 0 --clip-grad 0 --lr 1000 "
              "--eval-every never",
              tool("train"), shapes_set(), in_tmp("stops")),
      1);
  EXPECT(strstr(said, ": loss or gradient is not finite ("));
}

TEST_TIER(program_never_overwrites_a_run, 1) {
  if (!EXPECT_INT(train_shapes("", "kept", "--stop-after 1"), 0)) return;
  size_t size;
  char *before = file_read(in_tmp("kept/checkpoint.safetensors"), &size, NULL);
  const char *said;
  EXPECT_INT(command(&said, "%s --data %s --out %s --model tiny --size 64 --iters 8", tool("train"), shapes_set(),
                     in_tmp("kept")),
             2);
  EXPECT(strstr(said, " already contains a run: continue it with --resume, or choose another --out\n") != NULL);
  EXPECT_INT(command(&said, "%s --data %s --out %s --model tiny --size 64 --batch 2 --iters 9 --detections 20 --resume",
                     tool("train"), shapes_set(), in_tmp("kept")),
             2);
  EXPECT(strstr(said, "it was made with \"seed\":5, but this run has \"seed\":1: give the same options") != NULL);
  size_t size_after;
  char *after = file_read(in_tmp("kept/checkpoint.safetensors"), &size_after, NULL);
  EXPECT(before && after && size == size_after && !memcmp(before, after, size));
  free(before);
  free(after);
}
