// The functions that exercises 1 to 14, those of docs/course/conv/, ask for; exercises.h says how they are built and
// checked.
#pragma once
#include <stdbool.h>
#include <stdint.h>

// ---- 1: the im2col view ---------------------------------------------------------------------------------------------

// A forward convolution: x [images, h, w, ldc], filters of r × s taps, y [images, p, q, …]. ldc is the distance between
// two pixels, in elements: the channels and their padding.
typedef struct ConvShape {
  int h, w, ldc, r, s, stride, pad, p, q;
} ConvShape;

// The index of the element of x at (row, k) of the im2col matrix; -1 in the padding around the image. row: a pixel of
// y, in memory order. k: channels vary fastest, then the taps of a row of the filter from left to right, then its rows.
long im2col_index(const ConvShape *conv, int row, int k);

// ---- 2: a tile in shared memory -------------------------------------------------------------------------------------

// C [m, n] = A [m, k] · Bᵀ, with B [n, k]: K is contiguous in the rows of both, as in a convolution's pixels and
// filters.
typedef struct ProductShape {
  int m, n, k;
} ProductShape;
enum { SHARED_M = 8, SHARED_N = 16, SHARED_K = 4 };

// The slow memory. The check counts reads, and fails on a read outside the matrices.
float read_a(int row, int k);
float read_b(int column, int k);

// Computes a block's SHARED_M × SHARED_N elements of C from (row, column) on. a and b are its shared memory,
// uninitialised. Each element of A and B that the tile needs is read once; elements of c outside C become 0.
void block_tile(const ProductShape *shape, int row, int column, float a[SHARED_M][SHARED_K],
                float b[SHARED_N][SHARED_K], float c[SHARED_M][SHARED_N]);

// ---- 3: occupancy ---------------------------------------------------------------------------------------------------

// The resources that a block needs, and those of a multiprocessor of an H100 or H200.
typedef struct BlockNeeds {
  int threads, registers, shared; // threads per block; registers per thread; bytes of shared memory per block
} BlockNeeds;
enum {
  SM_WARPS = 64,
  SM_BLOCKS = 32,
  SM_SCHEDULERS = 4, // each warp belongs to one of them
  SCHEDULER_REGISTERS = 16384,
  REGISTER_UNIT = 256, // registers are allocated to a warp in multiples of this
  SM_SHARED = 228 * 1024,
  BLOCK_SHARED = 1024, // bytes reserved for each block
  SHARED_UNIT = 128    // shared memory is allocated in multiples of this
};

// How many such blocks run on a multiprocessor at once; 0: none fits. threads: 1 to 1024; registers: 1 to 255.
int resident_blocks(BlockNeeds block);

// ---- 4: banks -------------------------------------------------------------------------------------------------------

enum { LANES = 32, BANKS = 32, BANK_BYTES = 4 };

// The number of accesses to shared memory when each lane l of a warp reads `bytes` (4, 8 or 16) from address[l], a
// multiple of `bytes`. 128 bytes of neighbouring lanes are served together: all 32 lanes, or the halves or quarters of
// the warp one after the other. In each access, a bank provides one word of four bytes, to all lanes that need it.
int shared_accesses(int bytes, const int address[LANES]);

// ---- 5: a pipeline of copies ----------------------------------------------------------------------------------------

// What every thread of a block does, in the order of the calls, which the check follows.
void pipe_copy(int stage, int tile); // starts copying a tile to a stage, as part of the open group
void pipe_commit(void);              // closes the group, which may be empty, and opens the next
// Waits until this thread's closed groups are complete, except the last `pending` ones.
void pipe_wait(int pending);
// __syncthreads(): copies that were complete for each thread are visible to all.
void pipe_barrier(void);
void pipe_multiply(int stage, int tile); // reads a stage

// Multiplies tiles 0 … tiles - 1 in order, with stages - 1 tiles (or all that remain) copied ahead: when tile t is
// multiplied, the copy of tile t + stages - 1 has been started. With more than two stages, and while there is such a
// tile, the copy of tile t + 1 need not be complete.
void pipeline(int tiles, int stages);

// ---- 6: split-K -----------------------------------------------------------------------------------------------------

enum { SPLIT_K_TILE = 4 }; // elements of K in a tile

// A dot product of k elements, cut into slices. Slice s has tiles tiles · s / slices up to but excluding
// tiles · (s + 1) / slices of all ⌈k / SPLIT_K_TILE⌉ tiles, the last of which may be short. Slices are computed in the
// order order[0], order[1], … in which blocks happen to run. Their sums in workspace [slices], initially undefined, are
// added from slice 0 on. Each slice, and the total, is summed in float in ascending order.
float split_k_dot(int k, const float *a, const float *b, int slices, const int *order, float *workspace);

// ---- 7: fragments ---------------------------------------------------------------------------------------------------

enum { FRAGMENT = 16, WARP_M = 64, WARP_N = 32, WARP_K = 32 };

