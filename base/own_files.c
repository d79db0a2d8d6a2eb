#define _GNU_SOURCE // memmem
#include "base/own_files.h"
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/output.h"
#include "base/regular.h"
#include "base/run_folder.h"

enum { LOOKED_AT = 1 << 16 }; // bytes at the beginning

// How its text begins (NULL: with anything), what else the first of it holds, and what it is where there is nothing to
// tell. A killed program may have left a part of the beginning.
static const struct {
  const char *begins, *holds, *without;
} marks[] = {
    [OWN_LOG] = {NULL, "{\"step\":", NULL}, // of any line: the first may be damaged
    [OWN_RECORD] = {"{\"state\":\"", NULL, NULL},
    [OWN_EVALUATION] = {"{\"step\":", NULL, NULL},
    [OWN_BEST] = {"{", "\"step\":", "{}\n"},
    [OWN_TARGETS] = {"{\"bench\":\"time-to-target\"", NULL, NULL},
    [OWN_PAGE] = {"<!DOCTYPE html>", "content=\"default-src 'none'; script-src 'nonce-", NULL},
    [OWN_SCORES] = {"{\"name\":\"", "\"state\":\"", NULL},
    [OWN_RESULTS] = {"[\n", "{\"image_id\":", "[\n]\n"},
    [OWN_RESULT_LINES] = {"{\"image_id\":", "\"detections\":[", NULL},
    [OWN_CSV_OBJECTS] = {"file_name,image_id,category,category_id,", NULL, NULL},
    [OWN_CSV_COUNTS] = {"file_name,image_id,width,height,", NULL, NULL},
    [OWN_CLASSES] = {"{\"file\":\"", NULL, NULL},
    [OWN_DEFECTS] = {"split\tdefect\tof\tid\t", NULL, NULL},
    [OWN_CURVES] = {"{\"iou\":\"", "\"recall\":[", NULL},
    [OWN_CONFUSION] = {"{\"classes\":", "\"right\":", NULL},
    [OWN_CONFUSION_TEXT] = {NULL, " classes", NULL},
    [OWN_WEIGHTS] = {NULL, "\"format\":\"maskrcnn.c", NULL},
    [OWN_ONNX] = {"\b", "\x12\nmaskrcnn.c", NULL}, // ModelProto: ir_version, producer_name
    [OWN_DAMAGED] = {NULL, "\"step\":", "{}\n"},   // or zeros, or no more than the beginning
};

static bool has_marks(const char *text, size_t size, OwnFile what) {
  const char *begins = marks[what].begins, *holds = marks[what].holds, *without = marks[what].without;
  const char *first = begins ? begins : holds;
  if (what == OWN_DAMAGED && (memchr(text, 0, size) || (size > 6 && !memcmp(text, "{\"best", 6)))) return true;
  if (size < strlen(first) && !memcmp(text, first, size)) return true;
  if (without && size == strlen(without) && !memcmp(text, without, size)) return true;
  return (!begins || (size >= strlen(begins) && !memcmp(text, begins, strlen(begins)))) &&
         (!holds || memmem(text, size, holds, strlen(holds)));
}

static bool is_own(const char *path, OwnFile what) {
  const int file = regular_open(path, O_RDONLY, NULL);
  if (file < 0) return access(path, F_OK) != 0; // one that cannot be read is another's
  char *text = xmalloc(LOOKED_AT);
  const ssize_t size = read(file, text, LOOKED_AT);
  close(file);
  const bool is = size >= 0 && has_marks(text, (size_t)size, what);
  free(text);
  return is;
}

// Results may go into a pipe; anything may go into a stream or a device. A folder is left to whoever opens it.
static bool may_take(const char *path, const char *irregular, OwnFile what) {
  const bool results = what == OWN_RESULTS || what == OWN_RESULT_LINES || what == OWN_CLASSES;
  return path_is_stream(path) || !strncmp(path, "/dev/", 5) || !strcmp(irregular, "a folder") ||
         (results && !strcmp(irregular, "a pipe"));
}

bool output_is_own(const char *path, OwnFile what, bool force, Err *err) {
  const char *irregular = path_irregular(path);
  if (irregular && !may_take(path, irregular, what))
    return err_set(err, "%s is %s, not a regular file; remove it, or choose another name", path, irregular);
  if (force || irregular || is_own(path, what)) return true;
  return err_set(err,
                 "%s exists and was not written by this program; move it, choose another name, or overwrite it with "
                 "--force",
                 path);
}

// A regular file, or nothing; with `force` also where one's own link leads.
static bool is_plain(const char *path, bool force, Err *err) {
  char to[PATH_MAX] = "";
  const ssize_t n = readlink(path, to, sizeof to - 1);
  const bool others = n > 0 && path_is_others_link(path);
  if (n > 0 && (!force || others))
    return err_set(err, "%s is a symbolic link%s to %s; remove it, or choose another --out%s", path,
                   others ? " of another user" : "", to, others ? "" : ", or write where it leads with --force");
  const char *what = path_irregular(path);
  if (what && !strcmp(what, "a folder")) return true; // whoever writes there says so
  return !what || err_set(err, "%s is %s, not a regular file; remove it, or choose another --out", path, what);
}

static bool weights_are_plain(const char *folder, bool force, Err *err) {
  static const char ending[] = ".safetensors";
  DIR *dir = opendir(folder);
  bool ok = true;
  for (struct dirent *entry; ok && dir && (entry = readdir(dir));) {
    const size_t n = strlen(entry->d_name), m = sizeof ending - 1;
    if (n < m || strcmp(entry->d_name + n - m, ending)) continue;
    char *path = xasprintf("%s/%s", folder, entry->d_name);
    ok = is_plain(path, force, err);
    free(path);
  }
  if (dir) closedir(dir);
  return ok;
}

bool folder_is_own(const char *folder, const OwnName *file, int n, bool force, Err *err) {
  struct stat st;
  if (stat(folder, &st) != 0 || !S_ISDIR(st.st_mode)) return true;
  char *pictures = xasprintf("%s/" RUN_PICTURES, folder);
  bool ok = weights_are_plain(folder, force, err) && is_plain(pictures, force, err);
  if (ok && path_is_file(pictures))
    ok = err_set(err, "%s is not a folder; remove it, or choose another --out", pictures);
  free(pictures);
  for (int i = 0; ok && i < n; i++) {
    char *path = xasprintf("%s/%s", folder, file[i].name);
    ok = is_plain(path, force, err) && output_is_own(path, file[i].what, force, err);
    free(path);
  }
  static bool said;
  st.st_uid = geteuid(); // whose folder it is says the user who named it
  if (ok && !said && (said = others_write(&st) && !(st.st_mode & S_ISVTX)))
    line_print(stderr, "note: other users may write in %s, and so replace its files; chmod o-w,g-w prevents that",
               folder);
  return ok;
}
