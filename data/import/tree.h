// The files of a folder, and how annotations that were written on another machine name them.
#pragma once
#include <stdbool.h>
#include "base/error.h"

// What the annotations that an import writes begin with.
#define IMPORT_MARK "{\"info\":{\"description\":\"imported by maskrcnn.c\"}"

typedef struct TreeFile {
  char *path;   // relative to its root, with '/'
  char *full;   // as the system opens it
  char *key;    // of its name without ending, as base/name_key.h compares names
  bool picture; // by its ending
  int image;    // of an import; -1: it is none
  int kind;     // of a JSON file: JsonKind of formats.h
} TreeFile;

typedef struct Tree {
  char *root;
  const char *only; // the annotation file that was named, relative to the root; NULL: all
  TreeFile *file;   // by path, those of the first root before those of the second
  int n;
  size_t cap;
  int *by_key; // [n] the files by their key, then in their order
} Tree;

// Lists what is below `dir`, or, where that is a file, below its folder; hidden files, __MACOSX and what an import
// wrote are left out, links followed. pictures: a second folder, where only pictures are looked for; NULL: none.
bool tree_open(Tree *t, const char *dir, const char *pictures, Err *err);
void tree_free(Tree *t);
// What tree_open does: adds files, then puts those from `first` on into the order of their paths, and all into by_key.
void tree_add(Tree *t, const char *path, const char *full);
void tree_sort(Tree *t, int first);

bool path_ends(const char *path, const char *ending); // ignoring case
const char *path_name(const char *path);              // its last part
char *path_folder(const char *path);                  // what is before it, "" where that is nothing; malloc'ed
char *path_stem(const char *path);                    // its last part without the ending; malloc'ed

typedef enum TreeMatch {
  TREE_MISSING,
  TREE_EXACT,  // where it should be
  TREE_NAME,   // elsewhere, by the last part of its name, or by more of them
  TREE_SEVERAL // several files have that name, and nothing tells which one it is
} TreeMatch;

// The file of this very path; -1: there is none.
int tree_find(const Tree *t, const char *path);
// The files whose names without endings are `stem`: t->by_key[*first … *first + n - 1]; returns n.
int tree_with_stem(const Tree *t, const char *stem, int *first);
// The only file with this ending and the picture's key, if no other picture has it; -1: there is none, or several.
int tree_only(const Tree *t, int picture, const char *ending);
// The first file of this name; -1: there is none.
int tree_named(const Tree *t, const char *name);
// The picture that `name`, a path, an URL or a name of any machine, stands for in an annotation file in `folder`.
TreeMatch tree_picture(const Tree *t, const char *name, const char *folder, int *file);
// The picture whose name without ending is `stem`, or the end of a path without ending.
TreeMatch tree_stem(const Tree *t, const char *stem, const char *folder, int *file);

// "train", "val" or "test", if a folder of the path, or with `name` the file's own name, says so; else NULL.
const char *split_of(const char *path, bool name);
// The same for one word: "Training", "valid". A word that names another split is returned as it is, one that none can
// be called by, and "default", is NULL.
const char *split_named(const char *word);
