// What exercises 1 to 14 ask for, those of docs/course/conv/; exercises.h says how they are built and checked.
#pragma once
#include <stdbool.h>
#include <stdint.h>

// ---- 1: the im2col view ---------------------------------------------------------------------------------------------

// A forward convolution: x [images, h, w, ldc], filters of r × s taps, y [images, p, q, …]. ldc is the distance of two
// pixels, in elements: the channels, up to the padding behind them.
typedef struct ConvShape {
  int h, w, ldc, r, s, stride, pad, p, q;
} ConvShape;

// Which element of x stands at (row, k) of the im2col matrix, counted from x's first; -1 where that is in the padding
// around the image. Row: a pixel of y, in the order of memory. k: channels run fastest, then the taps of a row of the
// filter from left to right, then its rows.
long im2col_index(const ConvShape *conv, int row, int k);

// ---- 2: a tile in shared memory -------------------------------------------------------------------------------------

// C [m, n] = A [m, k] · Bᵀ, with B [n, k]: both rows have K contiguous, as a convolution's pixels and filters have.
typedef struct ProductShape {
  int m, n, k;
} ProductShape;
enum { SHARED_M = 8, SHARED_N = 16, SHARED_K = 4 };

// The slow memory. The check counts what is read, and ends at what lies outside the matrices.
float read_a(int row, int k);
float read_b(int column, int k);

// The SHARED_M × SHARED_N elements of C from (row, column) on, which are a block's. a and b are its shared memory: they
// hold anything. Each element of A and B that the tile needs is read once; elements of c outside C become 0.
void block_tile(const ProductShape *shape, int row, int column, float a[SHARED_M][SHARED_K],
                float b[SHARED_N][SHARED_K], float c[SHARED_M][SHARED_N]);

// ---- 3: occupancy ---------------------------------------------------------------------------------------------------

// What a block asks for, and what a multiprocessor of an H100 or H200 has.
typedef struct BlockNeeds {
  int threads, registers, shared; // threads of a block; registers of a thread; bytes of shared memory of a block
} BlockNeeds;
enum {
  SM_WARPS = 64,
  SM_BLOCKS = 32,
  SM_SCHEDULERS = 4, // a warp stays with one of them
  SCHEDULER_REGISTERS = 16384,
  REGISTER_UNIT = 256, // a warp gets a multiple of these
  SM_SHARED = 228 * 1024,
  BLOCK_SHARED = 1024, // that each block takes beside its own
  SHARED_UNIT = 128    // what a block asks for is rounded up to a multiple of these
};

// How many such blocks run on a multiprocessor at once; 0: none fits. Threads are 1 to 1024, registers 1 to 255.
int resident_blocks(BlockNeeds block);

// ---- 4: banks -------------------------------------------------------------------------------------------------------

enum { LANES = 32, BANKS = 32, BANK_BYTES = 4 };

// How many times shared memory is asked when each lane l of a warp reads `bytes` (4, 8 or 16) from address[l], a
// multiple of `bytes`. What goes at once are 128 bytes of neighbouring lanes: all 32, the halves, or the quarters of
// the warp, one after the other. Of those, each bank gives one word (of four bytes) each time, to all who want it.
int shared_accesses(int bytes, const int address[LANES]);

// ---- 5: a pipeline of copies ----------------------------------------------------------------------------------------

// What every thread of a block does, in the order of the calls; the check follows them.
void pipe_copy(int stage, int tile);     // starts the copy of a tile to a stage, as part of the open group
void pipe_commit(void);                  // closes the group, which may be empty, and opens the next
void pipe_wait(int pending);             // until this thread's groups are complete, but for the last `pending` closed
void pipe_barrier(void);                 // __syncthreads(): what was complete for each thread is there for all
void pipe_multiply(int stage, int tile); // reads a stage

// Multiplies tiles 0 … tiles - 1 in their order, with stages - 1 tiles (as many as are left) copied ahead: when tile t
// is multiplied, the copy of tile t + stages - 1 has been started, and as long as there is such a tile, that of t + 1
// is not waited for if there are more than two stages.
void pipeline(int tiles, int stages);

// ---- 6: split-K -----------------------------------------------------------------------------------------------------

enum { SPLIT_K_TILE = 4 }; // elements of K in a tile

// A dot product of k elements, cut into slices. Slice s has the tiles tiles · s / slices up to, not including,
// tiles · (s + 1) / slices, of ⌈k / SPLIT_K_TILE⌉ tiles, the last of which may be short. Slices are computed in the
// order order[0], order[1], … in which blocks happen to run; what they leave in workspace [slices], which holds
// anything, is added from slice 0 on. Each slice is summed in float from its first element on, and so is the whole.
float split_k_dot(int k, const float *a, const float *b, int slices, const int *order, float *workspace);

// ---- 7: fragments ---------------------------------------------------------------------------------------------------

enum { FRAGMENT = 16, WARP_M = 64, WARP_N = 32, WARP_K = 32 };

