#include "data/coco/elsewhere.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/alloc.h"
#include "base/basics.h"
#include "base/file.h"

bool coco_is_training(const char *folder) { return !strcasecmp(folder, "train") || !strcasecmp(folder, "training"); }

bool coco_is_list(const char *path) {
  size_t size;
  char *text = file_read(path, &size, NULL);
  const bool is = text && text[strspn(text, "\xef\xbb\xbf \t\r\n")] == '['; // after a byte order mark, white space
  free(text);
  return is;
}

// The first .json file by name in DIR/BELOW that has a key "annotations"; NULL: none. Caller frees.
static char *json_in(const char *dir, const char *below) {
  char *folder = xasprintf("%s/%s", dir, below), *first = NULL;
  DIR *d = opendir(folder);
  for (struct dirent *entry; d && (entry = readdir(d));) {
    const size_t length = strlen(entry->d_name);
    if (length < 5 || strcmp(entry->d_name + length - 5, ".json")) continue;
    char *path = xasprintf("%s%s%s", folder, *below ? "/" : "", entry->d_name);
    size_t size;
    char *text = path_is_file(path) && !(first && strcmp(path, first) > 0) ? file_read(path, &size, NULL) : NULL;
    if (text && strstr(text, "\"annotations\"")) {
      free(first);
      first = path;
    } else {
      free(path);
    }
    free(text);
  }
  if (d) closedir(d);
  free(folder);
  return first;
}

// The first by name of the files DIR/FOLDER/NAME, in any folder but annotations/ and training's. Caller frees.
static char *in_subfolder(const char *dir, const char *const *names, int n) {
  char *first = NULL;
  DIR *d = opendir(dir);
  for (struct dirent *entry; d && (entry = readdir(d));) {
    const char *folder = entry->d_name;
    if (folder[0] == '.' || !strcasecmp(folder, "annotations") || coco_is_training(folder)) continue;
    for (int i = 0; i < n; i++) {
      char *path = xasprintf("%s/%s/%s", dir, folder, names[i]);
      const bool takes = path_is_file(path) && (!first || strcmp(path, first) < 0);
      free(takes ? first : path);
      if (takes) first = path;
    }
  }
  if (d) closedir(d);
  return first;
}

char *coco_in_subfolder(const char *dir) {
  static const char *const names[] = {"_annotations.coco.json", "annotations.json", "result.json"};
  return in_subfolder(dir, names, COUNT(names));
}

char *coco_elsewhere(const char *dir) {
  static const char *const below[] = {"annotations", "", "train", "labels"};
  static const char *const whole[] = {"train/_annotations.coco.json", "annotations/instances_default.json",
                                      "annotations/instances_train.json", "annotations/instances_train2017.json"};
  char *found = NULL;
  for (int i = 0; !found && i < COUNT(below); i++) found = json_in(dir, below[i]);
  if (!found) found = coco_in_subfolder(dir);
  char *train = xasprintf("%s/train", dir);
  if (!found && !path_is_dir(train)) found = in_subfolder(dir, whole, COUNT(whole));
  free(train);
  return found;
}
