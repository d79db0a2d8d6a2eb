// Catches numbers or images on doctor's page that differ from its report in the terminal.
#include <dirent.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/json.h"
#include "data/survey/checkup.h"
#include "page/doctor_page.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

enum { MOST = 64 };

typedef struct Album { // what the page says of each image
  int images;
  char file[MOST][32], src[MOST][64];
  int objects[MOST], wrong[MOST];
  bool note[MOST], embedded[MOST];
  Image picture[MOST]; // of those that lie in the page
} Album;

typedef struct Page {
  Album album;
  int splits, categories, types, hurts, augmented;
  int64_t objects, sizes, resized, pictured; // sums of: the categories' counts, the histograms, the tallies
  char *command;
} Page;

static int sextet(char c) {
  static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const char *at = c ? strchr(letters, c) : NULL;
  return at ? (int)(at - letters) : -1;
}

// The picture behind a data: address; false for another.
static bool read_picture(const char *src, Image *im) {
  static const char scheme[] = "data:image/jpeg;base64,";
  if (strncmp(src, scheme, sizeof scheme - 1) != 0) return false;
  src += sizeof scheme - 1;
  uint8_t *bytes = xmalloc(strlen(src));
  size_t n = 0;
  uint32_t bits = 0;
  for (int i = 0; sextet(src[i]) >= 0; i++) {
    bits = bits << 6 | (uint32_t)sextet(src[i]);
    if (i % 4) bytes[n++] = (uint8_t)(bits >> (6 - 2 * (i % 4)));
  }
  EXPECT(image_decode(im, bytes, n, "picture", NULL));
  free(bytes);
  return true;
}

// The sum of a list's numbers, or of the last ones of a list's lists; *n: how many there are.
static int64_t sum_list(Json *j, int *n) {
  int64_t sum = 0;
  int count = 0;
  if (json_begin_array(j))
    for (; json_next(j); count++) {
      if (json_peek(j) == JSON_STRING) {
        json_skip(j);
      } else if (json_peek(j) != JSON_ARRAY) {
        sum += json_int(j);
      } else if (json_begin_array(j)) {
        int64_t last = 0;
        while (json_next(j)) last = json_int(j);
        sum += last;
      }
    }
  if (n) *n = count;
  return sum;
}

static void read_image(Json *j, Album *a) {
  int i = a->images++;
  CHECK(i < MOST);
  if (!json_begin_object(j)) return;
  for (const char *key; (key = json_key(j));) {
    if (!strcmp(key, "file")) {
      snprintf(a->file[i], sizeof a->file[i], "%s", json_string(j, NULL));
    } else if (!strcmp(key, "objects")) {
      a->objects[i] = (int)sum_list(j, NULL);
    } else if (!strcmp(key, "wrong")) {
      sum_list(j, &a->wrong[i]);
    } else if (!strcmp(key, "src") && json_peek(j) == JSON_STRING) {
      const char *src = json_string(j, NULL);
      a->embedded[i] = read_picture(src, &a->picture[i]);
      snprintf(a->src[i], sizeof a->src[i], "%s", src);
    } else {
      a->note[i] |= !strcmp(key, "note") && json_peek(j) == JSON_STRING;
      json_skip(j);
    }
  }
}

static void read_split(Json *j, Page *p) {
  p->splits++;
  if (!json_begin_object(j)) return;
  for (const char *key; (key = json_key(j));) {
    if (!strcmp(key, "sizes"))
      p->sizes += sum_list(j, NULL);
    else if (!strcmp(key, "resized"))
      p->resized += sum_list(j, NULL);
    else if (!strcmp(key, "per_image"))
      p->pictured += sum_list(j, NULL);
    else
      json_skip(j);
  }
}

static void read_category(Json *j, Page *p) {
  p->categories++;
  if (!json_begin_object(j)) return;
  for (const char *key; (key = json_key(j));) {
    if (!strcmp(key, "counts") && json_begin_array(j)) {
      while (json_next(j)) {
        const int64_t n = json_int(j);
        p->objects += n > 0 ? n : 0; // -1: a split that does not know it
      }
    } else {
      json_skip(j);
    }
  }
}

