// The album: which images it holds, that its data can be read back, and that nothing in it breaks the page.
#include "base/alloc.h"
#include "base/json.h"
#include "page/album.h"
#include "page/album_page.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

enum { MOST = 64 };

// What the page's data say of each image.
typedef struct Page {
  int images, defects, splits;
  char file[MOST][32];
  int objects[MOST], wrong[MOST];
  bool note[MOST];
  Image picture[MOST];
} Page;

static int sextet(char c) {
  static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const char *at = c ? strchr(letters, c) : NULL;
  return at ? (int)(at - letters) : -1;
}

// The picture behind a data: address.
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
  bool ok = image_decode(im, bytes, n, "picture", NULL);
  free(bytes);
  return ok;
}

static int count_list(Json *j, int pair) { // of numbers, or of pairs of which the second counts
  int sum = 0;
  if (json_begin_array(j))
    while (json_next(j)) {
      if (!pair) {
        json_skip(j);
        sum++;
      } else if (json_begin_array(j)) {
        for (int i = 0; json_next(j); i++) {
          int number = (int)json_int(j);
          if (i) sum += number;
        }
      }
    }
  return sum;
}

static void read_image(Json *j, Page *p) {
  int i = p->images++;
  CHECK(i < MOST);
  if (json_begin_object(j))
    for (const char *key; (key = json_key(j));) {
      if (!strcmp(key, "file"))
        snprintf(p->file[i], sizeof p->file[i], "%s", json_string(j, NULL));
      else if (!strcmp(key, "objects"))
        p->objects[i] = count_list(j, true);
      else if (!strcmp(key, "wrong"))
        p->wrong[i] = count_list(j, false);
      else if (!strcmp(key, "src") && json_peek(j) == JSON_STRING)
        EXPECT(read_picture(json_string(j, NULL), &p->picture[i]));
      else if (!strcmp(key, "note")) {
        p->note[i] = json_peek(j) == JSON_STRING;
        json_skip(j);
      } else
        json_skip(j);
    }
}

// Writes the album of a folder's training split and reads its data back.
static void make_page(Page *p, const char *dir, int max) {
  *p = (Page){0};
  Split train = {.name = "train"}, none = {0};
  Err err;
  char *path = xasprintf("%s/album.html", test_tmp());
  train.open = dataset_open(&train.data, dir, "train", &small_options, &err);
  if (!EXPECT(train.open)) return;
  survey_take(&train.survey, &train.data);
  defects_find(&train.defects, &train.data, true, NULL);
  if (!EXPECT(album_write(path, "</script>", (const Split *[]){&train, &none}, 2, max, &err))) printf("%s\n", err.msg);
  size_t size;
  char *text = file_read(path, &size, &err), *begin = text ? strstr(text, "const album = ") : NULL;
  if (EXPECT(begin)) {
    begin += strlen("const album = ");
    char *end = strstr(begin, ";\nconst $");
    EXPECT(end && !memchr(begin, '<', (size_t)(end - begin))); // nothing can end the script early
    Json j;
    json_open(&j, "album", begin, (size_t)(end - begin));
    if (json_begin_object(&j))
      for (const char *key; (key = json_key(&j));) {
        if (!strcmp(key, "images") && json_begin_array(&j)) {
          while (json_next(&j)) read_image(&j, p);
        } else if (!strcmp(key, "title")) {
          EXPECT_STR(json_string(&j, NULL), "</script>");
        } else if (!strcmp(key, "defects")) {
          p->defects += count_list(&j, false);
        } else {
          json_skip(&j);
        }
      }
    if (!EXPECT(json_done(&j))) printf("  %s\n", j.err.msg);
    json_close(&j);
  }
  free(text);
  free(path);
  defects_free(&train.defects, &train.data);
  survey_free(&train.survey);
  dataset_close(&train.data);
}

static void free_page(Page *p) {
  for (int i = 0; i < p->images; i++) image_free(&p->picture[i]);
}

// The page loads nothing: no address but those of the pictures, which are data.
TEST(album_page_asks_for_nothing) {
  static const char *const addresses[] = {"http", "//", "url(", "href", "import", "fetch"};
  for (int i = 0; i < COUNT(addresses); i++)
    EXPECT(!strstr(album_head, addresses[i]) && !strstr(album_tail, addresses[i]));
}

TEST(album_holds_every_image) {
  Page p;
  make_page(&p, small_set("album"), 100);
  EXPECT_INT(p.defects, DEFECTS);
  if (!EXPECT_INT(p.images, IMAGES - 2)) return;
  for (int i = 0, n = 0; i < p.images; i++, n++) {
    while (image_objects(n) == 0) n++;
    char file[16];
    snprintf(file, sizeof file, "%d.png", n);
    EXPECT_STR(p.file[i], file);
    EXPECT_INT(p.objects[i], image_objects(n));
    // Small images are drawn larger, by the same whole factor both ways.
    const Size s = image_size(n);
    EXPECT(p.picture[i].h >= 300 && p.picture[i].h % s.h == 0 && p.picture[i].h * s.w == p.picture[i].w * s.h);
  }
  free_page(&p);
}

// Of a few places, half go to what is wrong, the rest round the categories.
TEST(album_shows_what_is_wrong_first) {
  const char *dir = small_set("album");
  char path[1024];
  snprintf(path, sizeof path, "%s/train/7.png", dir);
  write_text(path, "no image");
  Page p;
  make_page(&p, dir, 3);
  int bad = 0, with_picture = 0;
  if (!EXPECT_INT(p.images, 3)) return;
  for (int i = 0; i < p.images; i++) {
    bool is_bad = !strcmp(p.file[i], "7.png");
    bad += is_bad;
    with_picture += p.picture[i].rgb != NULL;
    EXPECT(p.note[i] == is_bad && (!is_bad || (p.wrong[i] > 0 && !p.picture[i].rgb)));
  }
  EXPECT(bad == 1 && with_picture == 2);
  free_page(&p);
}
