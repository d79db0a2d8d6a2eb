#include "data/batches/bad_images.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/output.h"
#include "base/regular.h"

struct BadImages {
  pthread_mutex_t lock;
  int said;
  char *split, *path;
};

BadImages *bad_images_open(void) {
  BadImages *b = xcalloc(1, sizeof *b);
  pthread_mutex_init(&b->lock, NULL);
  return b;
}

void bad_images_close(BadImages *b) {
  if (!b) return;
  pthread_mutex_destroy(&b->lock);
  free(b->split);
  free(b->path);
  free(b);
}

void bad_images_list_in(BadImages *b, const char *split, const char *path) {
  free(b->split);
  free(b->path);
  b->split = xstrdup(split);
  b->path = path ? xstrdup(path) : NULL;
}

const char *bad_images_path(const BadImages *b) { return b ? b->path : NULL; }

static void say(BadImages *b, const char *how, const char *reason) {
  const int n = b->said++;
  if (n < BAD_IMAGES_SAID)
    line_print(stderr, "unusable image %s: %s", how, reason);
  else if (n == BAD_IMAGES_SAID && b->path)
    line_print(stderr, "unusable images %s: more than %d; all are listed in %s", how, BAD_IMAGES_SAID, b->path);
  else if (n == BAD_IMAGES_SAID)
    line_print(stderr, "unusable images %s: more than %d; the rest are only counted", how, BAD_IMAGES_SAID);
}

// A file that cannot be written does not end the run.
static void list(const BadImages *b, const CocoImage *im, const char *reason) {
  const int file = regular_open(b->path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW, NULL);
  FILE *f = file >= 0 ? fdopen(file, "a") : NULL;
  if (!f) {
    if (file >= 0) close(file);
    return;
  }
  if (fseek(f, 0, SEEK_END) == 0 && ftell(f) == 0) fputs(defect_rows_head, f);
  defect_row(f, b->split, "file", "image", im->id, im->file_name, reason);
  fclose(f);
}

void bad_images_add(BadImages *b, const CocoImage *im, const char *how, const char *reason) {
  if (!b) return; // the list of a data set whose files are not read
  pthread_mutex_lock(&b->lock);
  if (how) say(b, how, reason);
  if (b->path) list(b, im, reason);
  pthread_mutex_unlock(&b->lock);
}

const char defect_rows_head[] = "split\tdefect\tof\tid\tfile\treason\n";

// Tabs and line breaks in names would split the cell.
static void cell(FILE *f, const char *text, char after) {
  for (; text && *text; text++) fputc((unsigned char)*text < ' ' ? ' ' : *text, f);
  fputc(after, f);
}

void defect_row(FILE *f, const char *split, const char *defect, const char *of, int64_t id, const char *file,
                const char *reason) {
  fprintf(f, "%s\t%s\t%s\t%lld\t", split, defect, of, (long long)id);
  cell(f, file, '\t');
  cell(f, reason, '\n');
}