// Both pictures of a pair can be read, and differ.
static void read_pair(Json *j, Page *p) {
  Image im[2] = {{0}};
  int n = 0;
  if (!json_begin_object(j)) return;
  for (const char *key; (key = json_key(j));) {
    if ((!strcmp(key, "before") || !strcmp(key, "after")) && json_peek(j) == JSON_STRING)
      n += read_picture(json_string(j, NULL), &im[*key == 'a']);
    else
      json_skip(j);
  }
  const bool same = im[0].h == im[1].h && im[0].w == im[1].w && im[0].rgb && im[1].rgb &&
                    !memcmp(im[0].rgb, im[1].rgb, 3 * (size_t)im[0].h * im[0].w);
  p->augmented += n == 2 && !same;
  for (int i = 0; i < 2; i++) image_free(&im[i]);
}

static void read_facts(Json *j, Page *p) {
  if (!json_begin_object(j)) return;
  for (const char *key; (key = json_key(j));) {
    if (!strcmp(key, "images") && json_begin_array(j)) {
      while (json_next(j)) read_image(j, &p->album);
    } else if (!strcmp(key, "augmented") && json_begin_array(j)) {
      while (json_next(j)) read_pair(j, p);
    } else if (!strcmp(key, "splits") && json_begin_array(j)) {
      while (json_next(j)) read_split(j, p);
    } else if (!strcmp(key, "categories") && json_begin_array(j)) {
      while (json_next(j)) read_category(j, p);
    } else if (!strcmp(key, "defect_types")) {
      sum_list(j, &p->types);
    } else if (!strcmp(key, "hurts")) {
      sum_list(j, &p->hurts);
    } else if (!strcmp(key, "command") && json_peek(j) == JSON_STRING) {
      p->command = xstrdup(json_string(j, NULL));
    } else {
      json_skip(j);
    }
  }
}

// The facts in a page; caller frees.
static char *facts_of(const char *path) {
  static const char mark[] = "id=\"facts\">";
  size_t size;
  char *text = file_read(path, &size, NULL), *begin = text ? strstr(text, mark) : NULL, *facts = NULL;
  if (EXPECT(begin)) {
    begin += sizeof mark - 1;
    char *end = strstr(begin, "</script>");
    EXPECT(end && !memchr(begin, '<', (size_t)(end - begin))); // nothing ends the script early
    facts = xasprintf("%.*s", (int)(end - begin), begin);
  }
  free(text);
  return facts;
}

static void look(Checkup *c, Diagnosis *f, const char *dir) {
  const CheckupOptions options = {.data = dir,
                                  .train_split = "train",
                                  .val_split = "val",
                                  .size = small_options.resize.size,
                                  .max_size = small_options.resize.max_size,
                                  .canvases = small_options.max_canvases,
                                  .decode = true};
  checkup_take(c, &options);
  checkup_diagnosis(f, c, &options);
  f->command = xstrdup("./train </script>");
}

// Writes the page of a folder and reads it back.
static void make_page(Page *p, const char *dir, const DoctorPage *options) {
  *p = (Page){0};
  Checkup c;
  Diagnosis f;
  Err err = {""};
  char *path = xasprintf("%s/a page?.html", test_tmp());
  look(&c, &f, dir);
  if (!EXPECT(doctor_page_write(path, &f, options, &err))) printf("  %s\n", err.msg);
  char *facts = facts_of(path);
  if (facts) {
    Json j;
    json_open(&j, "page", facts, strlen(facts));
    read_facts(&j, p);
    if (!EXPECT(json_done(&j))) printf("  %s\n", j.err.msg);
    json_close(&j);
  }
  EXPECT_INT(p->hurts, (int)f.num_concerns);
  free(facts);
  free(path);
  diagnosis_free(&f);
  checkup_free(&c);
}

static void free_page(Page *p) {
  for (int i = 0; i < p->album.images; i++) image_free(&p->album.picture[i]);
  free(p->command);
}

TEST(doctor_page_has_every_image) {
  Page p;
  make_page(&p, small_set("album"), &(DoctorPage){.images = 100, .single_file = true});
  const Album *a = &p.album;
  EXPECT_INT(p.types, DEFECTS);
  EXPECT_STR(p.command, "./train </script>");
  if (!EXPECT_INT(a->images, IMAGES - 2)) return;
  for (int i = 0, n = 0; i < a->images; i++, n++) {
    while (image_objects(n) == 0) n++;
    char file[16];
    snprintf(file, sizeof file, "%d.png", n);
    EXPECT_STR(a->file[i], file);
    EXPECT_INT(a->objects[i], image_objects(n));
    const Size s = image_size(n);
    const Image *im = &a->picture[i];
    EXPECT(a->embedded[i] && im->h == s.h && im->w == s.w);
  }
  free_page(&p);
}