// 16 × 16 numbers held by the lanes of a warp; the layout is unspecified.
typedef struct WarpMatrix {
  float of_lane[32][8];
} WarpMatrix;

WarpMatrix fragment_load(const float *from, int pitch); // 16 rows of 16 elements of K
// acc [16, 16] += a [16, K] · b [16, K]ᵀ
void fragment_multiply(WarpMatrix *acc, const WarpMatrix *a, const WarpMatrix *b);
void fragment_store(float *to, int pitch, const WarpMatrix *acc); // rows of a, columns of b

// c [WARP_M, WARP_N] = a [WARP_M, WARP_K] · bᵀ, with b [WARP_N, WARP_K], all contiguous. Each fragment of a or b is
// loaded once.
void warp_tile(const float *a, const float *b, float *c);

// ---- 8 to 14: tensor cores by their own instructions, and Hopper ----------------------------------------------------

// ---- 8: fragments of mma.sync ---------------------------------------------------------------------------------------

// The matrices of mma.sync m16n8k16, D [16, 8] += A [16, 16] · B [16, 8], by a warp. A register holds two elements of A
// or of B that are neighbours along K, the first in its lower half, or one element of D.
typedef enum MmaMatrix { MMA_A, MMA_B, MMA_D } MmaMatrix;
typedef struct MmaPosition {
  int lane, reg; // reg: one of four for A, two for B, four for D
  bool high;     // the register's upper half; false for D
} MmaPosition;

// Where element (row, column) of a matrix lies; a row of B is one k.
MmaPosition mma_position(MmaMatrix matrix, int row, int column);

// ---- 9: a swizzle ---------------------------------------------------------------------------------------------------

// A tile in shared memory consists of consecutive rows of `chunks` chunks of 16 bytes; chunks: 8 or 4. Returns the
// position in its row, from 0, of chunk `chunk` of row `row`.
int swizzled(int chunks, int row, int chunk);

// ---- 10: a matrix descriptor ----------------------------------------------------------------------------------------

// The descriptor of a wgmma operand that begins at row `row`, a multiple of 8, and column `k`, a multiple of 16, of the
// chapter's tile. `tile`: its address in shared memory, a multiple of 1024, of which a descriptor uses 18 bits; in a
// cluster, the bits above them select the block's memory.
uint64_t wgmma_descriptor(uint32_t tile, int row, int k);

// ---- 11: an im2col load ---------------------------------------------------------------------------------------------

typedef struct LoadConv {
  int n, h, w, p, q;     // images, rows and columns of their pixels; rows and columns of the result's
  int taps, stride, pad; // taps per axis
} LoadConv;
typedef struct Im2colLoad {
  int lower_y, lower_x, upper_y, upper_x; // the corners of the tensor map
  int n, y, x;                            // start of the load, before the tap's offset is added
  int tap_y, tap_x;                       // the tap's offset
  int bytes;                              // bytes that the barrier expects
} Im2colLoad;

// The load of `channels` bf16 channels of the `pixels` pixels that rows `row` … of the im2col matrix read for tap
// `tap`, counted across first. The last rows of the load may lie past the end of the matrix.
Im2colLoad im2col_load(const LoadConv *conv, int row, int tap, int pixels, int channels);

// ---- 12: phases -----------------------------------------------------------------------------------------------------

typedef struct PipelineWait {
  int stage, parity;
} PipelineWait;

// The stage and parity that the producer, or a consumer, waits for before its i-th tile of K, in a ring of `stages`
// stages.
PipelineWait pipeline_wait(bool producer, int stages, int i);

// ---- 13: the schedule of a persistent kernel ------------------------------------------------------------------------

typedef struct TileGrid {
  int rows, columns; // rows and columns of tiles
  int band;          // width of a band in columns of tiles
  int blocks;        // blocks that run at once; block b computes tiles b, b + blocks, …
} TileGrid;
typedef struct TilePosition {
  int row, column;
} TilePosition;
typedef struct BlockSchedule {
  int tiles; // tiles of the block
  int waves; // waves until all tiles of the grid are computed
  int idle;  // blocks without a tile in the last wave
} BlockSchedule;

// tile [schedule.tiles]: the tiles of a block, in order.
BlockSchedule block_schedule(const TileGrid *grid, int block, TilePosition *tile);

// ---- 14: multicast --------------------------------------------------------------------------------------------------

typedef struct MulticastShare {
  int first, rows;    // rows of B's tile that the block loads
  unsigned mask;      // bit i: block i of the cluster gets them
  int expected_bytes; // bytes of A and B per stage that the block's full barrier expects
  int empty_arrivals; // arrivals of consumers before the block may load into the stage again
} MulticastShare;

// The part of block `rank` in a cluster of `blocks`. B's tile has b_rows rows, a multiple of `blocks`, of row_bytes
// each; a tile of A has a_bytes; each block has `consumers` consumers, all of which arrive for each stage.
MulticastShare multicast_share(int rank, int blocks, int b_rows, int a_bytes, int row_bytes, int consumers);
