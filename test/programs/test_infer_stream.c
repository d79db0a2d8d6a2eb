// Catches named images, lists, tiles or odd sizes that infer skips or treats differently from a data set.
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "data/coco/coco.h"
#include "data/images/png.h"
#include "test/harness/command.h"
#include "test/harness/infer.h"
#include "test/harness/test.h"

// Lines of a file that contain the text; -1 when it cannot be read.
static int lines_with(const char *path, const char *text) {
  size_t size;
  char *all = file_read(path, &size, NULL);
  if (!all) return -1;
  int n = 0;
  for (const char *at = all; (at = strstr(at, text)); n++) at += strlen(text);
  free(all);
  return n;
}

// A folder is its images in order; a bad one costs itself alone and keeps its place among the ids.
TEST_TIER(infer_of_a_folder, 1) {
  const char *said, *folder = in_tmp("photographs");
  CHECK(!command(NULL, "mkdir -p %s/below %s/empty && cp %s/val/00000[1-4].png %s && cp %s/000001.png %s/below", folder,
                 folder, shapes_set(), folder, folder, folder));
  CHECK(!command(NULL, "cd %s && mv 000002.png b.PNG && echo no image >a.jpg && touch notes.txt", folder));
  EXPECT_INT(command(&said, "%s --format jsonl %s", infer_line("of-a-folder"), folder), 2);
  EXPECT(strstr(said, "a.jpg: cannot read the image: not a JPEG or PNG file") &&
         strstr(said, "\ninfer: 1 of 5 images left out\n"));
  EXPECT(strstr(said, "\nstart-up ") && strstr(said, "\nthe other ") &&
         strstr(said, "\n  without 2 warm-up batches, "));
  const char *lines = in_tmp("of-a-folder/detections.jsonl");
  EXPECT_INT(lines_with(lines, "\n"), 4);
  static const char *const starts[] = {"{\"image_id\":1,\"file_name\":\"", "{\"image_id\":2,\"file_name\":\"",
                                       "{\"image_id\":3,\"file_name\":\"", "{\"image_id\":5,\"file_name\":\""};
  for (int i = 0; i < COUNT(starts); i++) EXPECT_INT(lines_with(lines, starts[i]), 1);
  EXPECT(lines_with(lines, "/b.PNG\"") == 1 && lines_with(lines, "below") == 0);
  EXPECT(is_picture(in_tmp("of-a-folder/b.png")));
  expect_refused(
      ": no .jpg, .jpeg or .png file in this folder; subfolders are not searched, so name them or pass a list: find ",
      infer_weights(), "of-a-folder", "%s/empty", folder);
}

// As a folder of the same images, in the list's order, with pictures that are called by their places.
TEST_TIER(infer_of_a_list, 1) {
  const char *said;
  char *from_folder = xstrdup(in_tmp("not-listed/detections.json"));
  const char *find = "find %s/val -name '*.png' | sort";
  char *list = xasprintf(find, shapes_set());
  EXPECT_INT(command(&said, "%s %s/val", infer_line("not-listed"), shapes_set()), 0);
  EXPECT_INT(command(&said, "%s | (%s --overlays 2 -)", list, infer_line("listed")), 0);
  EXPECT(same_file(in_tmp("listed/detections.json"), from_folder));
  EXPECT(is_picture(in_tmp("listed/000001-000001.png")) && is_picture(in_tmp("listed/000002-000002.png")));
  EXPECT(access(in_tmp("listed/000003-000003.png"), F_OK) != 0);
  EXPECT_INT(command(&said, "(%s) </dev/null", infer_line("listed -")), 2);
  EXPECT(strstr(said, "the list of images on standard input is empty"));
  // What is read is not written over, although nobody knew.
  char *image = xstrdup(in_tmp("listed.png"));
  CHECK(!command(NULL, "cp %s/val/000001.png %s", shapes_set(), image));
  EXPECT_INT(command(&said, "echo %s | (%s --force --json %s -)", image, infer_line("listed"), image), 2);
  EXPECT(strstr(said, "listed.png is an input of this run and would be overwritten") && is_picture(image));
  free(image);
  free(list);
  free(from_folder);
}

// A program that names an image, waits for what was found in it and names the next: neither waits for the other.
TEST_TIER(infer_of_a_list_that_stays_open, 1) {
  const char *said;
  char *names = xstrdup(in_tmp("names")), *lines = xstrdup(in_tmp("lines"));
  CHECK(!mkfifo(names, 0600) && !mkfifo(lines, 0600));
  test_limit(120);
  const int status = command(&said,
                             "(%s - <%s >%s 2>/dev/null) & exec 3>%s 4<%s; for i in 1 2 3; do echo "
                             "%s/val/00000$i.png >&3; read line <&4; echo \"told $line\"; done; exec 3>&-; cat <&4 "
                             ">/dev/null; wait",
                             infer_line("stays-open"), names, lines, names, lines, shapes_set());
  free(names);
  free(lines);
  EXPECT_INT(status, 0);
  for (int i = 1; i <= 3; i++) {
    char line[64];
    snprintf(line, sizeof line, "/val/00000%d.png: ", i);
    EXPECT(strstr(said, line) && strstr(said, "told "));
  }
  EXPECT(results_in(in_tmp("stays-open/detections.json")) >= 0);
}

