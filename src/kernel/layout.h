// Memory layouts: the parts of a group in each form, and the arrays inside a prepared input. Shared by all tables.
#ifndef SETUN_KERNEL_LAYOUT_H
#define SETUN_KERNEL_LAYOUT_H

#include "kernel/kernel.h"

enum {
  ST_TILE_MOST = 8,        // no table's tiles are wider
  ST_STEP = 32,            // columns are padded to this, and int8 activations by block share a scale over it
  ST_SCALES = 2 * ST_GROUP // bytes of the 16 half-precision scales of a block
};

static inline size_t st_round_up(size_t n, size_t unit) {
  return (n + unit - 1) / unit * unit;
}

// How a step, 32 columns of a group of codes, is laid out:
//
//   `front` bytes of scales | a plane of `low` bits a code | a plane of `high` bits a code | `back` bytes of scales
//
// and before every ST_SUPER columns (by_block: st_matrix.block) `head` bytes of half-precision numbers. Planes are made
// of 64-byte pieces: of part i of a step, columns 4i to 4i + 3, byte 4r + j is row r, column 4i + j. A plane of b bits
// has 8 / b parts in a piece, the first in the lowest bits. A form is made of numbers [columns][16], of steps as above,
// of pieces of five codes a byte, see st_fives, or of patterns, see ST_PATTERN_STEP.
typedef enum st_form_kind { ST_KIND_FLOATS, ST_KIND_CODES, ST_KIND_FIVES, ST_KIND_PATTERNS } st_form_kind;
typedef enum st_number { ST_NUMBER_F32, ST_NUMBER_F16, ST_NUMBER_BF16 } st_number;

// How d and m are read. Small integers at `back`, where there are any, multiply them.
typedef enum st_scale_rule {
  ST_RULE_HALF,    // half precision, at the head or in front; integers at `back` are int8, then minimums as uint8
  ST_RULE_NIBBLES, // the same, but the integers are 4 bits, those of minimums the high ones
  ST_RULE_E8M0,    // a power of two a byte
  ST_RULE_ZERO,    // half precision, then zero points as int8: m = d * -z
  ST_RULE_HALVED,  // half precision, twice the scale
  ST_RULE_ROW      // none in the stream: st_matrix.scales
} st_scale_rule;

typedef struct st_coding {
  uint8_t kind, number, rule; // st_form_kind, st_number, st_scale_rule
  uint8_t low, high;          // bits of the planes: 1, 2 or 4 each, 6 at most together, high may be 0; or 8 and 0, int8
  uint8_t head, front, back;
  uint8_t subs;         // scales of a row in a step: one, or one for each 16 columns
  uint8_t offset;       // a code minus its value; with values: no value is below -offset, or above it
  bool minimums;        // weight = d * code + m; codes of 8 bits are 128 smaller, and m is 128 d larger than stored
  bool by_block;        // heads are placed before every st_matrix.block columns
  bool sparse;          // 2 of each 4 codes are stored, see below; low 2 and high 1 then only give the number of bytes
  const int8_t *values; // the values of 16 codes, instead; NULL: none
  bool twos;            // these are the codes as signed integers (addresses of tables are compared at run time)
} st_coding;

enum { ST_SUPER = 256 };

// Sparse steps: two pieces of 4-bit codes, then one of places. A part's two codes of row r are the bytes 4r + 2 (i % 2)
// and the next of piece i / 4, in the high half for parts 2, 3, 6 and 7. In the third piece the byte of the same number
// has their places, columns of the part, in bits 2 (i / 2) and above: shifted by 2j, the four bytes of a row are those
// of its codes of columns 8j to 8j + 7. The other two columns of a part have code 0. Codes may be in either order;
// these are the six pairs, of which no two have the same low three bits as first + 4 * second.
static const uint8_t st_sparse_places[6][2] = {{0, 1}, {0, 2}, {3, 0}, {1, 2}, {1, 3}, {2, 3}};
// By these three bits: the bytes that shuffle the codes of part 0 to their columns; bytes with the top bit set give 0.
static const uint32_t st_sparse_moves[8] = {0x80018000, 0x80010080, 0x80808080, 0x00808001,
                                            0x80800100, 0x01800080, 0x01008080, 0x80808080};

