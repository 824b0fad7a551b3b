// Tensor formats: what the bytes of each mean. One row in formats.def and one file a format.
//
// Two kinds. Value formats (floats and quantized blocks) decode rows to float32. Ternary formats decode to the
// canonical form - trits in {-1, 0, +1} and scales - and encode from it; their floats are trit times scale.
//
// Code 3. Two bits have a fourth code. In the Q2_0 formats it is a value, +2 (`two_is_valid`); elsewhere it is invalid.
// `unpack` gives 2 for it everywhere, and `check` reports it everywhere, since such weights are not ternary. So readers
// of Q2_0 values need not call `check`; code that promises trits must.
//
// Nothing here touches files. A caller asks `locate` which bytes hold some rows, reads these, and decodes them, so that
// a tensor need never be in memory as a whole.
#ifndef SETUN_QUANT_QUANT_H
#define SETUN_QUANT_QUANT_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum st_format_id {
#define FORMAT(id, name, gguf, block, bytes, scales, ops) ST_##id,
#include "quant/formats.def"
#undef FORMAT
  ST_FORMAT_COUNT
} st_format_id;

typedef struct st_format st_format;

// A matrix of weights in some format: [rows, columns], columns being K, the input dimension.
typedef struct st_shape {
  uint64_t rows, columns;
} st_shape;

// Where the bytes of some rows lie in a tensor: rows [row, row + count), from byte `offset`, `bytes` long.
typedef struct st_strip {
  uint64_t row, count;
  uint64_t offset, bytes;
} st_strip;

// How a ternary tensor's scales are shared.
typedef enum st_scale_kind {
  ST_SCALE_NONE,   // not a ternary format
  ST_SCALE_OUTER,  // in a tensor of its own, one or one a row (t2, t5, t16, hf-u8)
  ST_SCALE_TENSOR, // one float32, inside the tensor (i2_s)
  ST_SCALE_ROW,    // one a row, inside
  ST_SCALE_BLOCK   // one half-precision number a block of `block` weights, inside
} st_scale_kind;

typedef struct st_format_ops st_format_ops;
struct st_value_block; // quant/rows.h: how one block of a value format is read and written
struct st_block_parts;
struct st_ternary_rows; // quant/rows.h: the same for a ternary format whose rows follow one another

// Weights of one row whose 2-bit codes are at the same place of consecutive bytes.
typedef struct st_code_run {
  uint64_t offset; // of the first weight's byte in the tensor
  uint64_t length; // weights; may run past the row's end
  unsigned shift;  // of the code in each byte
} st_code_run;

// How a ternary format stores codes, trit + 1, for code that only moves them to other places: two bits each, except
// digits.
typedef enum st_code_order {
  ST_CODES_PLANES, // each `width` bytes of a step hold 4 * width columns: bit pair p of each, from shift `first` on by
                   // `next`, the columns from p * width on; width 1 is thus 4 consecutive columns a byte
  ST_CODES_SHARED, // rows share bytes: a whole row has one shift, see st_format_ops.run
  ST_CODES_DIGITS, // five consecutive columns a byte, digits in base 3, the first the least significant
  ST_CODES_GROUPS  // 16 rows are a group in the kernels' own order, as st_format_ops.run says
} st_code_order;

// Along a row: after `head` bytes come steps of `step` columns in `step_bytes` bytes, whose codes begin `lead` bytes
// in.
typedef struct st_code_layout {
  st_code_order order;
  uint16_t step, step_bytes;
  uint8_t head, lead, width;
  int8_t first, next;
  uint8_t rows; // 16 whole rows are contiguous only where a tensor's rows are a multiple of this; 0: always
} st_code_layout;

// Blocks that Hugging Face directories keep in two tensors: bytes of codes, as many as the block has except the first,
// and a byte of scale, which is the block's first.
typedef struct st_hf_blocks {
  const char *method; // quant_method of config.json
  // `codes` and `block` must not overlap.
  void (*join)(uint8_t scale, const uint8_t *codes, uint8_t *block);
  void (*split)(const uint8_t *block, uint8_t *codes);
} st_hf_blocks;

