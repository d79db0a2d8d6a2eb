// What a run has learnt from and what it was scored on, in a few numbers: they are kept with weights, records and
// states, and asked wherever two sets meet. Of a picture they know name, length and size, not its pixels.
#pragma once
#include "base/record.h"
#include "data/batches/dataset.h"

// Digests of 52 bits, exact as numbers of JSON.
typedef struct DataIdentity {
  int images;
  int64_t files;       // names, lengths and sizes of the usable images
  int64_t categories;  // ids and names
  int64_t annotations; // of these images, as the file has them, but for their ids
} DataIdentity;
// Of all usable images, or of those of which read[num_images] says so.
DataIdentity data_identity(const Dataset *d, const bool *read);
int64_t data_identity_number(const DataIdentity *i); // but for the number of images, all in one
void data_identity_record(Record *to, const char *key, const DataIdentity *i);

// Weights keep what they were trained on as a list, one entry a run, weights that it began with first:
//   [{"images":60,"files":…,"categories":…,"annotations":…,"sample":"…"}]
// The sample has 16 hexadecimal digits an image, of all images or of TRAINED_SAMPLE of them: its name, length and size,
// and its boxes and masks.
enum { TRAINED_SAMPLE = 4096 };
// The list of a run on `train` that began with weights of the list `before`; NULL: with none. malloc'ed.
char *trained_on_text(const char *before, const Dataset *train);
// Whether the last entry is of this data; false names what has changed, or that the list cannot be read.
bool trained_on_same(const char *list, const Dataset *train, Err *err);
// How many of the images that were read, NULL: of all, were trained on, in any run of the list; of runs on more than
// TRAINED_SAMPLE images it is an estimate, and *exact is false. -1: the list cannot be read.
int trained_on_count(const char *list, const Dataset *d, const bool *read, bool *exact);