TEST(doctor_page_shows_augmented_images) {
  for (int asked = 0; asked < 2; asked++) {
    const Augment turned = {.turn = 1, .scale_down = 0.5f, .contrast = 0.5f};
    Page p;
    make_page(&p, small_set("album"),
              &(DoctorPage){.images = 1, .single_file = true, .augment = asked ? &turned : NULL});
    // Each image that can be trained on.
    EXPECT_INT(p.augmented, asked ? IMAGES - 2 : 0);
    free_page(&p);
  }
}

// Every object and every image is in each histogram once.
TEST(doctor_page_counts_everything) {
  Page p;
  int objects = 0;
  for (int i = 0; i < IMAGES; i++) objects += image_objects(i);
  make_page(&p, small_set("album"), &(DoctorPage){.images = 1, .single_file = true});
  EXPECT_INT(p.splits, DIAGNOSIS_SPLITS);
  EXPECT_INT(p.categories, 2);
  EXPECT_INT(p.objects, objects);
  EXPECT_INT(p.sizes, objects);
  EXPECT_INT(p.resized, objects);
  EXPECT_INT(p.pictured, IMAGES); // those without an object, too
  free_page(&p);
}

// Of a few places, half go to what is wrong, the rest round the categories.
TEST(doctor_page_shows_what_is_wrong_first) {
  const char *dir = small_set("album");
  char path[1024];
  snprintf(path, sizeof path, "%s/train/7.png", dir);
  write_text(path, "no image");
  Page p;
  make_page(&p, dir, &(DoctorPage){.images = 3, .single_file = true});
  const Album *a = &p.album;
  int bad = 0, with_picture = 0;
  if (!EXPECT_INT(a->images, 3)) return;
  for (int i = 0; i < a->images; i++) {
    bool is_bad = !strcmp(a->file[i], "7.png");
    bad += is_bad;
    with_picture += a->embedded[i];
    EXPECT(a->note[i] == is_bad && (!is_bad || (a->wrong[i] > 0 && !a->embedded[i])));
  }
  EXPECT(bad == 1 && with_picture == 2);
  free_page(&p);
}

static int files_in(const char *folder) {
  int n = 0;
  DIR *dir = opendir(folder);
  for (struct dirent *e; dir && (e = readdir(dir));) n += e->d_name[0] != '.';
  if (dir) closedir(dir);
  return n;
}

// Pictures in a folder: an earlier page's are removed, other files stay, and a foreign folder is not touched.
TEST(doctor_page_has_a_folder_of_pictures) {
  const char *dir = small_set("album");
  char *folder = xasprintf("%s/a page?-pictures", test_tmp());
  char *own = xasprintf("%s/picture-1.jpg", folder), *mark = xasprintf("%s/doctor.txt", folder);
  Page p;
  make_page(&p, dir, &(DoctorPage){.images = 5});
  EXPECT_INT(p.album.images, 5);
  EXPECT_STR(p.album.src[0], "a%20page%3F-pictures/picture-0001.jpg");
  EXPECT_STR(p.album.src[4], "a%20page%3F-pictures/picture-0005.jpg");
  EXPECT_INT(files_in(folder), 5 + 1);
  free_page(&p);
  write_text(own, "mine");
  make_page(&p, dir, &(DoctorPage){.images = 2});
  EXPECT_INT(files_in(folder), 2 + 2);
  EXPECT(path_is_file(own));
  free_page(&p);

  Checkup c;
  Diagnosis f;
  Err err = {""};
  char *path = xasprintf("%s/a page?.html", test_tmp());
  unlink(mark);
  look(&c, &f, dir);
  EXPECT(!doctor_page_write(path, &f, &(DoctorPage){.images = 2}, &err));
  EXPECT(strstr(err.msg, "-pictures has files that doctor did not write"));
  EXPECT(!doctor_page_write("/dev/null", &f, &(DoctorPage){.images = 2}, &err));
  EXPECT(strstr(err.msg, "add --single-file"));
  EXPECT_INT(files_in(folder), 3);
  write_text(mark, "my doctor's number\n");
  EXPECT(!doctor_page_write(path, &f, &(DoctorPage){.images = 2}, &err));
  EXPECT(strstr(err.msg, "-pictures has files that doctor did not write"));
  EXPECT_INT(file_length(mark), 19);
  diagnosis_free(&f);
  checkup_free(&c);
  free(path);
  free(folder);
  free(own);
  free(mark);
}
