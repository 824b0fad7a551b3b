// The table of kernels: everything that an instruction set makes fast, and the forms of the matrices that they take.
//
// Files have many layouts, kernels have few. Every matrix is kept in groups of 16 rows, and within a group column by
// column (in blocks), so that 16 lanes hold 16 rows: no horizontal sums, one sequential stream a group, the same order
// of additions on every instruction set, for one token and for many. A group is contiguous; rows and columns are padded
// with zero weights. Forms are described in docs/kernels.md, with pictures.
//
// The scalar table is the reference, always built. Each instruction set starts from another one's table (isas.def) and
// overwrites what it does better. Every function gives the same bits in every table:
// integers because they are exact, floats because the order of additions, the use of fused multiply-add and the
// exponential are laid down once, in docs/kernels.md. The one exception is AMX's product of BF16 weights with float32
// inputs, whose order is laid down there too. For the same reason a token's result does not depend on how many tokens
// or threads there are, in any table.
#ifndef SETUN_KERNEL_KERNEL_H
#define SETUN_KERNEL_KERNEL_H

#include "base/cpu.h"
#include "quant/quant.h"

enum { ST_GROUP = 16 }; // rows of a group

typedef enum st_form {
#define FORM(id, ...) ST_FORM_##id,
#include "kernel/forms.def"
  ST_FORM_COUNT
} st_form;
enum {
#define FORM(...)
#define FORM_OF_PEAKS(id) ST_FORM_OF_PEAKS = ST_FORM_##id
#include "kernel/forms.def"
};

// A matrix in a form. Owned by the placing code.
typedef struct st_matrix {
  st_form form;
  size_t rows, columns;
  uint32_t block;      // columns that share a scale, where the form has such blocks; else any
  bool bfloat;         // half-precision numbers of blocks with minimums are bfloat16
  size_t group_bytes;  // of one group, a multiple of 64
  const uint8_t *data; // [groups][group_bytes], aligned to 64, followed by ST_PAGES_SLACK readable bytes
  const float
      *scales; // [groups * 16] where the form has a scale a row outside its stream (st_form_has_row_scales), else NULL
} st_matrix;

// How a product converts its input.
typedef enum st_activation {
  ST_ACT_F32,        // unchanged
  ST_ACT_INT8_TOKEN, // int8 with one scale a token: s = 127 / max(|x|, 1e-5), round half to even (BitNet)
  ST_ACT_INT8_BLOCK, // int8 with one scale for 32 columns
  ST_ACT_COUNT
} st_activation;

// What st_form_pack takes.
typedef enum st_form_rows { ST_FORM_FLOATS, ST_FORM_TRITS, ST_FORM_BLOCKS } st_form_rows;

// The facts of a form's row in forms.def that placing matrices needs: what st_form_pack takes; whether it has
// one float32 scale a row, in st_matrix.scales; and whether products take that kind of activation (a table of kernels
// may lack the product: st_kernels.matmul).
st_form_rows st_form_rows_taken(st_form form);
bool st_form_has_row_scales(st_form form);
bool st_form_takes(st_form form, st_activation kind);

// The form in which weights of a format are kept (F32 for a value format that has no form of its own), and the bytes of
// a group of 16 rows; `columns` as stored, at most 2^31.
st_form st_form_of(const st_format *format);
size_t st_form_group_bytes(st_form form, size_t columns, uint32_t block);
// Whether a tensor's bytes in that format are the form's already, group after group.
bool st_form_is_stored(const st_format *format);
// Packs a group: `count` (1 to 16) rows that lie at `rows` one after the other - float32, the format's own bytes, or
// int8 trits with `scales` (one a row, or one a row and block; those of st_form_has_row_scales are the caller's to
// keep) - and zero rows after them.
void st_form_pack(st_form form, const st_format *format, size_t columns, uint32_t block, const void *rows,
                  const float *scales, size_t count, uint8_t *group);

// The same straight from a tensor's bytes, for the formats and shapes for which this is true: 16 whole rows from `row`
// on, all of them in the strip, whose bytes these are; `row` and strip->row count from the tensor's first, and so does
// a t16 tensor's group. `scales` (ST_SCALE_BLOCK only): one a block of these 16 rows. `form` is that of the format, or
// one that st_form_is_direct.
bool st_form_takes_strips(const st_format *format, st_shape shape);
void st_form_pack_strip(st_form form, const st_format *format, st_shape shape, const st_strip *strip, const void *bytes,
                        const float *scales, uint64_t row, uint8_t *group);
// Whether every tensor of the format can have that denser form, so that it is packed without the one before.
bool st_form_is_direct(st_form dense, const st_format *format);

// What st_form_pack does for forms of five codes a byte, and of patterns.
void st_form_pack_fives(st_form form, size_t columns, uint32_t block, const int8_t *rows, const float *scales,
                        size_t count, uint8_t *group);
void st_form_pack_patterns(size_t columns, uint32_t block, const int8_t *rows, const float *scales, size_t count,
                           uint8_t *group);
