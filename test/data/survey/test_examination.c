// Catches defects of a data set that train and infer do not report, that their list lacks, or that --strict lets pass.
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/file.h"
#include "data/survey/examination.h"
#include "data/survey/shared_files.h"
#include "test/harness/child.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

#define IMAGES_OF(w1)                                                                                                  \
  "{\"categories\":[{\"id\":1,\"name\":\"a\"}],\"images\":[{\"id\":1,\"file_name\":\"1.png\",\"height\":41,"           \
  "\"width\":" w1                                                                                                      \
  "},{\"id\":2,\"file_name\":\"2.png\",\"height\":42,\"width\":60},{\"id\":3,\"file_name\":\"no.png\",\"height\":42,"  \
  "\"width\":60}],\"annotations\":["
#define ANN(id, image, box)                                                                                            \
  "{\"id\":" #id ",\"image_id\":" #image ",\"category_id\":1,\"bbox\":" box                                            \
  ",\"segmentation\":[[20,10,40,10,40,30,20,30]]}"
#define FINE "[20,10,20,20]"

static const char *set_of(const char *name, const char *text) {
  const char *dir = small_set(name);
  char path[1024];
  snprintf(path, sizeof path, "%s/annotations/instances_train.json", dir);
  write_text(path, text);
  return dir;
}

static char *printed(const Examination *e) {
  char *text;
  size_t size;
  FILE *f = open_memstream(&text, &size);
  CHECK(f);
  examination_print(e, f);
  CHECK(!fclose(f));
  return text;
}

TEST(examination_tells_and_lists) {
  Dataset d;
  Examination e;
  Err err;
  // Annotation 5 is negative, 6 is 7's box read as corners, 8 is 4 again; image 1 is 60 wide in truth, 3 is not there.
  if (!open_set(&d,
                set_of("examined", IMAGES_OF("59") ANN(4, 2, FINE) "," ANN(5, 2, "[20,10,-20,-20]") "," ANN(
                                       6, 2, "[20,10,40,30]") "," ANN(8, 2, FINE) "," ANN(9, 99, FINE) "]}"),
                &(DatasetOptions){.resize = small_options.resize, .max_canvases = 2, .keep_empty = true}))
    return;
  examination_take(&e, "val", true, &d, NULL);
  char *text = printed(&e);
  static const char *const lines[] = {
      "val: annotations with an unknown image id: 1; left out; first: annotation 9\n",
      ("val: boxes with no area inside their image: 1; scored as objects that no box can match; "
       "first: annotation 5, file 2.png\n"),
      ("val: boxes that do not match their masks: 1; both are used unchanged; first: annotation 6, file 2.png; "
       "most of these boxes match their masks when read as x1 y1 x2 y2; COCO boxes are x y width height; "
       "--boxes mask takes boxes from the masks instead\n"),
      ("val: objects that are annotated twice: 1; all are scored, but a detection matches only one; "
       "first: annotation 8, file 2.png\n"),
      "val: missing image files: 1; left out, with their objects; first: image 3, file no.png\n",
      "1.png: the image has 60 x 41 pixels, but 59 x 41 in "};
  for (int i = 0; i < COUNT(lines); i++)
    if (!EXPECT(strstr(text, lines[i]))) printf("  no %s  in %s", lines[i], text);
  free(text);
  EXPECT(!examination_passes(&e, &err) &&
         strstr(err.msg, "; 6 types of defects in total; correct the file, or leave out "
                         "--strict"));
  EXPECT_INT(dataset_bad_images(&d), 1); // it is known, and nobody will say so again

  char *path = xasprintf("%s/examined.tsv", test_tmp());
  EXPECT(examination_write(&e, 1, path, &err));
  bad_images_list_in(d.bad, "val", path);
  bad_images_add(d.bad, &d.coco.images[1], NULL, "a\tb\nc");
  char *list = file_read(path, &(size_t){0}, NULL);
  static const char *const rows[] = {"split\tdefect\tof\tid\tfile\treason\n",
                                     "val\tno-image\tannotation\t9\t\tthe first of 1\n",
                                     "val\tbox-empty\tannotation\t5\t2.png\t\n",
                                     "val\tbox-apart\tannotation\t6\t2.png\t\n",
                                     "val\ttwice\tannotation\t8\t2.png\t\n",
                                     "val\tmissing\timage\t3\tno.png\t\n",
                                     "val\tfile\timage\t1\t1.png\t",
                                     "val\tfile\timage\t2\t2.png\ta b c\n"};
  for (int i = 0; i < COUNT(rows); i++)
    if (!EXPECT(list && strstr(list, rows[i]))) printf("  no %s  in %s", rows[i], list ? list : "nothing");
  free(list);
  examination_free(&e);
  dataset_close(&d);

  // Of a sound set there is no list, also where one was.
  if (!open_set(&d, set_of("examined", IMAGES_OF("60") ANN(4, 2, FINE) "]}"), &small_options)) return;
  examination_take(&e, "train", false, &d, NULL);
  text = printed(&e);
  EXPECT(!*text && examination_passes(&e, &err) && path_is_file(path));
  examination_list(&e, 1, path);
  EXPECT(!path_is_file(path));
  free(text);
  free(path);
  examination_free(&e);
  dataset_close(&d);
}

