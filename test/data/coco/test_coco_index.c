// Catches an annotation index that is stale or damaged and used nevertheless.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/digest.h"
#include "data/coco/coco_index.h"
#include "data/coco/coco_index_file.h"
#include "test/harness/command.h"
#include "test/harness/fixtures.h"
#include "test/harness/test.h"

// A file that has just changed gets no index; see coco_index.h.
static void settle(void) { nanosleep(&(struct timespec){.tv_nsec = 120000000}, NULL); }

static void write_text(const char *path, const char *text) {
  FILE *f = fopen(path, "wb");
  CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

// A fresh folder for a document and its index.
typedef struct IndexFolder {
  char *folder, *json;
} IndexFolder;

static IndexFolder index_folder_open(const char *text) {
  static int count;
  IndexFolder p = {.folder = xasprintf("%s/index%d", test_tmp(), count++)};
  CHECK(dirs_make(p.folder, NULL));
  p.json = xasprintf("%s/doc.json", p.folder);
  write_text(p.json, text);
  settle();
  return p;
}

static void index_folder_close(IndexFolder *p) {
  free(p->folder);
  free(p->json);
}

// The path of the one index in a folder, or NULL; nothing else of ours may be there. Caller frees.
static char *find_index(const char *folder) {
  char *found = NULL;
  DIR *dir = opendir(folder);
  CHECK(dir);
  for (struct dirent *entry; (entry = readdir(dir));) {
    if (strncmp(entry->d_name, "index-", 6) != 0) continue;
    EXPECT(!found && !strstr(entry->d_name, ".tmp"));
    free(found);
    found = xasprintf("%s/%s", folder, entry->d_name);
  }
  closedir(dir);
  return found;
}

static bool same_bytes(const void *a, const void *b, size_t bytes) { return bytes == 0 || memcmp(a, b, bytes) == 0; }

static bool same_name(const char *a, const char *b) { return a && b ? strcmp(a, b) == 0 : a == b; }

static bool same_ann(const CocoAnn *a, const CocoAnn *b) {
  return a->id == b->id && a->image_id == b->image_id && a->category_id == b->category_id &&
         a->category == b->category && same_bytes(a->bbox, b->bbox, sizeof a->bbox) &&
         same_bytes(&a->area, &b->area, sizeof a->area) && a->crowd == b->crowd && a->has_bbox == b->has_bbox &&
         a->type == b->type && same_bytes(a->extent, b->extent, sizeof a->extent) && a->parts == b->parts &&
         a->first_part == b->first_part && a->rle_h == b->rle_h && a->rle_w == b->rle_w && a->num_runs == b->num_runs &&
         a->first_run == b->first_run;
}

static bool same_coco(const Coco *a, const Coco *b) {
  if (strcmp(a->path, b->path) != 0 || a->num_images != b->num_images || a->num_categories != b->num_categories ||
      a->num_anns != b->num_anns || a->num_parts != b->num_parts || a->num_xy != b->num_xy ||
      a->num_runs != b->num_runs)
    return false;
  bool same = a->unknown_image == b->unknown_image && a->unknown_category == b->unknown_category &&
              a->no_segmentation == b->no_segmentation && a->bad_segmentation == b->bad_segmentation &&
              a->duplicate_images == b->duplicate_images && a->duplicate_categories == b->duplicate_categories &&
              same_bytes(a->part_points, b->part_points, (size_t)a->num_parts * sizeof *a->part_points) &&
              same_bytes(a->part_first, b->part_first, (size_t)a->num_parts * sizeof *a->part_first) &&
              same_bytes(a->xy, b->xy, a->num_xy * sizeof *a->xy) &&
              same_bytes(a->runs, b->runs, a->num_runs * sizeof *a->runs);
  for (int i = 0; i < a->num_images; i++) {
    const CocoImage *p = &a->images[i], *q = &b->images[i];
    same &= p->id == q->id && same_name(p->file_name, q->file_name) && p->h == q->h && p->w == q->w;
    same &= p->first_ann == q->first_ann && p->anns == q->anns;
  }
  for (int i = 0; i < a->num_categories; i++)
    same &= a->categories[i].id == b->categories[i].id && same_name(a->categories[i].name, b->categories[i].name);
  for (int i = 0; i < a->num_anns; i++) same &= same_ann(&a->anns[i], &b->anns[i]);
  return same;
}

typedef enum Way { PARSED, PARSED_AND_KEPT, FROM_INDEX } Way;

// Opens through the index and compares with the plain parse; says which way the data came.
static Way open_and_compare(const char *json, const char *folder) {
  Coco direct, c;
  Err err;
  CHECK(coco_load(&direct, json, &err));
  CHECK(coco_open(&c, json, folder, &err));
  EXPECT(same_coco(&direct, &c));
  bool index = strncmp(c.origin, "from ", strlen("from ")) == 0, kept = strstr(c.origin, "cached in") != NULL;
  EXPECT((c.map != NULL) == (index || kept));
  coco_free(&direct);
  coco_free(&c);
  return index ? FROM_INDEX : kept ? PARSED_AND_KEPT : PARSED;
}

static const char document[] =
    "{\"images\":[{\"id\":3,\"file_name\":\"\",\"height\":4,\"width\":5},{\"id\":1,\"height\":2,\"width\":3},"
    "{\"id\":2,\"file_name\":\"a/b \\u00e9.jpg\"}],\"categories\":[{\"id\":8,\"name\":\"cat\"},{\"id\":7}],"
    "\"annotations\":[{\"image_id\":3,\"category_id\":8,\"bbox\":[1,2,3.5,4],\"area\":6.125,"
    "\"segmentation\":[[0,0,2.25,0,2,2],[1,1,2,1,1,2]]},{\"image_id\":1,\"category_id\":9,\"iscrowd\":1,"
    "\"segmentation\":{\"counts\":[0,6],\"size\":[2,3]}},{\"image_id\":9,\"category_id\":8},"
    "{\"image_id\":1,\"category_id\":7,\"segmentation\":{\"counts\":\"06\",\"size\":[2,3]}}]}";

TEST(coco_index_equals_parsing) {
  static const char *const documents[] = {document, "{\"images\":[]}", "{\"images\":[{\"id\":1}]}",
                                          "{\"images\":[],\"categories\":[{\"id\":1,\"name\":\"x\"}]}"};
  for (int i = 0; i < COUNT(documents); i++) {
    IndexFolder p = index_folder_open(documents[i]);
    EXPECT_INT(open_and_compare(p.json, p.folder), PARSED_AND_KEPT);
    EXPECT_INT(open_and_compare(p.json, p.folder), FROM_INDEX);
    index_folder_close(&p);
  }
}

static void compare_real(const char *relative) {
  const char *path = shared_path(relative);
  if (!path) {
    test_skip("no shared data sets");
    return;
  }
  char *json = xstrdup(path);
  IndexFolder p = index_folder_open("");
  EXPECT_INT(open_and_compare(json, p.folder), PARSED_AND_KEPT);
  EXPECT_INT(open_and_compare(json, p.folder), FROM_INDEX);
  index_folder_close(&p);
  free(json);
}

TEST(coco_index_of_real_data) {
  compare_real("coco/annotations/instances_train2017.json");
  compare_real("nuclei/annotations/instances_val.json");
}

typedef struct Compared {
  IndexFolder index_folder;
  int n;
} Compared;

static void compare_fixture(const char *path, void *context) {
  Compared *compared = context;
  Coco c;
  if (!coco_load(&c, path, NULL)) return;
  coco_free(&c);
  EXPECT_INT(open_and_compare(path, compared->index_folder.folder), PARSED_AND_KEPT);
  EXPECT_INT(open_and_compare(path, compared->index_folder.folder), FROM_INDEX);
  compared->n++;
}

// Every fixture of the evaluator that is a data set.
TEST(coco_index_of_every_fixture) {
  Compared compared = {.index_folder = index_folder_open("")};
  if (evaluator_fixtures(compare_fixture, &compared)) EXPECT(compared.n > 20);
  index_folder_close(&compared.index_folder);
}

// The same number of bytes, and the time of the last write put back, as a careless copy or a careful liar would.
TEST(coco_index_of_a_changed_file_is_made_anew) {
  IndexFolder p = index_folder_open(document);
  EXPECT_INT(open_and_compare(p.json, p.folder), PARSED_AND_KEPT);
  struct stat before;
  CHECK(stat(p.json, &before) == 0);
  char *changed = xstrdup(document);
  strstr(changed, "cat")[0] = 'b';
  write_text(p.json, changed);
  CHECK(utimensat(AT_FDCWD, p.json, (struct timespec[]){before.st_atim, before.st_mtim}, 0) == 0);
  EXPECT_INT(open_and_compare(p.json, p.folder), PARSED); // it may change again before the clock ticks
  settle();
  EXPECT_INT(open_and_compare(p.json, p.folder), PARSED_AND_KEPT);
  CHECK(utimensat(AT_FDCWD, p.json, NULL, 0) == 0); // touched
  settle();
  EXPECT_INT(open_and_compare(p.json, p.folder), PARSED_AND_KEPT);
  EXPECT_INT(open_and_compare(p.json, p.folder), FROM_INDEX);
  char *aside = xasprintf("%s/aside.json", p.folder); // replaced by a rename, as editors do
  write_text(aside, document);
  CHECK(rename(aside, p.json) == 0);
  settle();
  EXPECT_INT(open_and_compare(p.json, p.folder), PARSED_AND_KEPT);
  free(aside);
  free(changed);
  index_folder_close(&p);
}

static void write_bytes(const char *path, const char *bytes, size_t size) {
  FILE *f = fopen(path, "wb");
  CHECK(f && fwrite(bytes, 1, size, f) == size && fclose(f) == 0);
}

TEST(coco_index_that_is_not_whole_is_made_anew) {
  IndexFolder p = index_folder_open(document);
  EXPECT_INT(open_and_compare(p.json, p.folder), PARSED_AND_KEPT);
  char *index = find_index(p.folder);
  size_t size;
  char *bytes = index ? file_read(index, &size, NULL) : NULL;
  if (!EXPECT(bytes != NULL)) return;
  for (size_t cut = 0; cut < size; cut = cut < 1024 ? cut + 37 : cut + size / 16) {
    write_bytes(index, bytes, cut);
    EXPECT_INT(open_and_compare(p.json, p.folder), PARSED_AND_KEPT);
  }
  int nonzero = 0;
  for (size_t i = 0; i < size; i++) { // zeros may be padding, which holds nothing
    if (bytes[i] == 0 || nonzero++ % 5) continue;
    bytes[i] ^= 64;
    write_bytes(index, bytes, size);
    EXPECT_INT(open_and_compare(p.json, p.folder), PARSED_AND_KEPT);
    bytes[i] ^= 64;
  }
  EXPECT(nonzero > 100);
  write_bytes(index, bytes, size);
  EXPECT_INT(open_and_compare(p.json, p.folder), FROM_INDEX);
  free(bytes);
  free(index);
  index_folder_close(&p);
}

// A field of a kept index, set to what no parse would have left there, with sums that fit.
typedef struct Forgery {
  IndexArrayId array; // INDEX_ARRAYS: in the header
  size_t at, size;    // in its first item
  int64_t value;
} Forgery;

#define IN_HEADER(member, value)                                                                                       \
  { INDEX_ARRAYS, offsetof(IndexHeader, member), sizeof((IndexHeader *)0)->member, value }
#define IN(array, type, member, value)                                                                                 \
  { array, offsetof(type, member), sizeof((type *)0)->member, value }

static void seal(char *bytes) {
  IndexHeader h;
  memcpy(&h, bytes, sizeof h);
  for (int i = 0; i < INDEX_ARRAYS; i++)
    if (h.array[i].at < 1 << 20 && h.array[i].bytes < 1 << 16)
      h.array[i].digest = digest_all(bytes + h.array[i].at, h.array[i].bytes);
  h.digest = digest_all(&h, offsetof(IndexHeader, digest));
  memcpy(bytes, &h, sizeof h);
}

TEST(coco_index_that_is_forged_is_made_anew) {
  static const Forgery forged[] = {
      IN_HEADER(array[INDEX_XY].at, -(1 << 16)),
      IN_HEADER(array[INDEX_XY].bytes, -8),
      IN_HEADER(array[INDEX_ANNS].at, 0),
      IN_HEADER(coco.num_images, -1),
      IN_HEADER(coco.num_anns, 2),
      IN_HEADER(coco.num_xy, (int64_t)1 << 61 | 12),
      IN_HEADER(coco.own_ids, 7),
      IN_HEADER(coco.duplicate_images, -5),
      IN(INDEX_IMAGES, CocoImage, file_name, 0x4141414141),
      IN(INDEX_IMAGES, CocoImage, first_ann, -1),
      IN(INDEX_IMAGES, CocoImage, anns, 1 << 30),
      IN(INDEX_IMAGES, CocoImage, h, -1),
      IN(INDEX_IMAGES, CocoImage, id, 77),
      IN(INDEX_CATEGORIES, CocoCategory, name, 0),
      IN(INDEX_CATEGORIES, CocoCategory, name, 2),
      IN(INDEX_ANNS, CocoAnn, category, 2),
      IN(INDEX_ANNS, CocoAnn, category, -2),
      IN(INDEX_ANNS, CocoAnn, type, 3),
      IN(INDEX_ANNS, CocoAnn, form, -1),
      IN(INDEX_ANNS, CocoAnn, crowd, 2),
      IN(INDEX_ANNS, CocoAnn, by, 3),
      IN(INDEX_ANNS, CocoAnn, image_id, 2),
      IN(INDEX_ANNS, CocoAnn, num_runs, 1 << 30),
      IN(INDEX_ANNS, CocoAnn, first_run, (int64_t)1 << 62),
      IN(INDEX_ANNS, CocoAnn, rle_h, 1 << 30),
      IN(INDEX_ANNS, CocoAnn, bbox[0], 0x7ff0000000000000),
      IN(INDEX_ANNS, CocoAnn, extent[2], INT32_MAX),
      IN(INDEX_ANNS, CocoAnn, first_part, -1),
      IN(INDEX_ANNS, CocoAnn, parts, 1 << 30),
      {INDEX_PART_POINTS, 0, 4, 1 << 30},
      {INDEX_PART_FIRST, 0, 8, (int64_t)1 << 40},
      {INDEX_XY, 0, 8, 0x7ff8000000000000},
      {INDEX_RUNS, 0, 4, 7},
      {INDEX_NAMES, 0, 1, 0xff},
  };
  IndexFolder p = index_folder_open(document);
  EXPECT_INT(open_and_compare(p.json, p.folder), PARSED_AND_KEPT);
  char *index = find_index(p.folder);
  size_t size;
  char *bytes = index ? file_read(index, &size, NULL) : NULL;
  if (!EXPECT(bytes != NULL)) return;
  IndexHeader h;
  memcpy(&h, bytes, sizeof h);
  for (int i = 0; i < COUNT(forged); i++) {
    const Forgery *f = &forged[i];
    char *copy = memcpy(xmalloc(size), bytes, size);
    memcpy(copy + (f->array == INDEX_ARRAYS ? 0 : h.array[f->array].at) + f->at, &f->value, f->size);
    seal(copy);
    write_bytes(index, copy, size);
    if (!EXPECT_INT(open_and_compare(p.json, p.folder), PARSED_AND_KEPT)) fprintf(stderr, "    forgery %d\n", i);
    free(copy);
  }
  write_bytes(index, bytes, size); // and these bytes are good
  EXPECT_INT(open_and_compare(p.json, p.folder), FROM_INDEX);
  free(bytes);
  free(index);
  index_folder_close(&p);
}

// Nor is one that others may have written, or that a link or a pipe leads to; where a link leads stays as it is.
TEST(coco_index_of_others_is_made_anew) {
  IndexFolder p = index_folder_open(document);
  EXPECT_INT(open_and_compare(p.json, p.folder), PARSED_AND_KEPT);
  char *index = find_index(p.folder), *other = xasprintf("%s/other", p.folder);
  CHECK(index && !chmod(index, 0666));
  EXPECT_INT(open_and_compare(p.json, p.folder), PARSED_AND_KEPT);
  EXPECT_INT(open_and_compare(p.json, p.folder), FROM_INDEX);
  if (geteuid() == 0 && chown(index, 65534, 65534) == 0)
    EXPECT_INT(open_and_compare(p.json, p.folder), PARSED_AND_KEPT);
  CHECK(!rename(index, other) && !symlink(other, index));
  size_t before = (size_t)file_length(other);
  EXPECT_INT(open_and_compare(p.json, p.folder), PARSED_AND_KEPT);
  EXPECT_INT(file_length(other), (long long)before);
  CHECK(!unlink(index) && !mkfifo(index, 0600));
  EXPECT_INT(open_and_compare(p.json, p.folder), PARSED_AND_KEPT);
  free(other);
  free(index);
  index_folder_close(&p);
}

TEST(coco_index_does_without_where_none_can_be_kept) {
  IndexFolder p = index_folder_open(document);
  char *nowhere = xasprintf("%s/doc.json", p.folder); // a file, no folder: not even root can write below it
  Coco c;
  Err err;
  for (int i = 0; i < 2; i++) {
    CHECK(coco_open(&c, p.json, nowhere, &err));
    EXPECT_INT(c.num_anns, 3);
    EXPECT(strstr(c.origin, "parsed; cannot write ") && strstr(c.origin, "Not a directory"));
    coco_free(&c);
  }
  CHECK(coco_open(&c, p.json, NULL, &err));
  EXPECT(!c.origin && !c.map && c.num_anns == 3);
  coco_free(&c);
  free(nowhere);
  index_folder_close(&p);
}

TEST(coco_index_leaves_mistakes_their_message) {
  IndexFolder p = index_folder_open("{\"images\":[{\"id\":1}],\n \"annotations\":[{\"image_id\":x}]}");
  Coco c;
  Err direct, err;
  EXPECT(!coco_load(&c, p.json, &direct) && !coco_open(&c, p.json, p.folder, &err));
  EXPECT_STR(err.msg, direct.msg);
  EXPECT(strstr(err.msg, "doc.json:2:") != NULL);
  EXPECT(find_index(p.folder) == NULL);
  EXPECT(!coco_open(&c, "/nonexistent/x.json", p.folder, &err) && strstr(err.msg, "cannot open /nonexistent/x.json"));
  index_folder_close(&p);
}

// One of them parses, the others wait and take its index, or parse what changed meanwhile: all see the same.
TEST(coco_index_is_shared_by_processes) {
  IndexFolder p = index_folder_open(document);
  const char *output;
  const char *once = "%s --read %s --index %s & %s --read %s --index %s & %s --read %s --index %s & wait";
  const char *bench = tool("bench_index");
  EXPECT_INT(command(&output, once, bench, p.json, p.folder, bench, p.json, p.folder, bench, p.json, p.folder), 0);
  int done = 0, parsed = 0;
  for (const char *at = output; (at = strstr(at, "\"annotations\":3")); at++) done++;
  for (const char *at = output; (at = strstr(at, "\"parsed in")); at++) parsed++;
  EXPECT_INT(done, 3);
  EXPECT_INT(parsed, 1);
  EXPECT_INT(open_and_compare(p.json, p.folder), FROM_INDEX);
  char *index = find_index(p.folder);
  EXPECT(index != NULL);
  free(index);
  index_folder_close(&p);
}
