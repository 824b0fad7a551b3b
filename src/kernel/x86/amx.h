// What AMX's files share: the shape of tiles, and the second copy of an input that is made of them.
#ifndef SETUN_KERNEL_X86_AMX_H
#define SETUN_KERNEL_X86_AMX_H

#include "kernel/layout.h"

#include <immintrin.h>

enum {
  AMX_SIDE = 16,                   // tokens and rows of a tile
  AMX_DEPTH = 64,                  // columns of a tile, at most
  AMX_TILE = AMX_SIDE * AMX_DEPTH, // its bytes; also those of 16 x 16 sums
  AMX_SUMS = AMX_SIDE * AMX_SIDE,
  AMX_PIECE = 1024,       // columns of a group unpacked at once, 16 KB of codes, by products other than rows_amx.c
  AMX_PASS = 512,         // most tokens of a pass of those
  AMX_SCRATCH = 288 << 10 // st_kernels.scratch_bytes: unpacked weights, and the sums of a pass
};

// `prepare` stores inputs of 16 and more tokens a second time, in tiles of 16 tokens, with zeros for missing ones. By
// block also what AVX-512 keeps in tiles of 8 tokens, or of entries.
typedef struct {
  int8_t *codes;      // [tokens / 16][columns / 64][16 tokens][64]
  float *block_scale; // [tokens / 16][blocks][16]
  int8_t *rest;       // entry e of a list at 32 * (its `at` + e): 32 codes; 16 of a list's last can be loaded
} st_amx_view;

static inline bool st_amx_takes(st_activation kind, size_t tokens) {
  return kind != ST_ACT_F32 && tokens >= AMX_SIDE;
}

// Lays the copy out from `base`, which may be NULL; returns the bytes it takes.
static inline size_t st_amx_view_of(st_activation kind, size_t tokens, size_t columns, void *base, st_amx_view *v) {
  size_t all = st_round_up(tokens, AMX_SIDE), used = 0;
  size_t block_array = all * (st_round_up(columns, ST_STEP) / ST_STEP) * 4;
  v->codes = st_view_take(base, &used, all * st_round_up(columns, AMX_DEPTH));
  if (kind == ST_ACT_INT8_TOKEN) return used;
  v->block_scale = st_view_take(base, &used, block_array);
  size_t entries = (tokens + ST_TILE_MOST) * (st_round_up(columns, ST_STEP) / ST_STEP) + AMX_SIDE;
  v->rest = st_view_take(base, &used, st_round_up(entries * ST_STEP, 64));
  return used;
}

// After AVX-512's own.
static inline st_amx_view st_amx_view_input(const st_input *input) {
  st_view v;
  st_amx_view tiles = {0};
  uint8_t *behind = (uint8_t *)input->data + st_view_of(input->kind, input->tokens, input->columns, NULL, &v);
  st_amx_view_of(input->kind, input->tokens, input->columns, behind, &tiles);
  return tiles;
}

// The tile instructions do not tell the compiler what memory they read: writes before them must be complete, and writes
// after them must wait.
static inline void st_amx_fence(void) {
  __asm__ volatile("" ::: "memory");
}

// Tiles 0 to 3 become sums of `tokens` (at most 16) x 16 rows, 4 and 5 operands of as many tokens x `depth` bytes, 6
// and 7 of `depth` bytes x 16 rows. For the calling thread, until _tile_release.
static inline void st_amx_configure(size_t tokens, size_t depth) {
  struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } config = {.palette = 1};
  for (int i = 0; i < 8; i++) {
    config.row_bytes[i] = (uint16_t)(i == 4 || i == 5 ? depth : 4 * AMX_SIDE);
    config.rows[i] = (uint8_t)(i < 6 ? tokens : depth / 4);
  }
  // The instruction tells GCC that it reads the first 8 bytes alone: without this it leaves the others unwritten.
  __asm__ volatile("" ::"r"(&config) : "memory");
  _tile_loadconfig(&config);
  st_amx_fence();
}

// Tiles 0 to 3 begin at zero, or with the sums [4][16][16] in memory, and are stored there.
static inline void st_amx_load_sums(const void *sums, bool fresh) {
  const uint8_t *p = sums;
  st_amx_fence();
  if (fresh) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, p, AMX_DEPTH);
    _tile_loadd(1, p + AMX_TILE, AMX_DEPTH);
    _tile_loadd(2, p + 2 * AMX_TILE, AMX_DEPTH);
    _tile_loadd(3, p + 3 * AMX_TILE, AMX_DEPTH);
  }
}

static inline void st_amx_store_sums(void *sums) {
  uint8_t *p = sums;
  _tile_stored(0, p, AMX_DEPTH);
  _tile_stored(1, p + AMX_TILE, AMX_DEPTH);
  _tile_stored(2, p + 2 * AMX_TILE, AMX_DEPTH);
  _tile_stored(3, p + 3 * AMX_TILE, AMX_DEPTH);
}

// What st_amxbf16_init builds on: inputs of the int8 kinds.
size_t st_amx_input_bytes(st_activation kind, size_t tokens, size_t columns);
void st_amx_prepare(const st_input *input, const float *x, size_t stride, const float *norm, float eps, size_t first,
                    size_t last);

// Fill in products: by token of trits with a scale a row; of all forms with int8 activations by block, and by token of
// trits with a scale a block.
void st_amx_rows(st_kernels *k);
void st_amx_blocks(st_kernels *k);

#endif