// Many sizes, one of them too long for the ordinary canvases: what is found does not depend on how many go at a time.
TEST_TIER(infer_of_mixed_sizes_is_the_same_in_batches, 1) {
  const char *said, *folder = in_tmp("mixed");
  char *alone = xstrdup(in_tmp("mixed-1/detections.json"));
  CHECK(dirs_make(folder, NULL));
  for (int i = 0; i < 24; i++) {
    char path[512];
    Err err;
    Image im = image_alloc(24 + 7 * (i % 5), i == 11 ? 400 : 20 + 9 * (i % 7));
    for (int k = 0; k < 3 * im.h * im.w; k++) im.rgb[k] = (uint8_t)(k * 7 + k / (3 * im.w) * 31 * i);
    snprintf(path, sizeof path, "%s/%02d.png", in_tmp("mixed"), i);
    CHECK(png_write(path, &im, PNG_FAST, &err));
    image_free(&im);
  }
  static const int batches[] = {1, 3, 8};
  for (int i = 0; i < COUNT(batches); i++) {
    char out[32];
    snprintf(out, sizeof out, "mixed-%d", batches[i]);
    EXPECT_INT(command(&said, "%s --overlays 0 --max-size 400 --batch %d --threads %d %s", infer_line(out), batches[i],
                       1 + i, in_tmp("mixed")),
               0);
    char *found = xasprintf("%s/%s/detections.json", test_tmp(), out);
    EXPECT(results_in(found) > 0 && same_file(found, alone));
    free(found);
  }
  free(alone);
}

// Every odd photograph is either done or one line that says what is wrong with it.
TEST_TIER(infer_of_odd_photographs, 1) {
  const char *said, *odd = shared_path("odd_images");
  if (!odd) {
    test_skip("../shared/data/odd_images is not there");
    return;
  }
  char *folder = xstrdup(odd), *lines = xstrdup(in_tmp("odd-photographs/detections.jsonl"));
  EXPECT_INT(command(&said, "(%s --overlays 0 --format jsonl --score 0.9 %s 2>%s)", infer_line("odd-photographs"),
                     folder, in_tmp("odd.said")),
             2);
  EXPECT_INT(command(&said, "find %s -iname '*.jpg' -o -iname '*.jpeg' -o -iname '*.png'", folder), 0);
  int there = 0;
  for (const char *at = said; (at = strchr(at, '\n')); at++) there++;
  const int refused = lines_with(in_tmp("odd.said"), ": cannot read the image: ");
  EXPECT(refused > 0 && lines_with(lines, "\n") > 0);
  EXPECT_INT(lines_with(lines, "\n") + refused, there);
  // Upright as its EXIF orientation says; a pixel; 16 bits.
  EXPECT_INT(lines_with(lines, "exif_Landscape_6.jpg\",\"width\":1800,\"height\":1200,"), 1);
  free(folder);
  free(lines);
}

// What is wanted of an image goes for results, label maps and crops alike; --data has the same choice.
TEST_TIER(infer_of_some_classes, 1) {
  const char *said;
  size_t size;
  char *image = xasprintf("%s/val/000001.png", shapes_set()), *out = xstrdup(in_tmp("some"));
  const char *line = infer_line("some");
  expect_refused("\"no-such-class\" is not the name or id of any of the ", infer_weights(), "some",
                 "--classes no-such-class %s", image);
  expect_refused("--labels works on named images only: instead of --data, name the folder with its images",
                 infer_weights(), "some", "--labels x --data %s", shapes_set());
  EXPECT_INT(command(&said, "%s --score 0 --top 3 --labels %s/maps --crops %s/crops %s", line, out, out, image), 0);
  EXPECT(strstr(said, "000001.png: 3 detections, "));
  EXPECT_INT(results_in(in_tmp("some/detections.json")), 3);
  EXPECT(is_picture(in_tmp("some/maps/000001.png")) && path_is_dir(in_tmp("some/crops")));
  EXPECT_INT(command(&said, "%s --score 0 --top 2 --data %s", line, shapes_set()), 0);
  EXPECT_INT(results_in(in_tmp("some/detections.json")), 2 * 6);
  // Of two classes by id and all others there are as many as of all.
  static const char *const chosen[] = {"", "--classes 1,2", "--classes 3,4,5,6"};
  int n[COUNT(chosen)];
  for (int i = 0; i < COUNT(chosen); i++) {
    EXPECT_INT(command(&said, "%s --score 0 %s %s", line, chosen[i], image), 0);
    n[i] = results_in(in_tmp("some/detections.json"));
  }
  EXPECT(n[0] > 0 && n[0] == n[1] + n[2]);
  char *found = file_read(in_tmp("some/detections.json"), &size, NULL);
  EXPECT(found && !strstr(found, "\"category_id\":1,") && !strstr(found, "\"category_id\":2,"));
  free(found);
  free(image);
  free(out);
}