// Whether the weights of a format, in the form that they become, may be changed to a denser form that is smaller;
// whether a group can have it: not with a code 3, or with four codes that are no pattern; and converting a group of
// these 2-bit codes, in place or to an earlier address.
bool st_form_is_denser(st_form dense, const st_format *format);
bool st_form_can_squeeze(st_form dense, size_t columns, uint32_t block, const uint8_t *group);
void st_form_squeeze(st_form dense, size_t columns, uint32_t block, const uint8_t *from, uint8_t *to);

// The input of products, as one table takes it for one kind of activation; opaque except its size.
typedef struct st_input {
  st_activation kind;
  size_t tokens, columns;
  void *data;    // kernels->input_bytes(kind, tokens, columns) bytes, aligned to 64
  void *scratch; // of the thread that multiplies: kernels->scratch_bytes, aligned to 64; not shared with other threads
} st_input;

typedef enum st_glu { ST_GLU_SILU, ST_GLU_RELU2, ST_GLU_GELU_TANH, ST_GLU_GPT_OSS, ST_GLU_SIGMOID } st_glu;

// Attention of some queries over one part of the keys that they see: see kernel/attend.h.
typedef struct st_attend st_attend;
typedef struct st_attend_part st_attend_part;
// Of layers with a recurrent state: see kernel/recurrent.h.
typedef struct st_convolution st_convolution;
typedef struct st_delta st_delta;

typedef struct st_kernels st_kernels;
struct st_kernels {
  const char *name; // of isas.def
  // Denser forms whose products are faster than those of the forms they are made of.
  bool faster[ST_FORM_COUNT];

  // Activation int8 codes of one token and the sum of the codes; returns s. x8 = clamp(rne(x * s)). NaN gives code 0,
  // and an infinite x makes s zero and all codes zero, so that products with it are NaN.
  float (*quantize_token)(const float *x, size_t n, int8_t *codes, int32_t *sum);

  // Memory that products need in addition to their arguments, for each thread; 0: none. Stacks of threads may be small.
  size_t scratch_bytes;

  // Prepares the tokens [first, last) of x ([tokens][stride] floats) as the input of products; `first` is a multiple of
  // prepare_unit(kind, input->tokens), and so is `last` unless it ends the input. With `norm` not NULL the
  // input is RMSNorm(x) * norm instead (float32 throughout: x / sqrt(mean(x^2) + eps) * norm).
  size_t (*input_bytes)(st_activation kind, size_t tokens, size_t columns);
  size_t (*prepare_unit)(st_activation kind, size_t tokens);
  void (*prepare)(const st_input *input, const float *x, size_t stride, const float *norm, float eps, size_t first,
                  size_t last);

  // out[t * stride + r] = sum_k w[r][k] * x[t][k] for rows [first, last) (first a multiple of 16) and all tokens of the
  // input. NULL: that pair is not computed.
  void (*matmul[ST_FORM_COUNT][ST_ACT_COUNT])(const st_matrix *w, const st_input *input, size_t first, size_t last,
                                              float *out, size_t stride);
  // Forms whose products with float32 add up in this table's own order, so that their last bits differ from others'.
  bool own_order[ST_FORM_COUNT];
  // One row as float32, for embeddings.
  void (*row[ST_FORM_COUNT])(const st_matrix *w, size_t row, float *out);

  void (*rmsnorm)(const float *x, const float *weight, size_t n, float eps, float *out); // out may be x
  // cos and sin of n/2 angles for one head of n values; pairs (i, i + n/2), or (2i, 2i + 1) when interleaved.
  void (*rope)(float *x, const float *cosine, const float *sine, size_t n, bool interleaved);
  void (*attend)(const st_attend *a, const st_attend_part *part);
  void (*convolve)(const st_convolution *v, size_t n, float *out); // n channels
  void (*delta)(const st_delta *d);
  void (*to_half)(const float *x, size_t n, uint16_t *out);
  void (*glu)(st_glu kind, const float *gate, const float *up, size_t n, float *out); // out may be gate, or up
  void (*add)(float *x, const float *y, float scale, size_t n);                       // x += scale * y
  // Each block of n numbers times the Hadamard matrix in natural (Sylvester's) order over sqrt(block), which is its own
  // inverse. `block`: a power of two that divides n. before, after: [n] factors of the numbers and of the results;
  // NULL: none. out may be x.
  void (*hadamard)(const float *x, const float *before, const float *after, size_t n, size_t block, float *out);

  // Peak loops for the ceilings: run about `n` multiply-adds from registers, return how many exactly; and read a
  // buffer.
  uint64_t (*peak_int8)(uint64_t n);
  uint64_t (*peak_float)(uint64_t n);
  uint64_t (*read)(const void *buffer, size_t bytes);
};

// The table of an instruction set by name, NULL for the best one. Errors: an unknown name (with the list), and a set
// that this machine cannot run. `table` is filled by value: no global state.
setun_status st_kernels_get(const char *isa, st_kernels *table, setun_error *err);

// The instruction sets of isas.def, one an index, NULL beyond the last: in rising order of preference.
const char *st_isa_name(size_t index);

// Those that this machine runs, best last, such as "scalar avx2 avx512". Static text.
const char *st_kernels_available(void);

#endif
