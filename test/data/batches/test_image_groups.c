// Catches identical files or images of one name group in different groups, and files that are read in vain.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "data/batches/file_key.h"
#include "data/batches/image_groups.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

enum { N = 7 };

static const char *const names[N] = {"p1/a.png", "p2/a.png", "p1/b.png", "p3/c.png", "x.png", "p4/d.png", "p2/e.png"};

typedef struct Written {
  ImageList l;
  int64_t bytes[N];
  uint64_t key[N];
} Written;

static void write_files(Written *w, const char *const contents[N]) {
  *w = (Written){.l = {.of = "set", .n = N, .name = (const char **)names}};
  w->l.bytes = w->bytes;
  w->l.key = w->key;
  w->l.path = xmalloc(N * sizeof *w->l.path);
  for (int i = 0; i < N; i++) {
    w->l.path[i] = xasprintf("%s/image-groups-%d", test_tmp(), i);
    if (contents[i]) write_text(w->l.path[i], contents[i]);
    w->bytes[i] = contents[i] ? (int64_t)strlen(contents[i]) : 0;
  }
}

static void forget(Written *w) {
  for (int i = 0; i < N; i++) free(w->l.path[i]);
  free(w->l.path);
}

static void expect_groups(const ImageGroups *g, int n, const int want[N]) {
  EXPECT_INT(g->n, n);
  for (int i = 0; i < N; i++)
    if (!EXPECT_INT(g->of[i], want[i])) printf("  image %d\n", i);
}

TEST(image_groups_by_files_and_names) {
  char same_start[2][5002];
  for (int i = 0; i < 2; i++) {
    memset(same_start[i], 'x', 5000);
    strcpy(same_start[i] + 5000, i ? "a" : "b");
  }
  const char *const contents[N] = {"twin", "other", "same", "twin", same_start[0], same_start[1], NULL};
  Written w;
  ImageGroups g;
  write_files(&w, contents);
  image_groups_find(&g, &w.l, NULL);
  EXPECT_INT(g.copies, 1);
  expect_groups(&g, 6, (const int[N]){0, 1, 2, 0, 3, 4, 5});
  EXPECT(w.key[0] == w.key[3] && w.key[1] == 0 && w.key[2] == 0); // read where length and beginning are another's
  EXPECT(w.key[4] != w.key[5] && w.key[4] != 0);
  image_groups_free(&g);
  // By the text in parentheses, or by all that matches; chains of names and files are one group.
  image_groups_find(&g, &w.l, "^p([0-9])/");
  EXPECT_INT(g.unmatched, 1);
  expect_groups(&g, 4, (const int[N]){0, 1, 0, 0, 2, 3, 1});
  image_groups_free(&g);
  image_groups_find(&g, &w.l, "[a-z]\\.png");
  EXPECT_INT(g.unmatched, 0);
  expect_groups(&g, 5, (const int[N]){0, 0, 1, 0, 2, 3, 4});
  image_groups_free(&g);
  image_groups_find(&g, &w.l, "p3(z?)"); // matches nothing in the parentheses
  EXPECT_INT(g.unmatched, N);
  image_groups_free(&g);
  forget(&w);
}

TEST(image_groups_of_images_in_memory) {
  Written w = {.l = {.n = N, .name = (const char **)names, .key = w.key}, .key = {5, 6, 5, 7, 8, 6, 9}};
  ImageGroups g;
  image_groups_find(&g, &w.l, NULL);
  expect_groups(&g, 5, (const int[N]){0, 1, 0, 2, 3, 1, 4});
  image_groups_free(&g);
}

TEST(image_groups_check_the_expression) {
  Err err;
  EXPECT(image_groups_check("^(p[0-9]+)/", &err));
  EXPECT(!image_groups_check("(p", &err) && strstr(err.msg, "--group (p is not a regular expression: "));
}

TEST(file_key_of_what_is_no_file) {
  EXPECT(file_key_of(test_tmp()) == 0 && file_key_of("/nowhere") == 0 && file_key("ab", 2) != file_key("ba", 2));
}