// Inline, so that the properties of a constant form are constants.
static inline st_coding st_coding_of(st_form form) {
  enum { D = ST_SCALES, DM = 2 * ST_SCALES, BYTES = ST_GROUP };
  static const st_coding codings[ST_FORM_COUNT] = {
#define FORM(id, name, kind_, activations, rows, format, dense, ...)                                                   \
  [ST_FORM_##id] = {.kind = ST_KIND_##kind_, __VA_ARGS__},
#include "kernel/forms.def"
  };
  return codings[form];
}

// Whether codes, or their values, may take all of a byte with their sign.
static inline bool st_coding_is_byte(st_coding c) {
  return c.low == 8 || (c.values && c.offset > 63);
}

// The largest byte that a code becomes or, where codes have values, a value plus the offset.
static inline int st_coding_largest(st_coding c) {
  return c.values ? 2 * c.offset : (1 << (c.low + c.high)) - 1;
}

static inline bool st_form_is(st_form form, st_form_kind kind) {
  return st_coding_of(form).kind == kind;
}

// For the lists of forms: ST_IF_BLOCK_##activations(each, ID) is each(ID) for forms whose products take int8 by block,
// and nothing for others. By token the same; and ST_IF_CODES_##kind for forms of codes, ST_IF_FIVES_##kind for fives,
// ST_IF_PATTERNS_##kind for patterns.
#define ST_IF_BLOCK_F(each, id)
#define ST_IF_BLOCK_T(each, id)
#define ST_IF_BLOCK_FB(each, id) each(id)
#define ST_IF_BLOCK_FTB(each, id) each(id)
#define ST_IF_TOKEN_CODES_F(each, id)
#define ST_IF_TOKEN_CODES_T(each, id) each(id)
#define ST_IF_TOKEN_CODES_FB(each, id)
#define ST_IF_TOKEN_CODES_FTB(each, id) each(id)
#define ST_IF_TOKEN_FLOATS_F(each, id)
#define ST_IF_TOKEN_FIVES_T(each, id)
#define ST_IF_TOKEN_PATTERNS_T(each, id)
#define ST_IF_FLOATS_FLOATS(each, id) each(id)
#define ST_IF_FLOATS_CODES(each, id)
#define ST_IF_FLOATS_FIVES(each, id)
#define ST_IF_FLOATS_PATTERNS(each, id)
#define ST_IF_CODES_FLOATS(each, id)
#define ST_IF_CODES_CODES(each, id) each(id)
#define ST_IF_CODES_FIVES(each, id)
#define ST_IF_CODES_PATTERNS(each, id)
#define ST_IF_FIVES_FLOATS(each, id)
#define ST_IF_FIVES_CODES(each, id)
#define ST_IF_FIVES_FIVES(each, id) each(id)
#define ST_IF_FIVES_PATTERNS(each, id)
#define ST_IF_PATTERNS_FLOATS(each, id)
#define ST_IF_PATTERNS_CODES(each, id)
#define ST_IF_PATTERNS_FIVES(each, id)
#define ST_IF_PATTERNS_PATTERNS(each, id) each(id)

// Bytes of a step without heads; of numbers, of 32 columns.
static inline size_t st_step_bytes(st_form form) {
  st_coding c = st_coding_of(form);
  if (c.kind == ST_KIND_FLOATS) return ST_STEP * ST_GROUP * (c.number == ST_NUMBER_F32 ? 4 : 2);
  return (size_t)c.front + 64 * (size_t)(c.low + c.high) + c.back;
}

// Steps between heads.
static inline size_t st_super_steps(st_form form, uint32_t block) {
  return (st_coding_of(form).by_block ? block : ST_SUPER) / ST_STEP;
}

// Five codes a byte: a row of pieces of 64 bytes, each for 20 columns, and by block the same after the scales of each
// block. Byte 4r + j of a piece holds the codes of row r and columns j, 4 + j, 8 + j, 12 + j and 16 + j. With f = c0 +
// 3 c1 + 9 c2 + 27 c3, 0 to 80, it is 64 c4 + f for f below 64, so that its low 6 bits are the index of a table of 64
// bytes, and 192 + 17 c4 + (f - 64) for the others. Columns after a block, or after the last 32 of a row, have code
// 0: they are not in the input's sums either, and the input's memory there is not read.
enum { ST_FIVE_COLUMNS = 20 };

static inline size_t st_five_pieces(size_t columns) {
  return (columns + ST_FIVE_COLUMNS - 1) / ST_FIVE_COLUMNS;
}

// Eight such bytes from the codes c0 to c4 of each: those of f at least 64 have bit 6.
static inline uint64_t st_five_bytes(uint64_t f, uint64_t c4) {
  uint64_t large = f >> 6 & 0x0101010101010101u;
  large = (large << 8) - large;
  return f + (c4 << 6 & ~large) + ((0x8080808080808080u + (c4 << 4) + c4) & large);
}

// 16 consecutive columns of a row, 2 bits each, to the row's word of their block of 2-bit codes: the 4 x 4 codes are
// transposed.
static inline uint32_t st_transpose_codes(uint32_t x) {
  uint32_t swap = (x ^ x >> 6) & 0x00CC00CC;
  x ^= swap ^ swap << 6;
  swap = (x ^ x >> 12) & 0x0000F0F0;
  return x ^ swap ^ swap << 12;
}

// The blocks of a group of fives; with a scale a row it is one block without a head.
typedef struct st_fives {
  size_t blocks, columns, head, bytes;
} st_fives;

static inline st_fives st_fives_of(st_form form, size_t columns, uint32_t block) {
  if (!st_coding_of(form).by_block) return (st_fives){1, columns, 0, 64 * st_five_pieces(columns)};
  return (st_fives){(columns + block - 1) / block, block, ST_SCALES, ST_SCALES + 64 * st_five_pieces(block)};
}

// Patterns: after the scales of each block, a step for every ST_PATTERN_STEP columns: 32 codes of 5 bits a row, as
// those of 32 columns are laid out with planes of 4 bits and of 1. Code 16h + m is the pattern of the columns 64h + m +
// 16p, p from 0 to 3, that st_sherry_patterns has at that index: bits 2p and 2p + 1 are the trit plus 1. Blocks, and
// rows, are whole steps.
enum { ST_PATTERN_STEP = 128, ST_PATTERN_BYTES = 64 * 5 };

static inline size_t st_pattern_block_bytes(uint32_t block) {
  return ST_SCALES + block / ST_PATTERN_STEP * (size_t)ST_PATTERN_BYTES;
}

// For st_form_pack_strip: 16 rows of ceil(columns / 5) bytes, five consecutive codes a byte in base 3, the first the
// least significant; the form is T16 or T5, columns a multiple of 32.
void st_pack_digits(st_form form, size_t columns, const uint8_t *rows, uint8_t *group);

// For st_form_can_squeeze and st_form_squeeze.
bool st_can_be_patterns(size_t columns, uint32_t block, const uint8_t *group);
void st_make_patterns(size_t columns, uint32_t block, const uint8_t *from, uint8_t *to);

// A prepared input seen from inside. Tokens come in tiles of `width` (fewer in the last one); within a tile the tokens
// are interleaved every 4 codes (every value, for float32), so that the loops that take a tile read one stream:
//
//   codes of a tile of n tokens:   [padded / 4][n][4]      values: [padded][n]      block arrays: [blocks][n]
//
// Int8 activations by block have a second plane of codes for the few blocks in which one value dwarfs the others, which
// would otherwise lose most of their bits: the remainders of rounding to the first, in steps 254 times finer. With it
// the default mode is several times closer to float32; see docs/kernels.md. It is kept as lists, since the tokens of a
// tile rarely need it for the same blocks. The scalar table has one for each token: entry i of token t stands at t *
// blocks + i, its 32 codes at t * padded + 32 * i. The others have one for each block of a chunk of tokens, in tiles of
// its own, so that a block's codes are unpacked for a whole tile of entries; see st_chunk.
typedef struct st_view {
  size_t padded, blocks;
  float *values;         // ST_ACT_F32
  int8_t *codes;         // the int8 kinds, and all below
  float *scale;          // [tokens] s of each token (ST_ACT_INT8_TOKEN)
  int32_t *sum;          // [tokens] sum of its codes
  int32_t *block_sum;    // sums of 32 codes
  float *block_scale;    // ST_ACT_INT8_BLOCK, and all below: absmax / 127 of the 32
  float *block_product;  // sum of the values of all 32 codes
  int8_t *rest;          // the second plane
  uint32_t *rest_count;  // entries of each list
  uint32_t *rest_place;  // of each entry: its block in a token's list, its token in the chunk in a block's list
  float *rest_scale;     // block_scale / 254
  int32_t *rest_sum;     // sums of its codes
  int32_t *rest_half[2]; // sums of its first and of its last 16 codes
  int32_t *half_sum[2];  // sums of the first and of the last 16 of the 32 codes
  float *half_product;   // [blocks][2][n]: the sums of the values of the first and the last 16
} st_view;

// The sum of the values of codes: `sum` is that of the first plane's codes, with scale d, and `rest` that of the second
// plane's, with scale `finer`.
static inline float st_product_of(float d, int32_t sum, float finer, int32_t rest) {
  return d * (float)sum + finer * (float)rest;
}

// The next `bytes` from `base`, which may be NULL to count alone.
static inline void *st_view_take(uint8_t *base, size_t *used, size_t bytes) {
  uint8_t *at = base ? base + *used : NULL;
  *used += bytes;
  return at;
}

// Lays the arrays out from `base`, which may be NULL; returns the bytes they take.
static inline size_t st_view_of(st_activation kind, size_t tokens, size_t columns, void *base, st_view *v) {
  v->padded = st_round_up(columns, ST_STEP);
  v->blocks = v->padded / ST_STEP;
  size_t used = 0;
  size_t token_array = st_round_up(tokens * 4, 64), block_array = st_round_up(tokens * v->blocks * 4, 64);
  v->values = st_view_take(base, &used, st_round_up(tokens * v->padded * (kind == ST_ACT_F32 ? 4 : 1), 64));
  v->codes = (int8_t *)v->values;
  if (kind == ST_ACT_F32) return used;
  v->scale = st_view_take(base, &used, token_array);
  v->sum = st_view_take(base, &used, token_array);
  v->block_sum = st_view_take(base, &used, block_array);
  if (kind == ST_ACT_INT8_TOKEN) return used;
  v->block_scale = st_view_take(base, &used, block_array);
  v->block_product = st_view_take(base, &used, block_array);
  size_t entries = tokens + (tokens > ST_TILE_MOST ? ST_TILE_MOST : 0); // a chunk's last tile of entries is whole
  size_t entry_array = st_round_up(entries * v->blocks * 4, 64);
  v->rest = st_view_take(base, &used, st_round_up(entries * v->padded, 64));
  v->rest_count = st_view_take(base, &used, block_array);
  v->rest_place = st_view_take(base, &used, entry_array);
  v->rest_scale = st_view_take(base, &used, entry_array);
  v->rest_sum = st_view_take(base, &used, entry_array);
  for (int i = 0; i < 2; i++) {
    v->rest_half[i] = st_view_take(base, &used, entry_array);
    v->half_sum[i] = st_view_take(base, &used, block_array);
  }
  v->half_product = st_view_take(base, &used, 2 * block_array);
  return used;
}

static inline st_view st_view_input(const st_input *input) {
  st_view v = {0};
  st_view_of(input->kind, input->tokens, input->columns, input->data, &v);
  return v;
}

// Tokens in the tile that starts at token `first`.
static inline size_t st_tile_tokens(size_t tokens, size_t first, size_t width) {
  return tokens - first < width ? tokens - first : width;
}

// A chunk: up to ST_CHUNK_TILES whole tiles of tokens, fewer at an input's end, that share lists of the blocks with a
// second plane. An eighth of an input, so that threads can share its chunks.
enum { ST_CHUNK_TILES = 8 };

static inline size_t st_chunk_tokens(size_t tokens, size_t width) {
  size_t each = st_round_up((tokens + 7) / 8, width);
  return each < ST_CHUNK_TILES * width ? each : ST_CHUNK_TILES * width;
}

// The list of a chunk that starts at token `first`, of block `block`. Entries are in tiles of `width`, whose codes are
// interleaved like those of tokens: word j of entry e is at word (e / width * 8 + j) * width + e % width from 32 * at
// on, everything else at `at` + e.
typedef struct {
  size_t count_at, at, width;
} st_rest_list;

static inline st_rest_list st_rest_list_of(const st_view *v, size_t tokens, size_t width, size_t first, size_t block) {
  size_t chunk = st_chunk_tokens(tokens, width), n = tokens - first < chunk ? tokens - first : chunk;
  size_t each = n < width ? n : width;
  return (st_rest_list){first / chunk * v->blocks + block, first * v->blocks + block * st_round_up(n, each), each};
}

#endif