// The parts of synthetic models, each of which has a default format.
typedef enum st_synthetic_part {
  ST_SYNTHETIC_NONE,
  ST_SYNTHETIC_MATRICES, // their layers' matrices
  ST_SYNTHETIC_PLANNED,  // these, in a model that is only planned
  ST_SYNTHETIC_HEAD      // the embedding and the head
} st_synthetic_part;

struct st_format {
  st_format_id id;
  const char *name;     // as printed and as options spell it
  int64_t gguf_type;    // -1: it has none. Several formats may share one, see st_format_next_reading
  uint32_t block;       // weights a block along K
  uint32_t block_bytes; // 0: the format is not made of equal blocks, see its file
  st_scale_kind scales;
  const st_format_ops *ops;
};

struct st_format_ops {
  // What the shared functions of quant/rows.h work with; NULL where the format has its own.
  const struct st_value_block *value;
  const struct st_ternary_rows *rows;
  // Ternary formats whose bytes mix distant weights (quant/runs.h): where a row's weights from column k on are.
  st_code_run (*run)(st_shape shape, uint64_t row, uint64_t k);
  // Ternary formats of 2-bit codes: their places; NULL: other formats.
  const st_code_layout *codes;
  // Ternary formats: code 3 is a value, +2 (the Q2_0 kinds).
  bool two_is_valid;

  // Properties of its files; zero for most.
  const char *dtype;             // its name in safetensors; NULL: it has none
  const char *dividing;          // its name in options with scales that divide; NULL: they multiply
  const st_hf_blocks *hf_blocks; // NULL: Hugging Face directories do not store it so
  const char *digits;            // the value of the key setun.t5.digits in its files; NULL: none
  st_format_id wider;            // floats that are only read: the format that is written and holds them exactly
  st_format_id packed_as;        // another format whose form in the kernels it takes; 0: none
  const char *scheme;            // another name of it in quantization; NULL: none
  uint8_t row_head;      // value formats: bytes of a row before its blocks, first the half-precision scale of all
  bool zero_points;      // integers with a scale and a zero point a block, see st_zp_format
  bool sparse;           // of each four weights two are there, see s24.h
  bool halved;           // the values of its codes are doubled, and its scales are halved for that
  uint16_t exponent;     // plain floats: the exponent's bits in the upper half of the number's last four bytes
  uint8_t affine_bits;   // of MLX's groups: bits of a code; 0: another format
  bool bfloat;           // half-precision scales and minimums are bfloat16
  uint8_t row_parts;     // bytes fill 1 / row_parts as many rows, each for one row of every part; or 0
  bool of_int8_models;   // only models trained for int8 activations are published in it
  bool is_usual;         // assumed if nothing in a file distinguishes it from the later readings
  uint8_t synthetic;     // st_synthetic_part that it is the default of
  bool has_input_scales; // its files also have scales of activations, for other processors

  // Formats whose tensors are not simply one row's bytes after the other (i2_s, t16, hf-u8); NULL for the others.
  // Bytes of the whole tensor. Errors: K no multiple of the block, overflow.
  setun_status (*size)(const st_format *format, st_shape shape, uint64_t *bytes, setun_error *err);
  // The bytes that hold rows from `row` on: at most `want` rows, possibly fewer (never none), so that they are one
  // contiguous range. `row` < shape.rows. Strips of different rows may overlap in bytes.
  st_strip (*locate)(const st_format *format, st_shape shape, uint64_t row, uint64_t want);

  // Value formats: `data` holds the strip's bytes; writes strip.count * K floats.
  void (*decode)(const st_format *format, st_shape shape, const st_strip *strip, const void *data, float *out);
  // Value formats that are also written: the strip's bytes from finite floats, by the format's usual rounding. NULL:
  // only read.
  void (*encode)(const st_format *format, st_shape shape, const st_strip *strip, const float *in, void *data);

  // Value formats of several block sizes, instead of value->parts: see st_format_parts.
  void (*parts)(const st_format *format, const uint8_t *block, struct st_block_parts *out);
  // Value formats with bytes that no writer makes: where the first of a block is, or -1.
  int64_t (*invalid)(const st_format *format, const uint8_t *block);

