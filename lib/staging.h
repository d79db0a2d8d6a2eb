// Staging: images are copied into batches as they arrive, one forming batch per canvas, in memory that the device reads
// directly. Not thread-safe: callers hold a lock.
#pragma once
#include "nn/batch.h"
#include "nn/device.h"

typedef enum StageState { STAGE_FREE, STAGE_FORMING, STAGE_RUNNING } StageState;

typedef struct StageSlot { // where the results of an image go
  void *owner;             // NULL: it was cancelled
  int image;
  int h, w;         // of the caller's image
  const void *from; // what its pixels are copied from, while they are
} StageSlot;

typedef struct StagedBatch {
  StageState state;
  bool filling; // somebody copies pixels: not yet to be run
  int passed;   // how many younger batches have gone first because they were full
  uint64_t age; // of its first image: lower is older
  size_t room;  // of batch.bytes
  Batch batch;
  StageSlot *slot; // [batch.images]
} StagedBatch;

typedef struct Staging {
  StagedBatch *list;
  int n, images;   // batches, and images of each
  ImageInfo *info; // page-locked; of all batches
  uint64_t age;    // of the next batch
} Staging;

// Allocates enough batches for `queue` images on `canvases` canvases while `running` batches are computed. False when
// there is no page-locked memory; follow with staging_free in any case.
bool staging_init(Staging *s, Device *dev, int images, int queue, int canvases, int running);
void staging_free(Staging *s, Device *dev);

// The batch that is forming for that canvas and has a free slot; starts one if there is none.
StagedBatch *staging_forming(Staging *s, int canvas);
// Gives an image of h × w pixels (rh × rw on the canvas) the next slot; its bytes are in the batch's memory.
void staging_append(StagedBatch *b, StageSlot slot, const ImageInfo *size);
// Gives up the slots of `owner` in batches that do not run and are not filling: each is told, and then has no owner. A
// batch of such slots alone is released; beside others they are computed, for nobody. Returns how many are free again.
typedef void StagingTold(const StageSlot *slot);
int staging_cancel(Staging *s, const void *owner, StagingTold *told);
StagedBatch *staging_filling(const Staging *s); // the oldest that is; NULL: none
// The batch to run next, or NULL: a full one, the oldest first, unless one that is not has been passed by often; and
// where `partly`, the oldest of all rather than none.
StagedBatch *staging_next(const Staging *s, bool partly);
void staging_release(StagedBatch *b);

// Gives b room for so many bytes, what it has kept. False when there is no memory, and nothing has changed.
bool staging_grow(StagedBatch *b, Device *dev, size_t bytes);
