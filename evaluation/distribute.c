#include "evaluation/distribute.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

enum {
  TOGETHER = 8, // batches per rank and exchange if `settle` is NULL
  MAX_AHEAD = 8,
  MOST_EXCHANGED = 1 << 30 // bytes of a rank's message
};

typedef enum ExchangeEnd { EXCHANGE_FULL, EXCHANGE_LAST, EXCHANGE_STOPPED, EXCHANGE_FAILED } ExchangeEnd;

// The head of a rank's message in an exchange. It is followed by an ExchangeBatch and the packed results for each
// batch, and by the text of a failure, if any.
typedef struct ExchangeHead {
  ExchangeEnd end; // why no batches are left batches
  int batches;
} ExchangeHead;
typedef struct ExchangeBatch {
  int64_t used; // images
  size_t bytes;
} ExchangeBatch;

typedef struct DistributeState {
  Comm *comm;
  const Dataset *d;
  const BatchWork *work;
  Loader *loader; // NULL: it could not be opened; `failed` says why
  Err failed;     // of this rank
  // Batches that were started and are not packed yet, oldest first:
  const Batch *started[MAX_AHEAD];
  int ahead;
  bool ended; // there are no more
  int together;
  ByteBuffer mine;
  const Batch *batch; // of this rank, the last of the exchange; NULL: none
  // On rank 0:
  CommPart *part; // [world]
  ExchangeHead *head;
  ByteReader *rest; // unread rest of each part
  // On every rank:
  int64_t *before; // [world] images before the batch of that rank in this exchange; -1: it was not unpacked
  int64_t images;  // on rank 0: images read so far
} DistributeState;

// ---- a rank's part ------------------------------------------------------------------------------------------------

static bool asked_to_stop(const DistributeState *v) {
  return v->work->stopped && (v->work->stopped() || comm_stop_asked(v->comm));
}

static void pack_batch(DistributeState *v, const Batch *batch) {
  const size_t at = v->mine.bytes;
  ExchangeBatch b = {.used = batch->used};
  byte_buffer_put(&v->mine, &b, sizeof b);
  if (b.used) v->work->compute(v->work->context, batch, &v->mine);
  b.bytes = v->mine.bytes - at - sizeof b;
  memcpy(v->mine.data + at, &b, sizeof b);
}

// Starts batches from the loader until as many are in flight as the work allows.
static void start_ahead(DistributeState *v) {
  const BatchWork *work = v->work;
  const int most = work->start ? work->ahead : 1;
  while (v->loader && !v->ended && v->ahead < most) {
    const Batch *batch = loader_next(v->loader, &v->failed);
    if ((v->ended = !batch)) return;
    if (work->start && batch->used) work->start(work->context, batch);
    v->started[v->ahead++] = batch;
  }
}

static const Batch *take_oldest(DistributeState *v) {
  const Batch *oldest = v->started[0];
  v->ahead--;
  for (int i = 0; i < v->ahead; i++) v->started[i] = v->started[i + 1];
  return oldest;
}

// Computes the next batch, or says why there is none. A failure is reported after the batches before it.
static ExchangeEnd compute_batch(DistributeState *v) {
  if (v->loader && asked_to_stop(v)) return EXCHANGE_STOPPED;
  start_ahead(v);
  if (!v->ahead) return *v->failed.msg ? EXCHANGE_FAILED : EXCHANGE_LAST;
  v->batch = take_oldest(v);
  pack_batch(v, v->batch);
  return EXCHANGE_FULL;
}

static void pack_failure(DistributeState *v) {
  Err named = v->failed;
  if (!comm_alone(v->comm))
    err_set(&named, "rank %d on %s: %.3900s", comm_rank(v->comm), comm_host(v->comm, comm_rank(v->comm)),
            v->failed.msg);
  byte_buffer_put(&v->mine, named.msg, strlen(named.msg));
}

static void pack_exchange(DistributeState *v) {
  ExchangeHead head = {.end = EXCHANGE_FULL};
  byte_buffer_empty(&v->mine);
  byte_buffer_put(&v->mine, &head, sizeof head);
  v->batch = NULL;
  while (head.batches < v->together && (head.end = compute_batch(v)) == EXCHANGE_FULL) head.batches++;
  memcpy(v->mine.data, &head, sizeof head);
  if (head.end == EXCHANGE_FAILED) pack_failure(v);
}

// ---- rank 0 -------------------------------------------------------------------------------------------------------

static ExchangeEnd cannot_unpack(const DistributeState *v, int rank, Err *err) {
  err_set(err, "rank %d on %s sent %zu bytes that are not evaluation results", rank, comm_host(v->comm, rank),
          v->part[rank].bytes);
  return EXCHANGE_FAILED;
}

static bool unpack_head(DistributeState *v, int rank) {
  ExchangeHead *head = &v->head[rank];
  v->rest[rank] = (ByteReader){v->part[rank].data, v->part[rank].bytes};
  if (!byte_reader_take(&v->rest[rank], head, sizeof *head)) return false;
  const bool full = head->batches == v->together, fewer = head->batches >= 0 && head->batches < v->together;
  return head->end == EXCHANGE_FULL ? full : fewer && head->end > EXCHANGE_FULL && head->end <= EXCHANGE_FAILED;
}

