// Weights as the model sees them (one matrix or vector, in any number of stored tensors), and reading their rows from
// the files.
#ifndef SETUN_SOURCE_WEIGHT_H
#define SETUN_SOURCE_WEIGHT_H

#include "format/directory.h"

// A selection of rows of a stored matrix: every step-th of `of` rows, starting at `first` (gpt-oss has an expert's gate
// in the even rows and its up in the odd ones, Phi 3 has q, k and v one after the other). `of` 0: all rows.
typedef struct st_part {
  uint64_t first, step, of;
} st_part;

// Integers, or the nonzero values of a sparse matrix, in tensors of their own: see source/packed.h.
typedef enum st_packing {
  ST_PACKING_NONE,
  ST_PACKING_GPTQ,      // data [columns * bits / 32, rows], scales and zeros [groups, rows]
  ST_PACKING_INTS,      // data [rows, columns * bits / 32], scales [rows, groups], zeros [rows * bits / 32, groups]
  ST_PACKING_MARLIN_24, // two of each four, in the order of tensor cores
  ST_PACKING_BITMASK_24 // two of each four, data [rows, columns / 2], marks [rows, columns / 8]
} st_packing;

typedef struct st_packed {
  st_packing kind;
  uint8_t bits;
  bool stream;      // values may cross words; otherwise a word has 32 / bits of them
  bool ordered;     // columns are in the order of their groups, see st_row_reader.order
  uint64_t group;   // columns that share a scale; 0: specified by g_idx
  uint64_t groups;  // of a row
  bool carries;     // 3 bits: the addition of `plus` may carry from one of three words into the next
  uint32_t plus[3]; // GPTQ: added to the words of zeros, in turn (version 1 stores them less 1)
  const st_tensor *scales, *zeros, *g_idx, *marks, *shape; // NULL: none
} st_packed;

// How a matrix [rows, columns] is stored. Filled by st_weight_find; points into the directory.
typedef struct st_weight {
  const char *name;        // index of the main tensor
  const st_format *format; // the meaning of the bytes, which for HF u8 the container's dtype alone does not show
  st_shape shape;          // logical; for a stack of experts, one expert's
  uint64_t first_row;      // first row of this weight in the stored tensor (an expert of a stack, a part), otherwise 0
  uint64_t row_step;       // distance between rows of this weight: 1, or the part's
  st_shape stored;         // of the whole stored tensor
  const st_tensor *data;
  // MXFP4 as in gpt-oss checkpoints: `data` holds 16 bytes per block, this tensor the blocks' scale bytes; NULL: other
  // weights
  const st_tensor *block_scales;
  // MLX's groups: `data` holds words of codes, block_scales and this tensor the groups' scales and minimums; NULL:
  // other weights
  const st_tensor *block_minimums;
  st_packed packed;       // kind ST_PACKING_NONE: it is not packed
  const st_tensor *scale; // ST_SCALE_OUTER, or a separate scale (`NAME.scale`, `weight_scale`); NULL: none
  uint64_t first_scale;   // this weight's first element of `scale` (an expert of a stack), otherwise 0
  uint64_t n_scales;      // this weight's elements of `scale`: 1 or shape.rows; 0: none
  bool scale_divides;     // HF linear_class bitlinear
  bool latent;            // floats that become ternary when read: clip(round(w / mean|w|)), mean over the whole matrix
  float latent_scale;     // that mean if known, see st_weight_measure; otherwise 0
} st_weight;

// A convolution [channels, taps, 1], as MLX has it, instead of [channels, 1, taps]: the same bytes. With one tap the
// two cannot be told apart; it is the official class's then.
static inline bool st_weight_is_channel_last(const st_tensor *t) {
  return t->n_dims == 3 && t->dims[0] == 1 && t->dims[1] > 1;
}

// Ternary as the model uses it: a ternary format, or latent floats.
static inline bool st_weight_is_ternary(const st_weight *w) {
  return w->latent || st_format_is_ternary(w->format);
}

// Looks up the weight of a module, "blk.0.attn_q" or "model.layers.0.self_attn.q_proj" (the tensor MODULE.weight or, if
// absent, the tensor MODULE itself: "blk.0.attn_q.bias", "model.layers.0.self_attn.sinks"), whose shape must be [rows,
// columns]; rows 1: a vector; rows 0: any number, which for HF u8 is known only as a multiple of 4. `found` is false,
// and nothing else changed, if the tensor is absent. Errors name the tensor, the expected shape or type and what was
// found; an unsupported Hugging Face quantization is refused by name.
//
// HF BitNet (quant_method "bitnet"; Transformers' integration is the reference): a U8 tensor with MODULE.weight_scale
// is packed, with the direction of linear_class; floats of a linear layer within `layers` that is not in
// modules_to_not_convert are latent. So are those in 1bitLLM's checkpoints (weight_bits 1, input_bits 8), and those
// with their own norm (MODULE.norm.weight: BitNet's embedding models).
//
// MLX (`quantization` in config.json): U32 words of codes with MODULE.scales and MODULE.biases beside them, of a matrix
// or of a stack of experts.
setun_status st_weight_find(const st_directory *directory, const char *module, st_shape shape, bool *found,
                            st_weight *weight, setun_error *err);

