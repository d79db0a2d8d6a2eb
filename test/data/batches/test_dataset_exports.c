// Catches exports of annotation tools, test/exports/, that are read otherwise than their tools meant: images, objects,
// categories, boxes, areas and mask pixels. Most hold four images with a plate (a square) and a wedge (a triangle).
#include <stdlib.h>
#include <sys/stat.h>
#include "base/alloc.h"
#include "data/batches/dataset.h"
#include "test/harness/command.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

typedef struct Export {
  const char *folder, *split;
  int images, objects, maskless;
  bool turned;                // boxes and masks are those of images of 48 x 64 instead of 64 x 48 pixels
  MeasureChoice boxes, areas; // options
  double wedge_area;          // in the file, if it is not the mask's
  const char *note;           // part of a note; NULL: there is none
} Export;

static const Export exports[] = {
    {.folder = "coco-annotations-object"},
    {.folder = "coco-boxes-and-polygons", .maskless = 4, .wedge_area = 540},
    {.folder = "coco-boxes-junk", .boxes = MEASURE_MASK},
    {.folder = "coco-brush-all-iscrowd"},
    {.folder = "coco-brush-some-iscrowd"},
    {.folder = "coco-category-null", .objects = 7},
    {.folder = "coco-exif-label-studio", .turned = true, .note = "although the sizes are those of the files"},
    {.folder = "coco-exif-upright", .turned = true, .note = "sizes are those of upright images"},
    {.folder = "coco-ids-text"},
    {.folder = "coco-infinity", .objects = 7},
    {.folder = "coco-lvis"},
    {.folder = "coco-rle-in-list"},
    {.folder = "coco-seg-flat"},
    {.folder = "coco-seg-pairs"},
    {.folder = "layout-cvat-subsets", .images = 2, .objects = 4},
    {.folder = "layout-cvat-subsets", .split = "val", .images = 2, .objects = 4},
    {.folder = "layout-flat"},
    {.folder = "layout-roboflow",
     .images = 4,
     .objects = 6,
     .wedge_area = 540,
     .note = "the areas are those of the box"},
    {.folder = "layout-roboflow", .split = "val", .images = 3, .objects = 4, .areas = MEASURE_MASK},
};

// Compares one object with the plate (0) or the wedge (1).
static bool object_is_right(const Export *e, const Dataset *d, int image, const Object *o) {
  static const double boxes[2][2][4] = {{{10, 8, 20, 20}, {40, 10, 18, 30}}, {{20, 10, 20, 20}, {8, 40, 30, 18}}};
  static const double area[2] = {400, 249};
  const CocoAnn *a = &d->coco.anns[o->ann];
  const int kind = a->category;
  const double *box = boxes[e->turned][kind], want = kind && e->wedge_area > 0 ? e->wedge_area : area[kind];
  bool ok = EXPECT_INT(a->category, o->label - 1) && EXPECT_NEAR(a->area, want, 0);
  for (int k = 0; k < 4; k++) ok = EXPECT_NEAR(a->bbox[k], box[k], 1) && ok; // Roboflow's are rounded
  if (!coco_ann_has_mask(a, d->coco.images[d->image[image]].h, d->coco.images[d->image[image]].w)) return ok;
  Rle mask = dataset_mask(d, image, o);
  double found[4];
  rle_bbox(&mask, found);
  ok = EXPECT_NEAR((double)rle_area(&mask), area[kind], e->turned ? 12 : 0) && ok; // pixels of slanted edges
  for (int k = 0; k < 4; k++) ok = EXPECT_NEAR(found[k], box[k], 1) && ok;
  rle_free(&mask);
  return ok;
}

static void check_export(const Export *e) {
  const int images = e->images ? e->images : 4, objects = e->objects ? e->objects : 8;
  char *dir = xasprintf("test/exports/%s", e->folder);
  DatasetOptions options = small_options;
  options.keep_empty = true;
  options.boxes = e->boxes;
  options.areas = e->areas;
  Dataset d;
  Err err;
  if (!EXPECT(dataset_open(&d, dir, e->split ? e->split : "train", &options, &err))) {
    printf("  %s: %s\n", dir, err.msg);
    free(dir);
    return;
  }
  bool ok = EXPECT_INT(d.num_images, images) && EXPECT_INT(d.first_object[d.num_images], objects);
  ok = EXPECT_INT(d.coco.num_categories, 2) && EXPECT_INT(d.missing, 0) && ok;
  int maskless = 0, noted = 0;
  for (int i = 0; ok && i < d.num_images; i++) {
    Image im;
    ok = EXPECT(dataset_image(&d, i, &im, &err)) && EXPECT_INT(im.w, e->turned ? 48 : 64);
    image_free(&im);
    for (int o = d.first_object[i]; ok && o < d.first_object[i + 1]; o++) {
      ok = object_is_right(e, &d, i, &d.object[o]);
      maskless += d.coco.anns[d.object[o].ann].type == SEG_NONE;
    }
  }
  ok = EXPECT_INT(maskless, e->maskless) && ok;
  for (int i = 0; i < d.notes.n; i++) noted += e->note && strstr(d.notes.line[i], e->note) != NULL;
  if (!EXPECT_INT(noted, e->note != NULL) || !ok) printf("  %s\n", dir);
  if (ok) EXPECT_STR(d.coco.categories[0].name, "plate");
  dataset_close(&d);
  free(dir);
}

