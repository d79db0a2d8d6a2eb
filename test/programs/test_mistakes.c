// Catches mistakes of users that are accepted, or that get a message without what to do.
#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

static void expect_mistake(const char *says, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void expect_mistake(const char *says, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  expect_mistake_of("", says, fmt, args);
  va_end(args);
}

static void write_text(const char *path, const char *text) {
  FILE *f = fopen(path, "w");
  CHECK(f && fputs(text, f) >= 0 && !fclose(f));
}

TEST_TIER(program_mistakes_of_train, 1) {
  const char *d = shapes_set();
  char train[256];
  snprintf(train, sizeof train, "%s", tool("train"));
  expect_mistake("--batch", "%s --data %s --bacth 3", train, d);
  expect_mistake("--batch", "%s --data %s --batch zero", train, d);
  expect_mistake("--recipe was renamed to --conventions in 1.2; use --conventions mlperf", "%s --recipe mlperf", train);
  expect_mistake("use --conventions own", "%s --recipe=auto", train);
  expect_mistake("not \"0\"; leave the option out to get the default", "%s --size 0", train);
  expect_mistake("not \"auto\"; leave the option out to get the default", "%s --norm auto", train);
  expect_mistake("an integer from 1 to 1000000, not \"0\"", "%s --benchmark=0", train);
  expect_mistake("--beta1 takes a number from 0 to 0.9999999, not", "%s --beta1 1", train);
  expect_mistake("--seed takes an integer from 0 to 9000000000000000, not", "%s --seed x", train);
  expect_mistake("/nowhere", "%s --data /nowhere --out %s", train, in_tmp("m"));
  EXPECT(!path_is_dir(in_tmp("nothing-yet")));
  expect_mistake("/nowhere", "%s --data /nowhere --out %s", train, in_tmp("nothing-yet"));
  expect_mistake("--device cuda", "%s --data %s --model tiny --device cuda --out %s", train, d, in_tmp("nothing-yet"));
  expect_mistake("too little memory", "ulimit -v 300000; %s --data %s --model tiny --device cpu --batch 512 --out %s",
                 train, d, in_tmp("nothing-yet"));
  EXPECT(!path_is_dir(in_tmp("nothing-yet"))); // nothing is left of a run that cannot begin
  expect_mistake("--out has an empty value", "%s --data %s --out ''", train, d);
  expect_mistake("no such split", "%s --data %s --train-split 'no such split' --out %s", train, d, in_tmp("m"));
  expect_mistake("maskrcnn-r", "%s --data %s --model resnet --out %s", train, d, in_tmp("m"));
  expect_mistake("/proc/nowhere", "%s --data %s --model tiny --iters 1 --out /proc/nowhere", train, d);
  expect_mistake("--sizes '64,x': expected numbers", "%s --data %s --sizes 64,x --out %s", train, d, in_tmp("m"));
  expect_mistake("; increase --max-size", "%s --data %s --model tiny --size 64 --sizes 64,128 --out %s", train, d,
                 in_tmp("m"));
  expect_mistake("--full-masks needs --benchmark", "%s --data %s --full-masks --out %s", train, d, in_tmp("m"));
  expect_mistake("--trace: cannot write /proc/nowhere", "%s --data %s --model tiny --trace /proc/nowhere --out %s",
                 train, d, in_tmp("traced"));
  expect_mistake("needs a GPU", "%s --data %s --device cpu --model tiny --amp --out %s", train, d, in_tmp("m"));
  expect_mistake("--device cuda:99: ", "%s --data %s --model tiny --device cuda:99 --out %s", train, d, in_tmp("m"));
  expect_mistake("--device cpu:1: ", "%s --data %s --model tiny --device cpu:1 --out %s", train, d, in_tmp("m"));
  expect_mistake("no-such-file", "%s --data %s --weights no-such-file --out %s", train, d, in_tmp("m"));
  expect_mistake("--patience counts", "%s --data %s --eval-every end --patience 2 --out %s", train, d, in_tmp("m"));
  expect_mistake("--val-loss needs evaluations, but --eval-every never turns them off: leave one of them out",
                 "%s --data %s --val-loss --eval-every never --out %s", train, d, in_tmp("m"));
  expect_mistake("--reset-heads needs --weights", "%s --data %s --reset-heads --out %s", train, d, in_tmp("m"));

  expect_mistake("--set nmss: unknown field; did you mean nms?", "%s --data %s --set nmss=1 --out %s", train, d,
                 in_tmp("m"));
  expect_mistake("--set nms=2: expected a number, 0 to 1", "%s --data %s --set nms=0.4 --set nms=2", train, d);
  expect_mistake("--size and --set size cannot be combined", "%s --data %s --set size=64 --size 64", train, d);
  expect_mistake("width 33 is not divisible by norm_groups", "%s --data %s --model tiny --set width=33", train, d);
  expect_mistake("--anchors 8,16: expected 5 sizes", "%s --data %s --model tiny --anchors 8,16", train, d);
  expect_mistake("--anchors 0,8,16,32,64: expected 5 sizes", "%s --data %s --model tiny --anchors 0,8,16,32,64", train,
                 d);

  expect_mistake("anchors 2000,4000,8000,16000,32000 overlap no object of ",
                 "%s --data %s --model tiny --anchors 2000,4000,8000,16000,32000", train, d);
  expect_mistake("--anchors and --set anchor_size cannot be combined: ",
                 "%s --data %s --model tiny --anchors 8,16,32,64,128 --set anchor_size=8,16,32,64,128", train, d);
  expect_mistake("--score and --set min_score cannot be combined: ",
                 "%s --data %s --model tiny --score 0.1 --set min_score=0.2", train, d);
  expect_mistake("--ema takes a number from 0 to 0.9999999, not \"1\"", "%s --data %s --ema 1", train, d);
  expect_mistake("--classes: \"rin\" is not the name or id of ", "%s --data %s --classes disc,rin", train, d);

  // Masks in a form that nobody knows: nothing would be learnt of them.
  char copy[1024];
  snprintf(copy, sizeof copy,
           "cp -r %s %s && sed -i 's/\\[\\[\\([0-9.,]*\\)\\]\\]/\"\\1\"/g' %s/annotations/instances_train.json", d,
           in_tmp("text-masks"), in_tmp("text-masks"));
  CHECK(system(copy) == 0);
  expect_mistake("they are strings; COCO's masks are [[x1", "%s --data %s --model tiny --out %s", train,
                 in_tmp("text-masks"), in_tmp("nothing-yet"));

  // Malformed annotations: file, line, column, what was expected.
  CHECK(dirs_make(in_tmp("bad/annotations"), NULL) && dirs_make(in_tmp("bad/train"), NULL));
  write_text(in_tmp("bad/annotations/instances_train.json"), "{\n  \"images\": [{\"id\": 1,, \"height\": 2}]\n}\n");
  expect_mistake("instances_train.json:2:", "%s --data %s --model tiny --out %s", train, in_tmp("bad"), in_tmp("m"));
  // What to evaluate on has to be usable as well, once it is there or asked for.
  char half[512];
  snprintf(half, sizeof half, "%s", in_tmp("half"));
  CHECK(!command(NULL, "cp -r %s %s", d, half));
  expect_mistake(" has no annotations of a split elsewhere, only ",
                 "%s --data %s --model tiny --val-split elsewhere --out %s", train, half, in_tmp("m"));
  write_text(in_tmp("half/annotations/instances_val.json"), "[]\n");
  expect_mistake("instances_val.json:1:1: expected '{', found '['", "%s --data %s --model tiny --out %s", train, half,
                 in_tmp("m"));
  CHECK(!remove(in_tmp("half/train/000003.png")));
  expect_mistake("000003.png: no such file", "%s --data %s --model tiny --strict --out %s", train, half, in_tmp("m"));
}

// --data, else $MASKRCNN_DATA, else ./coco where that is a data set; otherwise one line says all this.
TEST_TIER(program_mistakes_data_default, 1) {
  static const char nowhere[] =
      "--data DIR is missing, $MASKRCNN_DATA is not set, and there is no data set in ./coco; --help lists the options";
  char *train = realpath(tool("train"), NULL), *set = realpath(shapes_set(), NULL), *here, *plan;
  const char *said;
  here = xstrdup(in_tmp("data-default"));
  plan = xasprintf("%s --model tiny --size 64 --batch 2 --plan --device cpu", train);
  CHECK(dirs_make(here, NULL));
  expect_mistake(nowhere, "cd %s; unset MASKRCNN_DATA; %s", here, train);
  expect_mistake(nowhere, "cd %s; MASKRCNN_DATA= %s --gpus 2 --batch 4", here, train);
  expect_mistake("--data /nowhere: no such folder", "cd %s; MASKRCNN_DATA=/nowhere %s", here, train);
  CHECK(dirs_make(in_tmp("data-default/coco/images"), NULL)); // of another program
  expect_mistake(nowhere, "cd %s; unset MASKRCNN_DATA; %s", here, train);
  CHECK(!command(NULL, "cd %s; rm -r coco; ln -s %s coco", here, set));
  EXPECT_INT(command(&said, "cd %s; unset MASKRCNN_DATA; %s", here, plan), 0);
  EXPECT(strstr(said, "settings:\n  --data=coco  (default)\n") && strstr(said, "\n  --size=64  (given)\n") &&
         strstr(said, "\n  --checkpoint-every=100  (data)\n") && strstr(said, "\n  --max-size=106  (default)\n") &&
         !strstr(said, "--rotate="));
  EXPECT_INT(command(&said, "cd %s; rm coco; MASKRCNN_DATA=%s %s", here, set, plan), 0);
  expect_mistake("--data /nowhere: no such folder", "cd %s; MASKRCNN_DATA=%s %s --data /nowhere", here, set, train);
  expect_mistake("give either images or --data DIR", "MASKRCNN_DATA=%s %s --weights x", set, tool("infer"));
  char *all[] = {train, set, here, plan};
  for (int i = 0; i < COUNT(all); i++) free(all[i]);
}

// Folders that train cannot read: of other tools, missing, empty, or a file.
TEST_TIER(program_mistakes_data_folder, 1) {
  static const struct {
    const char *dir, *says;
    bool reported; // by doctor, among errors
  } cases[] = {
      {"test/exports/labelme-shapes", "labelme JSON files, which train cannot read; convert them first: ", false},
      {"test/exports/cvat-xml-masks", "import test/exports/cvat-xml-masks --to OUT", false},
      {"test/exports/dsb2018-folders", "import test/exports/dsb2018-folders --to OUT", false},
      {"test/exports/voc-instances", "import test/exports/voc-instances --to OUT", false},
      {"test/exports/yolo-seg-yaml-dict", " YOLO label files, which", false},
      {"test/exports/labels-colour-jpeg", " label image", false},
      {"mistaken/labels", " label image", false}, // which look like classes
      {"mistaken/images", "contains 1 image but no annotations in COCO format", true},
      {"mistaken/empty", "the folder is empty", true},
      {"mistaken/none", "no such folder", false},
      {"test/exports/layout-flat/_annotations.coco.json",
       "expected a folder; for one annotation file give --train-json "
       "FILE --train-images DIR",
       false},
  };
  char *train = xstrdup(tool("train")), *doctor = xstrdup(tool("doctor"));
  const char *said, *root = in_tmp("mistaken");
  EXPECT_INT(command(&said,
                     "mkdir -p %s && cd %s && mkdir -p labels/img labels/mask images/images empty class/mask class/no",
                     root, root),
             0);
  EXPECT_INT(command(&said,
                     "cp test/exports/labels-16bit/cell1.png %s/labels/img && cp test/exports/labels-16bit/"
                     "cell1_masks.png %s/labels/mask/cell1.png && for i in images/images class/mask class/no; do "
                     "cp test/exports/labelme-exif/a.jpg %s/$i; done",
                     root, root, root),
             0);
  for (int i = 0; i < COUNT(cases); i++) {
    const char *dir = strncmp(cases[i].dir, "mistaken", 8) ? cases[i].dir : in_tmp(cases[i].dir);
    expect_mistake(cases[i].says, "%s --data %s --model tiny --plan", train, dir);
    if (!cases[i].reported)
      expect_mistake(cases[i].says, "%s --data %s --model tiny", doctor, dir);
    else
      EXPECT(command(&said, "%s --data %s", doctor, dir) == 1 && strstr(said, cases[i].says));
  }
  expect_mistake("contains a folder of images per class", "%s --data %s --model tiny", train, in_tmp("mistaken/class"));
  EXPECT(command(&said, "%s --data %s", doctor, in_tmp("mistaken/class")) != 2);
  EXPECT(strstr(said, ", a folder of images per class\n") != NULL);
  free(train);
  free(doctor);
}

TEST_TIER(program_mistakes_of_infer, 1) {
  char infer[256];
  snprintf(infer, sizeof infer, "%s", tool("infer"));
  if (!EXPECT_INT(train_shapes("", "tiny", "--stop-after 8"), 0)) return;
  char model[512];
  snprintf(model, sizeof model, "%s", in_tmp("tiny/checkpoint.safetensors"));
  expect_mistake("--weights FILE is missing", "%s image.png", infer);
  expect_mistake("give either images or --data DIR", "%s --weights %s", infer, model);
  expect_mistake("--profile needs --benchmark", "%s --weights %s --data %s --profile", infer, model, shapes_set());
  expect_mistake("--energy needs --benchmark", "%s --weights %s --data %s --energy 0.1", infer, model, shapes_set());
  expect_mistake("no-such-image.png", "%s --weights %s --out %s no-such-image.png", infer, model, in_tmp("o"));
  write_text(in_tmp("text.png"), "not an image\n");
  expect_mistake("text.png", "%s --weights %s --out %s %s", infer, model, in_tmp("o"), in_tmp("text.png"));
  const char *said; // one bad image among others: those are done all the same
  EXPECT_INT(command(&said, "%s --weights %s --out %s %s %s/val/000001.png", infer, model, in_tmp("o"),
                     in_tmp("text.png"), shapes_set()),
             2);
  EXPECT(strstr(said, "1 of 2 images left out") && strstr(said, "000001.png: "));
  expect_mistake("cannot write /proc/nowhere.json: ", "%s --weights %s --data %s --out %s --json /proc/nowhere.json",
                 infer, model, shapes_set(), in_tmp("o"));
  expect_mistake("text.png", "%s --weights %s image.png", infer, in_tmp("text.png"));
  expect_mistake("/nowhere", "%s --weights %s --data /nowhere --out %s", infer, model, in_tmp("o"));
  expect_mistake("/proc/nowhere", "%s --weights %s --data %s --out /proc/nowhere", infer, model, shapes_set());
  // What a checkpoint holds, and one of its tensors.
  EXPECT_INT(command(&said, "%s %s", tool("inspect"), model), 0);
  EXPECT(strstr(said, "config.depth = 10\n") && strstr(said, "rpn.head.cls_logits.bias "));
  EXPECT(strstr(said, " MB; whole: the header and all tensors match their digests\n"));
  EXPECT_INT(command(&said, "%s %s rpn.head.cls_logits.bias --json", tool("inspect"), model), 0);
  EXPECT(strstr(said, "\"shape\":[3],\"bytes\":12,") && strstr(said, "\"infinite\":0,\"nan\":0}"));
  expect_mistake("no tensor x", "%s %s x", tool("inspect"), model);
  expect_mistake("text.png: not a PyTorch file, and not", "%s %s", tool("inspect"), in_tmp("text.png"));
  // A checkpoint of another model: by its name, or the names of what does not fit.
  expect_mistake("the weights are of another model than --model: maskrcnn, a ResNet-10 of width 24; leave --model out",
                 "%s --data %s --weights %s --model maskrcnn-r18-fpn", tool("train"), shapes_set(), model);
  EXPECT_INT(command(&said, "%s --data %s --weights %s --norm frozen-bn --model tiny --size 64 --iters 1 --out %s",
                     tool("train"), shapes_set(), model, in_tmp("other")),
             2);
  EXPECT(strstr(said, ": build/inspect lists the file's tensors; choose --model and --norm") != NULL);
}

// A mask that cannot be scored is refused where masks are asked for; what is scored otherwise than it looks is noted.
TEST_TIER(program_mistakes_of_cocoeval, 1) {
  char eval[1024];
  const char *said;
  snprintf(eval, sizeof eval, "%s --gt %s --dt %s", tool("cocoeval"), in_tmp("gt.json"), in_tmp("dt.json"));
  write_text(in_tmp("gt.json"),
             "{\"images\":[{\"id\":1,\"height\":8,\"width\":6},{\"id\":2}],\"categories\":[{\"id\":3}],"
             "\"annotations\":[{\"id\":5,\"image_id\":1,\"category_id\":3,\"bbox\":[1,1,3,4]}]}");
  write_text(in_tmp("dt.json"),
             "[{\"image_id\":1,\"category_id\":3,\"score\":1,\"bbox\":[1,1,3,4]},{\"image_id\":1,"
             "\"category_id\":3,\"score\":0.5,\"segmentation\":{\"size\":[6,8],\"counts\":[8,40]}}]");
  EXPECT_INT(command(&said, "%s --iou segm", eval), 0);
  EXPECT(strstr(said, "because their mask's size differs from the image's: 1; the first is detection 2\n"));
  EXPECT(strstr(said, "without a valid mask: 1; none has one, so their boxes are used as masks; the first has id 5\n"));
  EXPECT(strstr(said, "scored with their box as mask, as in pycocotools: 1; the first is detection 1\n"));
  EXPECT_INT(command(&said, "%s", eval), 0);
  EXPECT(!strstr(said, "note:"));
  write_text(in_tmp("dt.json"), "[{\"image_id\":1,\"category_id\":3,\"score\":1,\"bbox\":[1,1,3,4],"
                                "\"segmentation\":{\"size\":[8,6],\"counts\":[8,4]}}]");
  expect_mistake("dt.json: detection 1, of image 1: its segmentation is invalid", "%s --iou segm", eval);
  EXPECT_INT(command(&said, "%s", eval), 0);
  static const char *const limits[] = {"1,10", "10,1,100", "1,1,2", "0,1,2", "1,10,100,200", "1,10,x", "1, 2,3"};
  for (int i = 0; i < COUNT(limits); i++)
    expect_mistake("expected three increasing whole numbers of at least 1", "%s --max-dets '%s'", eval, limits[i]);
  expect_mistake("--iou takes bbox, segm or boundary, not \"outline\"", "%s --iou outline", eval);
  expect_mistake("curve.png: expected FILE.json or a folder", "%s --curves %s", eval, in_tmp("curve.png"));
  expect_mistake("no.xls: expected FILE.json, FILE.txt, or a folder", "%s --confusion %s", eval, in_tmp("no.xls"));
  write_text(in_tmp("boxless.json"), "{\"images\":[{\"id\":1,\"height\":8,\"width\":6}],\"categories\":[{\"id\":3}],"
                                     "\"annotations\":[{\"id\":5,\"image_id\":1,\"category_id\":3,"
                                     "\"segmentation\":[[1,1,4,1,4,5]]},"
                                     "{\"id\":6,\"image_id\":1,\"category_id\":3}]}");
  EXPECT_INT(command(&said, "%s --gt %s --dt %s", tool("cocoeval"), in_tmp("boxless.json"), in_tmp("dt.json")), 0);
  EXPECT(
      strstr(said, "note: annotations without a box, scored with their mask's box (pycocotools fails on them): 1\n"));
  EXPECT(strstr(
      said, "note: annotations without box or mask, which no detection can match (pycocotools fails on them): 1\n"));
  expect_mistake("gt.json is an input of this run", "%s --curves %s", eval, in_tmp("gt.json"));
  expect_mistake("dt.json is an input of this run", "%s --confusion %s", eval, in_tmp("dt.json"));
  EXPECT_INT(command(&said, "cd %s && mkdir -p plots && ln gt.json plots/confusion.json", test_tmp()), 0);
  expect_mistake("plots/confusion.json is an input of this run", "%s --confusion %s", eval, in_tmp("plots"));
  EXPECT_INT(command(&said, "%s --curves %s/both.json --confusion %s/./both.json", eval, test_tmp(), test_tmp()), 2);
  EXPECT(strstr(said, "both.json: --curves writes the same file; give another name"));
  write_text(in_tmp("dt.json"), "[{\"image_id\":1,\"category_id\":3,\"score\":1,\"bbox\":[1,1,3,4]}]");
  expect_mistake("boundary IoU needs masks, but no annotation of ", "%s --iou boundary", eval);
  write_text(in_tmp("dt.json"), "[{\"image_id\":2,\"category_id\":3,\"score\":1,\"bbox\":[1,1,3,4]}]");
  expect_mistake("detection 1: its image, 2, is without height and width in ", "%s --iou segm", eval);
}

// A data set like shapes_set whose categories are others, by one expression of sed; malloc'ed.
static char *relabelled(const char *name, const char *expression) {
  char *set = xstrdup(in_tmp(name));
  CHECK(!command(NULL, "cp -r %s %s && sed -i '%s' %s/annotations/*.json", shapes_set(), set, expression, set));
  return set;
}

TEST_TIER(program_mistakes_about_categories, 1) {
  char train[512];
  if (!EXPECT_INT(train_shapes("", "labelled", "--stop-after 2"), 0)) return;
  char *named = relabelled("renamed", "s/\"disc\"/\"circle\"/"), *run = xstrdup(in_tmp("labelled")),
       *numbered =
           relabelled("renumbered", "s/\"id\":6,\"name\"/\"id\":7,\"name\"/; s/\"category_id\":6,/\"category_id\":7,/");
  snprintf(train, sizeof train,
           "%s --model tiny --size 64 --batch 2 --iters 8 --lr 0.01 --checkpoint-every 3 --seed 5 --eval-every never "
           "--detections 20",
           tool("train"));
  expect_mistake(": 1 circle (there it is 1 disc); rename or remove it; or use --reset-heads to train",
                 "%s --data %s --weights %s/checkpoint.safetensors --out %s", train, named, run, in_tmp("m2"));
  expect_mistake(", but 1 (circle) in ", "%s --data %s --out %s --resume", train, named, run);
  expect_mistake(", but 7 (ring) in ", "%s --data %s --out %s --resume", train, numbered, run);
  static const char *const fine[] = {"--reset-heads --data", "--data"};
  for (int i = 0; i < COUNT(fine); i++)
    EXPECT_INT(command(NULL, "%s %s %s --weights %s/checkpoint.safetensors --stop-after 1 --out %s-%d", train, fine[i],
                       i ? numbered : named, run, in_tmp("m3"), i),
               0);
  free(named);
  free(numbered);
  free(run);
}

// A finished run whose checkpoint is gone is not taken for an empty folder, with or without --resume.
TEST_TIER(program_leaves_weights_of_others_alone, 1) {
  if (!EXPECT_INT(train_shapes("", "finished", ""), 0)) return;
  CHECK(!remove(in_tmp("finished/checkpoint.safetensors")));
  for (int resume = 0; resume < 2; resume++)
    expect_mistake("model.safetensors exists, but there is no checkpoint.safetensors to resume",
                   "%s --data %s --model tiny --size 64 --out %s %s", tool("train"), shapes_set(), in_tmp("finished"),
                   resume ? "--resume" : "");
  EXPECT(path_is_file(in_tmp("finished/model.safetensors")));
}

// What a program says to a stream that is closed is lost, and does not land in the first file that it opens.
TEST_TIER(program_closed_streams, 1) {
  static const char *const closed[] = {"<&- 2>&-", "<&- >&- 2>&-"};
  for (int i = 0; i < COUNT(closed); i++) {
    char *line = xasprintf("%s --data %s --out %s --model tiny --size 64 --batch 2 --iters 2 --eval-every never",
                           tool("train"), shapes_set(), in_tmp("closed"));
    EXPECT_INT(command(NULL, "sh -c 'exec %s %s'", line, closed[i]), 0);
    size_t size;
    char *log = file_read(in_tmp("closed/log.jsonl"), &size, NULL);
    int lines = 0;
    for (char *at = log; at && *at; lines++) {
      if (!EXPECT(!strncmp(at, "{\"step\":", 8))) break;
      at = strchr(at, '\n') + 1;
    }
    EXPECT_INT(lines, 2);
    free(log);
    free(line);
    CHECK(!command(NULL, "rm -r %s", in_tmp("closed")));
  }
  // A page that was asked for is written all the same.
  EXPECT_INT(command(NULL, "sh -c 'exec %s --data %s --size 64 --html %s/unheard.html >&-'", tool("doctor"),
                     shapes_set(), test_tmp()),
             EXIT_RUN);
  EXPECT(path_is_file(in_tmp("unheard.html")));
}

// Adds a split with the annotation file `text` and one image.
static void write_split(const char *dir, const char *split, const char *text) {
  char line[2048];
  snprintf(line, sizeof line, "mkdir -p %s/annotations %s/%s && cp %s/train/000001.png %s/%s/", dir, dir, split,
           shapes_set(), dir, split);
  CHECK(system(line) == 0);
  snprintf(line, sizeof line, "%s/annotations/instances_%s.json", dir, split);
  FILE *f = fopen(line, "w");
  CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

TEST_TIER(program_doctor_page, 1) {
  const char *said;
  EXPECT_INT(command(&said, "%s --data %s --size 64 --html %s --html-images 4 --augment strong --decode=false",
                     tool("doctor"), shapes_set(), in_tmp("few.html")),
             0);
  EXPECT_INT(command(&said, "grep -q '\"preset\":\"strong\",\"size\":64' %s", in_tmp("few.html")), 0);
  EXPECT_INT(command(&said, "test $(grep -o '\"split\":1' %s | wc -l) = 2", in_tmp("few.html")), 0); // half of val
}

TEST_TIER(program_doctor, 1) {
  const char *said, *dir = in_tmp("ill");
  EXPECT_INT(command(&said, "%s --data %s --size 64 --html %s", tool("doctor"), shapes_set(), in_tmp("page.html")), 0);
  EXPECT(strstr(said, "\nwritten: ") && strstr(said, "page.html, ") && strstr(said, "/page-pictures/\n"));
  EXPECT(strstr(said, "errors\n  none\n") && strstr(said, "only 24 training images: ") &&
         strstr(said, " --size 64 --canvases ") && strstr(said, " --batch 8 --epochs 834 --augment standard"));
  EXPECT_INT(command(&said, "%s --data %s --size 64 --exif", tool("doctor"), shapes_set()), 0);
  EXPECT(strstr(said, " --canvases 2 --exif yes\n") && strstr(said, " --augment standard --anchors auto --exif yes"));
  EXPECT(path_is_file(in_tmp("page.html")));
  EXPECT_INT(command(&said, "%s --data %s --size 64 --json", tool("doctor"), shapes_set()), 0);
  Json j;
  json_open(&j, "doctor", said, strlen(said));
  json_skip(&j);
  if (!EXPECT(json_done(&j) && strstr(said, "\"sound\":true,"))) fprintf(stderr, "  %s\n", said);
  json_close(&j);

  // Something wrong that training lives with; then something that stops it.
  write_split(dir, "train",
              "{\"categories\":[{\"id\":1,\"name\":\"a\"}],\"images\":[{\"id\":1,\"file_name\":\"000001.png\"}],"
              "\"annotations\":[{\"id\":5,\"image_id\":1,\"category_id\":1,\"bbox\":[9,9,20,20]},"
              "{\"id\":6,\"image_id\":1,\"category_id\":1,\"bbox\":[30,30,20,20],"
              "\"segmentation\":[[30,30,50,30,50,50,30,50]]}]}");
  EXPECT_INT(command(&said, "%s --data %s --size 64", tool("doctor"), dir), 1);
  EXPECT(strstr(
      said,
      "train: objects without a mask: 1; trained on for their boxes only\n    first: annotation 5, file 000001.png\n"));
  EXPECT(strstr(said, "no split val to evaluate on"));
  write_split(dir, "val",
              "{\"categories\":[{\"id\":2,\"name\":\"b\"}],\"images\":[{\"id\":1,\"file_name\":\"000001.png\"}],"
              "\"annotations\":[{\"id\":5,\"image_id\":1,\"category_id\":2,\"bbox\":[9,9,20,20]}]}");
  EXPECT_INT(command(&said, "%s --data %s --size 64", tool("doctor"), dir), 1);
  EXPECT(strstr(said, "val: training stops: ") && strstr(said, "instances_val.json: ") &&
         strstr(said, ": 2 b; rename or remove it"));
  write_split(dir, "train",
              "{\"images\":[{\"id\":1,\"file_name\":\"2.png\",\"height\":9,\"width\":9}],\"categories\":[{\"id\":1}],"
              "\"annotations\":[{\"image_id\":1,\"category_id\":1,\"bbox\":[1,1,2,2]}]}");
  EXPECT_INT(command(&said, "%s --data %s", tool("doctor"), dir), 1);
  EXPECT(strstr(said, "train: training stops: ") && strstr(said, "2.png: no such file; 1 of 1 images"));
  EXPECT_INT(command(&said, "%s --data %s --json", tool("doctor"), dir), 1);
  EXPECT(strstr(said, "\"sound\":false,\"train\":{\"split\":\"train\",\"stop\":\""));
  EXPECT_INT(command(&said, "%s --data %s --html %s", tool("doctor"), dir, in_tmp("none.html")), 1);

  write_split(dir, "train", "{\"images\":[{\"id\":1,\"file_name\":\"000001.png\"}],\"categories\":[]}");
  EXPECT_INT(command(&said, "%s --data %s --keep-empty", tool("doctor"), dir), 1);
  EXPECT(strstr(said, "train: training stops: ") &&
         strstr(said, "instances_train.json: no categories to train on; list them in "));
  EXPECT_INT(command(&said, "%s --data %s --keep-empty --eval-every never --out %s/no-category", tool("train"), dir,
                     test_tmp()),
             2);
  if (!EXPECT(strstr(said, "no categories to train on"))) printf("    %s\n", said);

  EXPECT_INT(command(&said, "%s", tool("doctor")), 2);
  EXPECT_INT(command(&said, "%s --data %s --single-file", tool("doctor"), dir), 2);
  EXPECT_INT(command(&said, "%s --data %s --size 16", tool("doctor"), dir), 2);
  EXPECT_INT(command(&said, "%s --data %s --model resnet", tool("doctor"), dir), 2);
}

// Results that did not arrive are no success, whichever program they are of.
TEST_TIER(program_output_to_a_full_disk, 1) {
  char model[512], set[512];
  snprintf(set, sizeof set, "%s", shapes_set());
  if (!EXPECT_INT(train_shapes("", "arrives", "--stop-after 1"), 0)) return;
  snprintf(model, sizeof model, "%s", in_tmp("arrives/checkpoint.safetensors"));
  write_text(in_tmp("none.json"), "[]\n");
  EXPECT_INT(command(NULL, "%s --data %s --model tiny --size 64 --plan >/dev/full", tool("train"), set), 1);
  EXPECT_INT(command(NULL, "%s --data %s --size 64 >/dev/full", tool("doctor"), set), 1);
  EXPECT_INT(command(NULL, "%s %s >/dev/full", tool("inspect"), model), 1);
  EXPECT_INT(command(NULL, "%s >/dev/full", tool("machine")), 1);
  EXPECT_INT(command(NULL, "%s --gt %s/annotations/instances_val.json --dt %s >/dev/full", tool("cocoeval"), set,
                     in_tmp("none.json")),
             1);
}

// An output that is one of the inputs, by whatever name.
TEST_TIER(program_outputs_spare_inputs, 1) {
  char log[512], set[512];
  snprintf(set, sizeof set, "%s", shapes_set());
  snprintf(log, sizeof log, "%s", in_tmp("runs.jsonl"));
  write_text(log, "{\"step\":1,\"kind\":\"train\",\"loss\":2,\"loss_mask\":1}\n");
  CHECK(!command(NULL, "ln -s %s %s && cp %s %s", log, in_tmp("runs.html"), log, in_tmp("runs.before")));
  expect_mistake("--out ", "%s --out %s a=%s", tool("report"), in_tmp("runs.html"), log);
  EXPECT(same_file(log, in_tmp("runs.before")));
  expect_mistake(" is an input of this run and would be overwritten; choose another output file or folder",
                 "%s --data %s --decode=false --html %s/annotations/instances_train.json", tool("doctor"), set, set);
  expect_mistake(" is an input of this run and would be overwritten; choose another output file or folder",
                 "%s --data %s --decode=false --html %s/val/000002.png", tool("doctor"), set, set);
  expect_mistake("train-labels-idx1-ubyte: the page is HTML; give a name that ends in .html",
                 "%s --data %s --decode=false --html %s/train-labels-idx1-ubyte", tool("doctor"), set, set);
}

// Names of categories and files are anybody's: their control characters do not reach the terminal.
TEST_TIER(program_names_are_shown_without_control_characters, 1) {
  const char *said, *dir = in_tmp("escape");
  write_split(dir, "train",
              "{\"categories\":[{\"id\":1,\"name\":\"c\\u001b[2J\"}],\"images\":[{\"id\":1,"
              "\"file_name\":\"x\\u001b[2J\\n.png\",\"height\":64,\"width\":64},{\"id\":2,"
              "\"file_name\":\"000001.png\",\"height\":64,\"width\":64}],\"annotations\":[{\"id\":1,\"image_id\":2,"
              "\"category_id\":1,\"bbox\":[1,1,9,9]}]}");
  EXPECT_INT(command(&said, "%s --data %s --size 64 --keep-empty", tool("doctor"), dir), 1);
  if (!EXPECT(strstr(said, "file x?[2J?.png") && strstr(said, "  c?[2J ") && !strchr(said, '\x1b')))
    fprintf(stderr, "  %s\n", said);
}