// 16 × 16 numbers that the lanes of a warp hold together; who holds which is not known.
typedef struct WarpMatrix {
  float of_lane[32][8];
} WarpMatrix;

WarpMatrix fragment_load(const float *from, int pitch); // 16 rows of 16 elements of K
// acc [16, 16] += a [16, K] · b [16, K]ᵀ
void fragment_multiply(WarpMatrix *acc, const WarpMatrix *a, const WarpMatrix *b);
void fragment_store(float *to, int pitch, const WarpMatrix *acc); // rows of a, columns of b

// c [WARP_M, WARP_N] = a [WARP_M, WARP_K] · bᵀ, with b [WARP_N, WARP_K], all without gaps. A fragment of a or b is
// loaded once.
void warp_tile(const float *a, const float *b, float *c);

// ---- 8 to 14: tensor cores by their own instructions, and Hopper ----------------------------------------------------

// ---- 8: fragments of mma.sync ---------------------------------------------------------------------------------------

// Of mma.sync m16n8k16, D [16, 8] += A [16, 16] · B [16, 8], by a warp. A register holds two elements of A or of B that
// are neighbours along K, the first in its lower half, or one element of D.
typedef enum MmaMatrix { MMA_A, MMA_B, MMA_D } MmaMatrix;
typedef struct MmaPosition {
  int lane, reg; // reg: of the four of A, two of B, four of D
  bool high;     // the register's upper half; false for D
} MmaPosition;

// Where element (row, column) of a matrix lies; a row of B is one k.
MmaPosition mma_position(MmaMatrix matrix, int row, int column);

// ---- 9: a swizzle ---------------------------------------------------------------------------------------------------

// A tile in shared memory, rows of `chunks` chunks of 16 bytes, eight or four, one right after the other. Returns the
// position in its row, from 0 on, at which chunk `chunk` of row `row` lies.
int swizzled(int chunks, int row, int chunk);

// ---- 10: a matrix descriptor ----------------------------------------------------------------------------------------

// The descriptor of wgmma's operand that begins at row `row`, a multiple of 8, and column `k`, a multiple of 16, of the
// chapter's tile. `tile`: its address in shared memory, a multiple of 1024, of which a descriptor has 18 bits; what is
// above them says, in a cluster, whose memory it is.
uint64_t wgmma_descriptor(uint32_t tile, int row, int k);

// ---- 11: an im2col load ---------------------------------------------------------------------------------------------

typedef struct LoadConv {
  int n, h, w, p, q;     // images, rows and columns of their pixels; rows and columns of the result's
  int taps, stride, pad; // taps across, and as many down
} LoadConv;
typedef struct Im2colLoad {
  int lower_y, lower_x, upper_y, upper_x; // the corners of the tensor map
  int n, y, x;                            // where the load begins, before the tap's offset is added
  int tap_y, tap_x;                       // that offset
  int bytes;                              // that the barrier expects
} Im2colLoad;

// The load of `channels` bf16 channels of the `pixels` pixels that rows `row` … of the im2col matrix meet under tap
// `tap`, counted across first. The last rows of the load may lie behind the matrix.
Im2colLoad im2col_load(const LoadConv *conv, int row, int tap, int pixels, int channels);

// ---- 12: phases -----------------------------------------------------------------------------------------------------

typedef struct PipelineWait {
  int stage, parity;
} PipelineWait;

// What the producer, or a consumer, waits for before its i-th tile of K, in a ring of `stages` stages.
PipelineWait pipeline_wait(bool producer, int stages, int i);

// ---- 13: the schedule of a persistent kernel ------------------------------------------------------------------------

typedef struct TileGrid {
  int rows, columns; // of tiles
  int band;          // columns of tiles that are numbered together
  int blocks;        // that run at once; block b computes tiles b, b + blocks, …
} TileGrid;
typedef struct TilePosition {
  int row, column;
} TilePosition;
typedef struct BlockSchedule {
  int tiles; // of the block
  int waves; // turns until all tiles of the grid are computed
  int idle;  // blocks that have none in the last of them
} BlockSchedule;

// tile [schedule.tiles]: the tiles of a block, in order.
BlockSchedule block_schedule(const TileGrid *grid, int block, TilePosition *tile);

// ---- 14: multicast --------------------------------------------------------------------------------------------------

typedef struct MulticastShare {
  int first, rows;    // of B's tile, that the block loads
  unsigned mask;      // bit i: block i of the cluster gets them
  int expected_bytes; // that the block's full barrier expects of a stage, of A and B
  int empty_arrivals; // of consumers, before the block may load into the stage again
} MulticastShare;

// Of block `rank` of a cluster of `blocks`. B's tile has b_rows rows of row_bytes, a multiple of the blocks of them; a
// tile of A has a_bytes; each block has so many consumers, all of which arrive for each stage.
MulticastShare multicast_share(int rank, int blocks, int b_rows, int a_bytes, int row_bytes, int consumers);