TEST(exports_are_read_in_place) {
  for (int i = 0; i < COUNT(exports); i++) check_export(&exports[i]);
}

TEST(exports_resized_after_annotation_are_named) {
  Dataset d;
  Err err;
  EXPECT(!dataset_open(&d, "test/exports/coco-pictures-resized", "train", &small_options, &err));
  EXPECT(strstr(err.msg, "64 x 48 pixels, but 128 x 96 in ") && strstr(err.msg, "resized after annotation"));
}

// Most images have another size than annotated: the message tells why.
TEST(exports_of_other_sizes_stop) {
  const char *dir = small_set("other-sizes");
  char path[1024];
  // 1.png is 60 x 41, 2.png 60 x 42, 3.png 43 x 60 pixels, w x h
  static const struct {
    const char *images, *says;
  } cases[] = {
      {"{\"id\":1,\"file_name\":\"1.png\",\"height\":60,\"width\":41},{\"id\":2,\"file_name\":\"2.png\",\"height\":60,"
       "\"width\":42},{\"id\":3,\"file_name\":\"3.png\",\"height\":60,\"width\":43}",
       "/1.png: 60 x 41 pixels, but 41 x 60 in %s: width and height are exchanged; correct them in the annotations (2 "
       "of "
       "3 looked at)"},
      {"{\"id\":1,\"file_name\":\"1.png\",\"height\":90,\"width\":60},{\"id\":2,\"file_name\":\"./"
       "1.png\",\"height\":30,"
       "\"width\":90},{\"id\":3,\"file_name\":\"3.png\",\"height\":60,\"width\":43}",
       "/1.png: 60 x 41 pixels, but 60 x 90 in %s: images were stretched to one size after annotation; use the "
       "original "
       "images (2 of 3 looked at)"}};
  snprintf(path, sizeof path, "%s/annotations/instances_train.json", dir);
  for (int i = 0; i < COUNT(cases); i++) {
    char *text = xasprintf("{\"categories\":[{\"id\":1,\"name\":\"a\"}],\"images\":[%s],\"annotations\":[{\"id\":1,"
                           "\"image_id\":3,\"category_id\":1,\"bbox\":[2,2,9,9]}]}",
                           cases[i].images);
    write_text(path, text);
    Dataset d;
    Err err = {0};
    EXPECT(!dataset_open(&d, dir, "train", &small_options, &err));
    char *says = xasprintf(cases[i].says, path);
    if (!EXPECT(strstr(err.msg, says))) printf("  %s\n", err.msg);
    free(says);
    free(text);
  }
}

TEST(exports_with_broken_annotations_stop_when_strict) {
  static const char *const folders[][2] = {{"coco-infinity", "annotation 6: a number is Infinity or NaN"},
                                           {"coco-category-null", "annotation 1: its category is not in the file"}};
  DatasetOptions options = small_options;
  options.strict = true;
  for (int i = 0; i < COUNT(folders); i++) {
    char *dir = xasprintf("test/exports/%s", folders[i][0]);
    Dataset d;
    Err err = {0};
    EXPECT(!dataset_open(&d, dir, "train", &options, &err));
    if (!EXPECT(strstr(err.msg, folders[i][1]))) printf("  %s\n", err.msg);
    free(dir);
  }
}