// A tile of a pixel would be half a million runs of the network for a small photograph; what belongs to an option that
// is not there would go unheard.
TEST_TIER(infer_refuses_outputs_that_mean_nothing, 1) {
  expect_refused("--tile 31 is too small", infer_weights(), "tiles-none", "--tile 31 %s/val/000001.png", shapes_set());
  expect_refused("--overlap takes a number from 0 to 0.9,", infer_weights(), "tiles-none",
                 "--tile 64 --overlap 0.91 x.png");
  expect_refused("--label-values needs --labels DIR", infer_weights(), "labels-none", "--label-values classes x.png");
  expect_refused("--crop-alpha needs --crops DIR", infer_weights(), "crops-none", "--crop-alpha x.png");
  static const char *const folders[] = {"--crops", "--labels", "--out"};
  for (int i = 0; i < COUNT(folders); i++) {
    char *image = xasprintf("%s/val/000001.png", shapes_set());
    char *says = xasprintf("%s: cannot create folder /dev/null: a file of that name exists; choose another folder\n",
                           folders[i]);
    expect_refused(says, infer_weights(), "folder-none", "%s /dev/null %s", folders[i], image);
    free(says);
    says = xasprintf("%s: cannot create folder %s: a file of that name exists; choose another folder\n", folders[i],
                     image);
    expect_refused(says, image, "folder-none", "%s %s %s", folders[i], image, image);
    free(says);
    free(image);
  }
}

// A mosaic of four images in tiles of their size, which do not overlap: the best detections are those of the images
// alone, with masks of the mosaic's size.
TEST_TIER(infer_of_a_large_image_in_tiles, 1) {
  enum { SIDE = 64 };
  const char *said;
  Err err;
  Image all = image_alloc(2 * SIDE, 2 * SIDE);
  char *mosaic = xstrdup(in_tmp("mosaic.png")), *out = xstrdup(in_tmp("tiles/detections.json"));
  for (int i = 0; i < 4; i++) {
    char path[512];
    Image part;
    snprintf(path, sizeof path, "%s/val/00000%d.png", shapes_set(), i + 1);
    CHECK(image_load(&part, path, &err) && part.h == SIDE && part.w == SIDE);
    for (int y = 0; y < SIDE; y++)
      memcpy(all.rgb + 3 * ((y + i / 2 * SIDE) * 2 * SIDE + i % 2 * SIDE), part.rgb + 3 * y * SIDE, 3 * SIDE);
    image_free(&part);
  }
  CHECK(png_write(mosaic, &all, PNG_FAST, &err));
  image_free(&all);
  EXPECT_INT(command(&said, "%s --size 64 --tile 64 --overlap 0 --top 5 %s", infer_line("tiles"), mosaic), 0);
  CocoResults whole, parts;
  if (!EXPECT(coco_results_load(&whole, out, NULL, &err))) return;
  EXPECT_INT(whole.n, 5);
  EXPECT_INT(command(&said, "%s --size 64 %s/val/00000[1-4].png", infer_line("tiles"), shapes_set()), 0);
  if (!EXPECT(coco_results_load(&parts, out, NULL, &err))) return;
  for (int i = 0; i < whole.n; i++) {
    const CocoResult *r = &whole.items[i];
    EXPECT(r->rle.h == 2 * SIDE && r->rle.w == 2 * SIDE);
    // The best of an object is one of its image's, to the bit, unless a neighbour has gone into it.
    bool found = false;
    for (int k = 0; k < parts.n; k++) found |= parts.items[k].score == r->score;
    EXPECT(found);
  }
  coco_results_free(&whole);
  coco_results_free(&parts);
  free(mosaic);
  free(out);
}

// A request to stop amidst an image of many tiles costs that image alone; how far it was had been told.
TEST_TIER(infer_in_tiles_stops_when_asked, 1) {
  enum { SIDE = 4096, TILE = 32 };
  const char *said;
  Err err;
  Image large = image_alloc(SIDE, SIDE);
  char *path = xstrdup(in_tmp("many-tiles.png")), *log = xstrdup(in_tmp("many-tiles.said"));
  memset(large.rgb, 100, (size_t)3 * SIDE * SIDE);
  CHECK(png_write(path, &large, PNG_FAST, &err));
  image_free(&large);
  test_limit(200);
  const int status = command(&said,
                             "(%s --overlays 0 --size 32 --tile %d %s/val/000001.png %s 2>%s) & pid=$!; until grep -q "
                             "'^tile [1-9]' %s || ! kill -0 $pid; do sleep 0.1; done; kill -TERM $pid; wait $pid",
                             infer_line("many-tiles"), TILE, shapes_set(), path, log, log);
  EXPECT_INT(status, 1);
  size_t size;
  char *text = file_read(log, &size, &err);
  if (!EXPECT(text && strstr(text, "\nstopped: ") &&
              strstr(text, "detections.json.partial holds the detections of 1 of 2 images\n")))
    printf("    %s\n", text);
  EXPECT(results_in(in_tmp("many-tiles/detections.json.partial")) > 0);
  free(text);
  free(path);
  free(log);
}
