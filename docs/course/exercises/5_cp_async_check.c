// Follows the calls in the worst case: a copy completes no earlier than it must, and a thread that has passed a barrier
// may be ahead of the others as far as the next barrier allows.
#include <string.h>
#include "docs/course/exercises/check.h"
#include "docs/course/exercises/conv.h"

enum { MOST_STAGES = 4, MOST_TILES = 9 };
// COMPLETE: visible to the thread that started it; THERE: to all.
typedef enum Copy { NOT_STARTED, STARTED, COMPLETE, THERE } Copy;

static int stages, tiles, next, barriers, closed;
static Copy copy[MOST_TILES];
static int group[MOST_TILES];                        // group of a tile's copy
static int holds[MOST_STAGES], read_at[MOST_STAGES]; // the tile in a stage; the number of barriers before its last read

#define WRONG(format, ...) difference("%d tiles, %d stages: " format, tiles, stages, __VA_ARGS__)

void pipe_copy(int stage, int tile) {
  if (stage < 0 || stage >= stages || tile < 0 || tile >= tiles)
    WRONG("tile %d is copied to stage %d: there is none", tile, stage);
  if (copy[tile] != NOT_STARTED) WRONG("tile %d is copied twice", tile);
  if (holds[stage] >= next) WRONG("tile %d overwrites tile %d, which was not multiplied yet", tile, holds[stage]);
  if (holds[stage] >= 0 && read_at[stage] == barriers)
    WRONG("tile %d overwrites tile %d, which slower threads may still read", tile, holds[stage]);
  copy[tile] = STARTED;
  group[tile] = closed;
  holds[stage] = tile;
}

void pipe_commit(void) { closed++; }

void pipe_wait(int pending) {
  if (pending < 0) WRONG("%d groups are no number to wait for", pending);
  for (int t = 0; t < tiles; t++)
    if (copy[t] == STARTED && group[t] < closed - pending) copy[t] = COMPLETE;
}

void pipe_barrier(void) {
  barriers++;
  for (int t = 0; t < tiles; t++)
    if (copy[t] == COMPLETE) copy[t] = THERE;
}

void pipe_multiply(int stage, int tile) {
  if (stage < 0 || stage >= stages || tile != next) WRONG("tile %d is multiplied where tile %d is next", tile, next);
  if (holds[stage] != tile) WRONG("tile %d is multiplied out of stage %d, which does not hold it", tile, stage);
  if (copy[tile] == STARTED) WRONG("tile %d is multiplied before its copy is complete", tile);
  if (copy[tile] == COMPLETE) WRONG("tile %d is multiplied where other threads' copies may not have arrived", tile);
  for (int t = tile + 1; t < tile + stages && t < tiles; t++)
    if (copy[t] == NOT_STARTED) WRONG("tile %d is multiplied before the copy of tile %d was started", tile, t);
  if (stages > 2 && tile + stages - 1 < tiles && copy[tile + 1] != STARTED)
    WRONG("tile %d waits for the copy of tile %d, too", tile, tile + 1);
  read_at[stage] = barriers;
  next++;
}

int main(void) {
  for (stages = 2; stages <= MOST_STAGES; stages++)
    for (tiles = 0; tiles <= MOST_TILES; tiles++) {
      memset(copy, 0, sizeof copy);
      memset(holds, -1, sizeof holds);
      next = barriers = closed = 0;
      pipeline(tiles, stages);
      if (next != tiles) WRONG("tile %d is not multiplied", next);
    }
  return solved();
}
