// Catches a file that is taken for two files because it is given under two names.
#include <unistd.h>
#include "base/alloc.h"
#include "base/file_set.h"
#include "test/harness/test.h"

static char *path_of(const char *name) { return xasprintf("%s/file-set-%s", test_tmp(), name); }

static char *make_file(const char *name) {
  char *path = path_of(name);
  FILE *f = fopen(path, "w");
  CHECK(f && !fclose(f));
  return path;
}

TEST(file_set_knows_files_by_any_name) {
  char *read = make_file("read"), *other = make_file("other"), *none = path_of("none");
  char *link_to = path_of("link"), *name = path_of("name"), *astray = path_of("astray");
  CHECK(!symlink(read, link_to) && !link(read, name) && !symlink(none, astray));
  FileSet s = {0};
  Err err;
  EXPECT(file_set_spares(&s, read, &err));
  file_set_add(&s, none);
  file_set_add(&s, test_tmp());
  for (int i = 0; i < 3; i++) file_set_add(&s, read);
  EXPECT(!file_set_spares(&s, read, &err) && strstr(err.msg, "file-set-read is an input of this run and would "));
  EXPECT(!file_set_spares(&s, link_to, NULL) && !file_set_spares(&s, name, NULL));
  EXPECT(file_set_spares(&s, other, NULL) && file_set_spares(&s, none, NULL) && file_set_spares(&s, astray, NULL));
  EXPECT(file_set_spares(&s, test_tmp(), NULL));
  file_set_add(&s, other);
  EXPECT(!file_set_spares(&s, other, NULL) && !file_set_spares(&s, read, NULL));
  file_set_free(&s);
  file_set_add(&s, other); // in whatever order
  file_set_add(&s, read);
  EXPECT(!file_set_spares(&s, other, NULL) && !file_set_spares(&s, read, NULL));
  file_set_free(&s);
  char *all[] = {read, other, none, link_to, name, astray};
  for (int i = 0; i < COUNT(all); i++) free(all[i]);
}