static bool unpack_batch(DistributeState *v, int rank) {
  ExchangeBatch b;
  ByteReader part;
  if (!byte_reader_take(&v->rest[rank], &b, sizeof b) || !byte_reader_part(&v->rest[rank], &part, b.bytes))
    return false;
  if (b.used < 0 || b.used > INT_MAX || (b.used && (!v->work->unpack(v->work->context, &part) || part.left)))
    return false;
  v->before[rank] = v->images;
  v->images += b.used;
  return true;
}

static ExchangeEnd why_no_batch(DistributeState *v, int rank, Err *err) {
  const ExchangeEnd end = v->head[rank].end;
  ByteReader *text = &v->rest[rank];
  if (end == EXCHANGE_FAILED) err_set(err, "%.*s", (int)MIN(text->left, sizeof err->msg - 1), text->at);
  return end;
}

// Unpacks every rank's batches in turn, until a rank has no more for a reason other than the end of the data.
static ExchangeEnd unpack_exchange(DistributeState *v, Err *err) {
  ExchangeEnd end = EXCHANGE_FULL;
  for (int r = 0; r < comm_world(v->comm); r++) v->before[r] = -1;
  for (int r = 0; r < comm_world(v->comm); r++)
    if (!unpack_head(v, r)) return cannot_unpack(v, r, err);
  for (int i = 0; i < v->together; i++)
    for (int r = 0; r < comm_world(v->comm); r++) {
      if (i < v->head[r].batches) {
        if (!unpack_batch(v, r)) return cannot_unpack(v, r, err);
      } else if ((end = why_no_batch(v, r, err)) != EXCHANGE_LAST) {
        return end;
      }
    }
  return end;
}

// Gathers and unpacks the results of an exchange.
static ExchangeEnd end_exchange_on_0(DistributeState *v, Err *err) {
  v->part[0] = (CommPart){v->mine.data, v->mine.bytes};
  const bool gathered = comm_gather(v->comm, v->mine.data, v->mine.bytes, MOST_EXCHANGED, v->part);
  ExchangeEnd end = unpack_exchange(v, err);
  if (end == EXCHANGE_LAST && !v->images) {
    err_set(err, "%s: none of its %d images can be read", v->d->coco.path, v->d->num_images + v->d->bad_images);
    end = EXCHANGE_FAILED;
  }
  for (int r = 0; gathered && r < comm_world(v->comm); r++) free(v->part[r].data);
  return end;
}

// ---- all ranks ----------------------------------------------------------------------------------------------------

// Ends an exchange; every rank gets rank 0's decision.
static ExchangeEnd agree_on_end(DistributeState *v, Err *err) {
  ExchangeEnd end = EXCHANGE_FULL;
  if (comm_rank(v->comm) == 0)
    end = end_exchange_on_0(v, err);
  else
    comm_gather(v->comm, v->mine.data, v->mine.bytes, MOST_EXCHANGED, NULL);
  comm_broadcast_bytes(v->comm, &end, sizeof end);
  if (end == EXCHANGE_FAILED) comm_broadcast_text(v->comm, err->msg, sizeof err->msg);
  if (!v->work->settle) return end;
  comm_broadcast_bytes(v->comm, v->before, (size_t)comm_world(v->comm) * sizeof *v->before);
  const int64_t before = v->before[comm_rank(v->comm)];
  if (v->batch && v->batch->used && before >= 0) v->work->settle(v->work->context, v->batch, before);
  return end;
}

static void take_room(DistributeState *v) {
  const size_t world = (size_t)comm_world(v->comm);
  v->part = xcalloc(world, sizeof *v->part);
  v->head = xcalloc(world, sizeof *v->head);
  v->rest = xcalloc(world, sizeof *v->rest);
  v->before = xcalloc(world, sizeof *v->before);
}

static void give_room_back(DistributeState *v) {
  byte_buffer_free(&v->mine);
  free(v->part);
  free(v->head);
  free(v->rest);
  free(v->before);
}

bool distribute_batches(Comm *comm, const Dataset *d, const LoaderOptions *options, const BatchWork *work, Err *err) {
  DistributeState v = {.comm = comm, .d = d, .work = work};
  CHECK(!work->start || (work->ahead <= MAX_AHEAD && work->ahead <= MAX(options->held, 1)));
  LoaderOptions mine = *options;
  mine.rank = comm_rank(comm);
  mine.world = comm_world(comm);
  v.together = comm_alone(comm) || work->settle ? 1 : TOGETHER;
  v.loader = loader_open(d, &mine, &v.failed);
  take_room(&v);
  Err why = {""};
  ExchangeEnd end = EXCHANGE_FULL;
  while (end == EXCHANGE_FULL) {
    pack_exchange(&v);
    end = agree_on_end(&v, &why);
  }
  if (work->drop) work->drop(work->context);
  loader_close(v.loader);
  give_room_back(&v);
  return end == EXCHANGE_LAST || err_set(err, "%s", why.msg);
}
