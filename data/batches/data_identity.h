// Identifies the data that a run was trained and scored on by a few numbers, which are stored with weights, records and
// checkpoints and compared wherever two data sets should be the same. They cover an image's name, length and size, not
// its pixels.
#pragma once
#include "base/record.h"
#include "data/batches/dataset.h"

// Digests of 52 bits, exact as numbers of JSON.
typedef struct DataIdentity {
  int images;
  int64_t files;       // of the names, lengths and sizes of the usable images
  int64_t categories;  // ids and names
  int64_t annotations; // of these images, without ids; with the names of categories, and crowds as they are treated
} DataIdentity;
// Of all usable images, or of those marked in read[num_images].
DataIdentity data_identity(const Dataset *d, const bool *read);
int64_t data_identity_number(const DataIdentity *i); // everything except the number of images, in one number
void data_identity_record(Record *to, const char *key, const DataIdentity *i);

// Weights store the data that they were trained on as a list, one entry a run, starting with the initial weights' runs:
//   [{"images":60,"files":…,"categories":…,"annotations":…,"sample":"…"}]
// The sample has 16 hexadecimal digits an image, of all images or of TRAINED_SAMPLE of them: digests of its name,
// length and size, and of its boxes and masks, length and size.
enum { TRAINED_SAMPLE = 4096 };
// The list of a run on `train` whose initial weights had the list `before`; NULL: none. malloc'ed.
char *trained_on_text(const char *before, const Dataset *train);
// Whether the last entry is of this data; with other_files, image files may differ;
// false with a message: what has changed, or that the list cannot be read.
bool trained_on_same(const char *list, const Dataset *train, bool other_files, Err *err);
// The number of images marked in `read` (NULL: of all) that any run of the list was trained on; for runs on more than
// TRAINED_SAMPLE images it is an estimate, and *exact is false. -1: the list cannot be read.
int trained_on_count(const char *list, const Dataset *d, const bool *read, bool *exact);
