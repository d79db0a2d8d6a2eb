// Catches a page that is refused because another program is writing it at that moment.
#include <pthread.h>
#include <unistd.h>
#include "base/alloc.h"
#include "page/document.h"
#include "test/harness/test.h"

static void *abort_soon(void *file) {
  usleep(30000);
  file_abort(file);
  return NULL;
}

// As a run and build/report do.
TEST(document_waits_for_its_turn) {
  static const char *const *const scripts[] = {NULL};
  Err err;
  Document d;
  AtomicFile other;
  pthread_t thread;
  char *path = xasprintf("%s/in-turn.html", test_tmp());
  CHECK(file_begin(&other, path, &err) && !pthread_create(&thread, NULL, abort_soon, &other));
  EXPECT(document_begin(&d, path, "in turn", &err) && document_end(&d, scripts, &err));
  pthread_join(thread, NULL);
  EXPECT(path_is_file(path));
  free(path);
}