  // Ternary formats; NULL otherwise. `trits` is int8 [count, K]; `scales` (may be NULL) receives what lies inside the
  // strip's own bytes: count * K/block floats for ST_SCALE_BLOCK, count floats for ST_SCALE_ROW, nothing otherwise.
  void (*unpack)(const st_format *format, st_shape shape, const st_strip *strip, const void *data, int8_t *trits,
                 float *scales);
  // The first byte that holds an invalid code, or a base-3 byte that no writer makes: its offset within the tensor, or
  // -1.
  int64_t (*check)(const st_format *format, st_shape shape, const st_strip *strip, const void *data);
  // Trits and scales (laid out as for `unpack`) to bytes. Where bytes mix distant rows (formats with a `locate` of
  // their own) codes are ORed into the strip's bytes: `data` points into a tensor that was zeroed before its first
  // strip. The scale of ST_SCALE_TENSOR is the caller's to store, at scale_offset.
  void (*pack)(const st_format *format, st_shape shape, const st_strip *strip, const int8_t *trits, const float *scales,
               void *data);
  // ST_SCALE_TENSOR: the offset of the float32 scale in the tensor.
  uint64_t (*scale_offset)(const st_format *format, st_shape shape);
  // The scalar reference: sum over K of trit * x for one row of the strip, straight from the packed bytes, one sum; for
  // ST_SCALE_BLOCK one sum a block. `row` counts from the tensor's first. `x` is int8 [K], in -127..127; K is at most
  // 2^23, so that no sum overflows.
  void (*dot)(const st_format *format, st_shape shape, const st_strip *strip, const void *data, uint64_t row,
              const int8_t *x, int32_t *sums);
};

const st_format *st_format_get(st_format_id id);
// NULL when nothing has that name or type.
const st_format *st_format_by_name(const char *name);
const st_format *st_format_by_gguf_type(uint32_t type);
// By its name or its name with scales that divide; *divides says which.
const st_format *st_format_by_layout(const char *name, bool *divides);
// By its name in safetensors.
const st_format *st_format_by_dtype(const char *dtype);
// Whose blocks are in two tensors under that quant_method; NULL as method: under any.
const st_format *st_format_by_hf_method(const char *method);
// MLX's groups of so many columns and bits a code; NULL: no format has these.
const st_format *st_format_of_affine(uint32_t bits, uint32_t group, bool bfloat);
// What all formats decode to, and what vectors and scales are written in: float32.
const st_format *st_format_of_floats(void);
// The format of latent weights once they are read: trits with one separate scale.
const st_format *st_format_of_latent(void);
// Another format with the same GGUF type, NULL after the last one: projects use one id for several layouts (42 is
// q2_0 and q2_0-128; 36 is i2_s in three orders; the key `setun.t5.digits` tells t5 from t5-zpm). The first of the
// table is what the id usually means.
const st_format *st_format_next_reading(const st_format *format);
// The default format of a part of synthetic models.
const st_format *st_format_of_synthetic(st_synthetic_part part);
// Whether its GGUF type may mean another layout, read or not, so that a file alone may leave it open.
bool st_format_is_ambiguous(const st_format *format);
// Formats that are not read, but have the type id of one that is ("IQ2_TN of ik_llama.cpp, ..."), for the message when
// the sizes fit no reading; NULL: none known.
const char *st_gguf_type_rivals(uint32_t type);
// The name of a GGUF type, also of one that is not read and of integers ("IQ3_S", "I32"); NULL: unknown.
const char *st_gguf_type_name(uint32_t type);
// Describes a GGUF type that is not read and what to do about it, as a phrase to put after the type's number; never
// NULL.
const char *st_gguf_type_hint(uint32_t type);

static inline bool st_format_is_ternary(const st_format *f) {
  return f->scales != ST_SCALE_NONE;
}
// Plain floats, one after the other; and those that Setun also writes.
static inline bool st_format_is_float(const st_format *f) {
  return f->block == 1 && !st_format_is_ternary(f);
}
static inline bool st_format_is_number(const st_format *f) {
  return f->block == 1 && f->ops->encode;
}
// Formats that Setun writes to GGUF files; those that ternary weights are converted to, in any container; and values
// that take more than 6 bits, for embeddings and heads.
static inline bool st_format_is_written(const st_format *f) {
  return f->gguf_type >= 0 && (f->ops->encode || f->ops->pack);
}
static inline bool st_format_is_layout(const st_format *f) {
  return st_format_is_number(f) || f->ops->pack;
}
static inline bool st_format_is_fine(const st_format *f) {
  return f->ops->encode && 8 * f->block_bytes > 6 * f->block;
}
// Scales that `unpack` gives for a row of K weights.
static inline uint64_t st_format_row_scales(const st_format *f, uint64_t columns) {
  return f->scales == ST_SCALE_BLOCK ? columns / f->block : f->scales == ST_SCALE_ROW;
}

