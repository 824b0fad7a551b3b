// Shared by formats whose tensors are rows of blocks: a format's file reads and writes one block; the functions here do
// the rest.
#ifndef SETUN_QUANT_ROWS_H
#define SETUN_QUANT_ROWS_H

#include "base/bytes.h"
#include "quant/quant.h"

// One block of a value format: format->block weights, format->block_bytes bytes.
typedef struct st_value_block {
  void (*decode)(const uint8_t *block, float *out);
  void (*encode)(const float *in, uint8_t *block); // NULL: read only
  uint32_t n_scales, scale_at[2];                  // offsets of half-precision scales (and minimums) in the block
  void (*parts)(const uint8_t *block, st_block_parts *out); // codes and sub-blocks' scales; NULL: none
  bool e8m0; // the block's first byte is its scale, a power of two; 255 is NaN
  // As `encode`, with the scales that minimize the squared error, weighted by importance (NULL: all equal);
  // NULL: there is none.
  void (*fit)(const float *in, const float *importance, uint8_t *block);
} st_value_block;

void st_value_decode(const st_format *format, st_shape shape, const st_strip *strip, const void *data, float *out);
void st_value_encode(const st_format *format, st_shape shape, const st_strip *strip, const float *in, void *data);

#define ST_VALUE_OPS(block_)                                                                                           \
  { .value = (block_), .decode = st_value_decode, .encode = st_value_encode }
#define ST_VALUE_FIELDS(block_) .value = (block_), .decode = st_value_decode
#define ST_VALUE_OPS_READ(block_)                                                                                      \
  { ST_VALUE_FIELDS(block_) }

// A ternary format whose rows are contiguous: a row is `head` bytes and then steps of `step` weights in `step_bytes`
// bytes; the last step may be shorter (whole bytes) if the format takes any K.
enum { ST_STEP_MAX = 320 };
typedef enum st_scale_type { ST_SCALE_F16, ST_SCALE_F32 } st_scale_type;
typedef struct st_ternary_rows {
  uint32_t step, step_bytes; // step is at most ST_STEP_MAX, and format->block for ST_SCALE_BLOCK
  uint32_t head;             // bytes of a row's scale (ST_SCALE_ROW), which comes first
  uint32_t scale_at;         // ST_SCALE_BLOCK: offset of the scale in a step
  st_scale_type scale_type;
  // `n` weights, a whole step except at the end of a row.
  void (*unpack)(const uint8_t *step, size_t n, int8_t *trits);
  void (*pack)(const int8_t *trits, size_t n, uint8_t *step); // pads a partial step's last byte with trit 0
  ptrdiff_t (*check)(const uint8_t *step, size_t n);          // offset of the first invalid byte, or -1
  bool (*holds)(const int8_t *trits);                         // whether a step can be packed; NULL: any can
} st_ternary_rows;

void st_rows_unpack(const st_format *format, st_shape shape, const st_strip *strip, const void *data, int8_t *trits,
                    float *scales);
int64_t st_rows_check(const st_format *format, st_shape shape, const st_strip *strip, const void *data);
void st_rows_pack(const st_format *format, st_shape shape, const st_strip *strip, const int8_t *trits,
                  const float *scales, void *data);
void st_rows_dot(const st_format *format, st_shape shape, const st_strip *strip, const void *data, uint64_t row,
                 const int8_t *x, int32_t *sums);

#define ST_TERNARY_FIELDS(rows_, codes_)                                                                               \
  .rows = (rows_), .codes = (codes_), .unpack = st_rows_unpack, .check = st_rows_check, .pack = st_rows_pack,          \
  .dot = st_rows_dot
#define ST_TERNARY_OPS(rows_, codes_, two_)                                                                            \
  { ST_TERNARY_FIELDS(rows_, codes_), .two_is_valid = (two_) }

// Helpers for the formats' files.

// 4-bit codes of 2 n weights from n bytes: the low halves are the first n.
static inline void st_split_nibbles(const uint8_t *bytes, size_t n, uint8_t *codes) {
  for (size_t i = 0; i < n; i++) codes[i] = bytes[i] & 15;
  for (size_t i = 0; i < n; i++) codes[n + i] = bytes[i] >> 4;
}

// The weight of largest magnitude, with its sign.
static inline float st_extreme_of(const float *in, size_t n) {
  float extreme = 0;
  for (size_t i = 0; i < n; i++)
    if ((in[i] < 0 ? -in[i] : in[i]) > (extreme < 0 ? -extreme : extreme)) extreme = in[i];
  return extreme;
}

static inline void st_range_of(const float *in, size_t n, float *min, float *max) {
  *min = *max = in[0];
  for (size_t i = 1; i < n; i++) {
    if (in[i] < *min) *min = in[i];
    if (in[i] > *max) *max = in[i];
  }
}

// 2-bit codes (trit + 1) of 4 n weights in n bytes: byte i has weight i + n l at bits 2 l.
static inline void st_unpack_plane(const uint8_t *bytes, size_t n, int8_t *trits) {
  for (size_t l = 0; l < 4; l++)
    for (size_t i = 0; i < n; i++) trits[i + n * l] = (int8_t)((bytes[i] >> 2 * l & 3) - 1);
}
static inline void st_pack_plane(const int8_t *trits, size_t n, uint8_t *bytes) {
  for (size_t i = 0; i < n; i++) {
    int byte = 0;
    for (size_t l = 0; l < 4; l++) byte |= (trits[i + n * l] + 1) << 2 * l;
    bytes[i] = (uint8_t)byte;
  }
}

// Whether one of a byte's four 2-bit codes is 3.
static inline bool st_has_code3(uint8_t byte) {
  return byte & byte >> 1 & 0x55;
}

// The first of `n` bytes that holds a code 3, or -1.
ptrdiff_t st_find_code3(const uint8_t *bytes, size_t n);

// Converts a number scaled to about lo..hi to an integer in lo..hi; NaN becomes lo. Truncates.
static inline int st_clamp_int(float x, int lo, int hi) {
  if (!(x > (float)lo)) return lo;
  return x >= (float)hi ? hi : (int)x;
}

#endif