// Each image is found by another way, unless two images would get one file.
TEST(exports_files_are_found_under_other_names) {
  static const struct {
    const char *name, *file; // NULL: it is missing
  } cases[] = {
      {"exact.png", "exact.png"},
      {"my%20image.png", "my image.png"},
      {"sub\\a.png", "sub/a.png"},
      {"CASE.PNG", "case.png"},
      {"zelle_\\u00fc.png", "zelle_u\xcc\x88.png"},
      {"gone/by/LAST.png", "deep/last.png"},
      {"images/3f2a91bc-upload.png", "upload.png"},
      {"https://host/a/query.png?key=a%2Fb", "query.png"},
      {"3f2a91bc-exact.png", NULL}, // another image has exact.png
      {"other/exact.png", NULL},    // another image has it
      {"x/twice.png", NULL},        // two files
      {"%2", NULL},
  };
  char *dir = xasprintf("%s/other-names", test_tmp()), *json = xasprintf("%s/annotations/instances_train.json", dir);
  const char *output;
  CHECK(!command(&output,
                 "mkdir -p %s/annotations %s/train/sub %s/train/deep %s/train/one %s/train/two && cd %s/train && for f "
                 "in exact.png 'my image.png' sub/a.png case.png zelle_u\xcc\x88.png deep/last.png one/twice.png "
                 "two/twice.png upload.png query.png; do cp \"$OLDPWD/test/exports/layout-flat/p1.png\" \"$f\"; done",
                 dir, dir, dir, dir, dir, dir));
  FILE *f = fopen(json, "w");
  CHECK(f);
  fputs("{\"categories\":[{\"id\":1,\"name\":\"c\"}],\"images\":[", f);
  for (int i = 0; i < COUNT(cases); i++) {
    fprintf(f, "%s{\"id\":%d,\"width\":64,\"height\":48,\"file_name\":\"", i ? "," : "", i + 1);
    for (const char *at = cases[i].name; *at; at++) fprintf(f, *at == '\\' && at[1] != 'u' ? "\\\\" : "%c", *at);
    fputs("\"}", f);
  }
  fputs("],\"annotations\":[", f);
  for (int i = 0; i < COUNT(cases); i++)
    fprintf(f, "%s{\"id\":%d,\"image_id\":%d,\"category_id\":1,\"bbox\":[1,1,9,9]}", i ? "," : "", i + 1, i + 1);
  fputs("]}", f);
  CHECK(!fclose(f));
  Dataset d;
  if (!open_set(&d, dir, &small_options)) return;
  EXPECT_INT(d.missing, 4);
  for (int i = 0; i < COUNT(cases) && EXPECT_INT(d.num_images, COUNT(cases)); i++) {
    char *path = dataset_path(&d, i), *want = xasprintf("%s/train/%s", dir, cases[i].file ? cases[i].file : "");
    if (!EXPECT(d.absent[i] == !cases[i].file && (d.absent[i] || !strcmp(path, want)))) printf("  %s\n", path);
    free(path);
    free(want);
  }
  if (EXPECT_INT(d.notes.n, 1))
    EXPECT(strstr(d.notes.line[0],
                  " percent-encoded: 1, with other slashes or folders: 1, differing in case: 1, "
                  "differing in how letters are composed: 1, found by the last part of the name: 2, found without the "
                  "prefix of an upload: 1; "));
  dataset_close(&d);
  free(dir);
  free(json);
}

TEST(exports_of_little) {
  static const char image[] = "{\"id\":1,\"file_name\":\"p1.png\",\"width\":\"64\",\"height\":\"tall\"}",
                    ann[] = "{\"id\":1,\"image_id\":1,\"category_id\":1,\"bbox\":[1,1,9,9]}",
                    lost[] = "{\"id\":7,\"image_id\":\"p1\",\"category_id\":1,\"bbox\":[1,1,9,9]}";
  static const struct {
    const char *images, *annotations, *says; // NULL: it is read
  } cases[] = {{"", ann, "no images; its list \"images\" is missing or empty"},
               {image, "", "no annotations; its list \"annotations\" is missing or empty"},
               {image, lost, "all annotations (1) have an image_id that no image has, first annotation 7"},
               {image, ann, NULL}}; // a size that is no number is the file's
  char *dir = xasprintf("%s/little", test_tmp()), *json = xasprintf("%s/annotations/instances_train.json", dir);
  CHECK(
      !command(NULL, "mkdir -p %s/annotations %s/train && cp test/exports/layout-flat/p1.png %s/train", dir, dir, dir));
  for (int i = 0; i < COUNT(cases); i++) {
    char *text = xasprintf("{\"categories\":[{\"id\":1,\"name\":\"c\"}],\"images\":[%s],\"annotations\":[%s]}",
                           cases[i].images, cases[i].annotations);
    write_text(json, text);
    Dataset d;
    Err err = {0};
    if (EXPECT(dataset_open(&d, dir, "train", &small_options, &err) == !cases[i].says)) {
      if (!cases[i].says) EXPECT(d.coco.images[0].w == 64 && d.coco.images[0].h == 48);
      if (!cases[i].says) dataset_close(&d);
    }
    if (cases[i].says && !EXPECT(strstr(err.msg, cases[i].says))) printf("  %s\n", err.msg);
    free(text);
  }
  free(dir);
  free(json);
}