// Files are the same whatever their names; of those of one length only equal ones are.
TEST(examination_tells_images_of_both_splits) {
  const char *dir = small_set("both-splits");
  char command[2048], path[1024];
  snprintf(command, sizeof command,
           "cd %s && mkdir val && cp train/3.png val/x.png && cp train/5.png val/y.png && cp train/6.png val/z.png && "
           "printf X | dd of=val/y.png bs=1 seek=60 conv=notrunc 2>dd",
           dir);
  CHECK(system(command) == 0);
  snprintf(path, sizeof path, "%s/annotations/instances_val.json", dir);
  Dataset train, val;
  Examination e;
  Err err;
  if (!open_set(&train, dir, &small_options)) return;
  char text[1024];
  int used = snprintf(text, sizeof text, "{\"categories\":[],\"annotations\":[],\"images\":[");
  for (int i = 0; i < 3; i++)
    used += snprintf(text + used, sizeof text - (size_t)used,
                     "%s{\"id\":%d,\"file_name\":\"%c.png\",\"height\":%d,\"width\":%d}", i ? "," : "", i + 1, 'x' + i,
                     image_size(i ? i + 4 : 3).h, image_size(i ? i + 4 : 3).w);
  snprintf(text + used, sizeof text - (size_t)used, "]}");
  write_text(path, text);
  DatasetOptions options = small_options;
  options.keep_empty = true;
  if (!EXPECT(dataset_open(&val, dir, "val", &options, &err))) return;
  examination_take(&e, "val", true, &val, &train);
  char *said = printed(&e);
  EXPECT_STR(said, "val: image files that are also in the training split: 2; scored too, which makes the scores too "
                   "high; first: image 1, file x.png\n");
  EXPECT(e.defects.of_image[0] && !e.defects.of_image[1] && e.defects.of_image[2]);
  free(said);
  examination_free(&e);
  dataset_close(&train);
  dataset_close(&val);
}

// Files whose folders are gone may lead to others of the same names.
TEST(examination_refuses_training_images_in_place_of_others) {
  const char *dir = small_set("by-last-part");
  char path[1024], text[1024];
  snprintf(path, sizeof path, "%s/annotations/instances_val.json", dir);
  snprintf(
      text, sizeof text,
      "{\"categories\":[],\"annotations\":[],\"images\":[{\"id\":1,\"file_name\":\"elsewhere/3.png\",\"height\":%d,"
      "\"width\":%d}]}",
      image_size(3).h, image_size(3).w);
  write_text(path, text);
  Dataset train, val;
  Err err;
  DatasetOptions options = small_options;
  options.keep_empty = true;
  if (!open_set(&train, dir, &small_options) || !EXPECT(dataset_open(&val, dir, "val", &options, &err))) return;
  EXPECT(!shared_files_are_named(&val, &train, &err));
  EXPECT(strstr(err.msg, "in files that are trained on: 1 of 1; \"elsewhere/3.png\" would be ") &&
         strstr(err.msg, "train/3.png; name the folder of the images by --val-json "));
  EXPECT(shared_files_are_named(&train, &val, &err));
  dataset_close(&val);
  options.json = path; // whoever names the folder means it
  char *images = xasprintf("%s/train", dir);
  options.images = images;
  if (EXPECT(dataset_open(&val, dir, "val", &options, &err))) {
    EXPECT(val.num_images == 1 && shared_files_are_named(&val, &train, &err));
    dataset_close(&val);
  }
  dataset_close(&train);
  free(images);
  options.json = options.images = NULL;
  // With a folder of its own, the split has no images in another's.
  snprintf(path, sizeof path, "%s/val", dir);
  CHECK(dirs_make(path, &err));
  EXPECT(!dataset_open(&val, dir, "val", &options, &err));
  EXPECT(strstr(err.msg, "1 of 1 images of ") &&
         strstr(err.msg, "/train/3.png is not taken for it: it is another split's"));
}