// The same for one expert of a stacked tensor [n_experts, rows, columns], with one scale for all, one per expert, or
// one per row of each.
setun_status st_weight_find_expert(const st_directory *directory, const char *module, st_shape shape,
                                   uint64_t n_experts, uint64_t expert, bool *found, st_weight *weight,
                                   setun_error *err);

// The same for a part of a matrix, of stored [n_experts, part.of, columns] or, with n_experts 0, [part.of, columns]
// (`shape` is the part's; outside GGUF it must not be packed or latent). For stacks, also finds MODULE_blocks with
// MODULE_scales: MXFP4 in two tensors, u8 [n_experts, rows, columns / 32, 16] and [n_experts, rows, columns / 32].
setun_status st_weight_find_part(const st_directory *directory, const char *module, st_shape shape, st_part part,
                                 uint64_t n_experts, uint64_t expert, bool *found, st_weight *weight, setun_error *err);

// Reads all of a latent weight once and stores its latent_scale, so that readers opened later need not. Does nothing
// for other weights.
setun_status st_weight_measure(const st_directory *directory, st_weight *weight, setun_error *err);

// Turns plain floats that are all trits times one scale into such a weight (like latent floats with that scale). Reads
// all of it, or stops at the first mismatch; if `rows` is not 0, checks only that many first rows, as a first guess.
// Does nothing for other weights.
setun_status st_weight_recognize(const st_directory *directory, st_weight *weight, uint64_t rows, setun_error *err);

// Reads rows of one weight, strip by strip, through its own buffers; one thread at a time. Several readers may read one
// weight. Strips are about 1 MiB, so a reader takes a few MiB.
typedef struct st_row_reader {
  const st_directory *directory;
  const st_weight *weight; // must outlive the reader
  float *scales;           // float32 factors, one for all or one per row: from `weight->scale`, the format's own one
                 // (ST_SCALE_TENSOR), the absmean of latent floats, or their product; n_scales 1 or rows; NULL: none
  uint64_t n_scales;
  void *bytes;
  size_t capacity;
  void *raw; // scratch for weights whose rows are assembled
  size_t raw_capacity;
  uint32_t *groups; // packed weights whose groups only g_idx specifies: the group of each column
  uint32_t *order; // packed weights whose columns are in the order of their groups: [columns], the column at each place
  float *row;      // scratch for these, one row
  int8_t *trits;   // scratch for st_read_floats
  float *block_scales;
  size_t trit_capacity, block_capacity;
} st_row_reader;

// Reads and checks the scales (finite; nonzero if they divide). Closed with st_row_reader_close, which accepts a zeroed
// one; after a failure there is nothing to close.
setun_status st_row_reader_open(const st_directory *directory, const st_weight *weight, st_row_reader *reader,
                                setun_error *err);
void st_row_reader_close(st_row_reader *reader);

// Rows [row, row + count) as float32 [count, columns], scales applied. A NaN or an infinity is an error.
setun_status st_read_floats(st_row_reader *reader, uint64_t row, uint64_t count, float *out, setun_error *err);
// The same rows of a ternary weight as int8 [count, columns], and their scales: one a row, or columns/block a row for
// ST_SCALE_BLOCK (see st_format_row_scales), with those of reader->scales multiplied in. The 2-bit code 3 becomes 2.
setun_status st_read_trits(st_row_reader *reader, uint64_t row, uint64_t count, int8_t *trits, float *scales,
                           setun_error *err);
// The same rows as stored, for formats with contiguous rows: count * st_format_row_bytes. Columns are in the reader's
// `order`. Half-precision scales of value formats are checked (finite). The bytes do not include reader->scales: a
// value format with a separate scale tensor is refused; read it as floats.
setun_status st_read_bytes(st_row_reader *reader, uint64_t row, uint64_t count, void *out, setun_error *err);
// The stored bytes of rows from `row` on, for callers that handle the format: at most `count` rows, as one strip (whose
// rows are numbered from the stored tensor's first). *bytes is valid until the reader's next call. Ternary formats:
// their scales as from st_read_trits. F32, F16 and BF16: a NaN or an infinity is an error. Not for weights that are
// latent or assembled, or values with a separate scale tensor.
setun_status st_read_strip(st_row_reader *reader, uint64_t row, uint64_t count, st_strip *strip, const void **bytes,
                           float *scales, setun_error *err);
bool st_weight_has_strips(const st_weight *weight);

// The function above that a reader is used with.
typedef enum st_reading { ST_READ_FLOATS, ST_READ_BYTES, ST_READ_TRITS, ST_READ_STRIPS } st_reading;
// The bytes of a reader's buffers for up to `rows` rows at a time.
uint64_t st_row_reader_bytes(const st_weight *weight, uint64_t rows, st_reading how);

#endif