// Bytes of one row; 0 where rows are not contiguous. K has passed st_format_size.
uint64_t st_format_row_bytes(const st_format *format, uint64_t columns);
// Bytes of a whole tensor in that format. Errors: an empty shape, K no multiple of the block, overflow.
setun_status st_format_size(const st_format *format, st_shape shape, uint64_t *bytes, setun_error *err);
// The scales alone that `unpack` gives for a strip's bytes: ST_SCALE_BLOCK and ST_SCALE_ROW.
void st_format_strip_scales(const st_format *format, st_shape shape, const st_strip *strip, const void *data,
                            float *scales);
// Ternary formats that hold only some trits (Sherry): whether the format holds all; and the first weight of a row's
// block that it cannot hold, -1: it holds the row.
bool st_format_holds_all(const st_format *format);
int64_t st_format_check_trits(const st_format *format, uint64_t columns, const int8_t *row);
// The first half-precision scale of a value format that is infinite or NaN, or its first invalid code, in `bytes`
// of whole rows, or blocks: its byte offset; -1: all are valid, or the format has none.
int64_t st_format_check_scales(const st_format *format, uint64_t columns, const void *data, uint64_t bytes);
// Whether a tensor of that shape may be written: the format is one that Setun writes, and its rows are whole blocks
// also where existing files run on across rows (i2_s). Errors: as st_format_size, and SETUN_ERROR_UNSUPPORTED.
setun_status st_format_writable(const st_format *format, st_shape shape, setun_error *err);
// For checks with random bytes: gives n bytes of whole blocks of a value format scales from 2^-15 to 2.
void st_format_bound_scales(const st_format *format, uint8_t *blocks, size_t n);
// The bytes of some rows of a tensor; the shape has passed st_format_size. `row` < shape.rows, `want` at least 1.
st_strip st_format_locate(const st_format *format, st_shape shape, uint64_t row, uint64_t want);

// The integers that a block of a value format is made of, for code that multiplies with them rather than with floats.
// Members that a format lacks are unchanged.
enum { ST_PARTS_MAX = 512 };
typedef struct st_block_parts {
  uint16_t d, m;                    // the block's half-precision scale, and that of its minimums
  uint8_t scales[16], minimums[16]; // of sub-blocks: int8 in Q3_K, Q6_K and IQ4_XS; MXFP4: [0] is the E8M0 scale
  uint8_t codes[ST_PARTS_MAX];      // without sign, as stored; int8 in Q8_0 and, less 128, in groups of 8 bits
} st_block_parts;

// Takes a block of quantized values apart (Q4_0 to Q8_0, Q2_0C, Q2_K to Q6_K, IQ4_NL, IQ4_XS, MXFP4, MLX's groups).
// False: the format is not made of such integers.
bool st_format_parts(const st_format *format, const uint8_t *block, st_block_parts *parts);

// The format of integers with zero points (quant/zp.c) of so many bits with the longest blocks that divide `group`;
// NULL: there is none. And one of its blocks: a scale in half precision, the zero point from 0 to 2^bits - 1, and the
// codes likewise.
const st_format *st_zp_format(unsigned bits, uint64_t group);
void st_zp_store(const st_format *format, uint16_t d, int zero, const uint8_t *codes, uint8_t *block);

// The values of the 16 codes of IQ4_NL and IQ4_XS, twice those of MXFP4, the 4 of Q2_0C, and the 16 of integers.
extern const int8_t st_iq4_values[16], st_e2m1_doubled[16], st_seq_values[16], st_int4_values[16];
// Of STQ1_0: four codes of 2 bits, trit + 1; the last 16 are the negations of the first.
extern const uint8_t st_sherry_patterns[32];

#endif
