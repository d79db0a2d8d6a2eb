// Files that this program wrote, told by what they hold: no other is overwritten unless somebody means it (--force).
#pragma once
#include "base/error.h"

typedef enum OwnFile {
  OWN_LOG,
  OWN_RECORD,
  OWN_EVALUATION,
  OWN_BEST,
  OWN_TARGETS,
  OWN_PAGE,
  OWN_SCORES,
  OWN_RESULTS,      // of detectors, in COCO's format
  OWN_RESULT_LINES, // the same in lines
  OWN_CSV_OBJECTS,  // tables of the same: data/coco/csv.h
  OWN_CSV_COUNTS,
  OWN_CLASSES, // results of classifiers
  OWN_DEFECTS,
  OWN_CURVES,
  OWN_CONFUSION,
  OWN_CONFUSION_TEXT,
  OWN_WEIGHTS,
  OWN_ONNX,
  OWN_DAMAGED, // OWN_BEST or OWN_EVALUATION, of which a part is lost
} OwnFile;

// Whether FILE, which a user names as an output, may be written: nothing is there, or nothing is in it, this program
// wrote it, or it is a stream, a device or, for results, a pipe.
bool output_is_own(const char *path, OwnFile what, bool force, Err *err);

typedef struct OwnName {
  const char *name; // in the folder
  OwnFile what;
} OwnName;

// The same for files that a program writes into its folder, which must be regular files, and no symbolic links either
// unless `force`; weights of other names (*.safetensors) must not be links. A folder that users other than those of
// this one's group may write is noted on stderr.
bool folder_is_own(const char *folder, const OwnName *file, int n, bool force, Err *err);
