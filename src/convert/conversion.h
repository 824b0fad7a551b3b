// A conversion: every output tensor in the order of use, with everything that could be refused already checked.
#ifndef SETUN_CONVERT_CONVERSION_H
#define SETUN_CONVERT_CONVERSION_H

#include "convert/convert.h"
#include "convert/names.h"
#include "format/output_tensor.h"
#include "placement/binding.h"
#include "quant/canonical.h"

// ---- one output tensor: the weights that it consists of, and reading its rows in the target's order ------------

// Whether rows of q and k are reordered: GGUF files of some families interleave the two halves of each head.
typedef enum st_permute { ST_PERMUTE_NONE, ST_PERMUTE_INTERLEAVE, ST_PERMUTE_SPLIT } st_permute;

// Reordered heads, `size` rows or columns each, from `first` on: head i * inner + k of the target is head k * outer + i
// of the source. outer 0: none.
typedef struct st_heads {
  uint64_t first, size, outer, inner;
} st_heads;
uint64_t st_heads_source(const st_heads *heads, uint64_t at);

// Decay rates of recurrent layers: logarithms in directories, negative numbers in GGUF.
typedef enum st_rates { ST_RATES_KEPT, ST_RATES_TO_GGUF, ST_RATES_FROM_GGUF } st_rates;

// A weight that provides rows of an output tensor.
typedef struct st_item_source {
  st_weight weight;
  st_grain grain;    // of floats recognized as ternary; ST_GRAIN_NONE: not recognized, or not floats
  float grain_scale; // ST_GRAIN_TENSOR: the scale
} st_item_source;

typedef enum st_item_kind {
  ST_ITEM_COPY,   // the stored tensor's bytes, unchanged
  ST_ITEM_ROWS,   // rows of bytes, unchanged, one after the other
  ST_ITEM_VALUES, // floats, encoded
  ST_ITEM_TRITS,  // trits and scales, packed
  ST_ITEM_STACK,  // a layer's experts in one Hugging Face tensor: experts_hf.c
  ST_ITEM_GPTQ,   // one of the four tensors of integers with zero points: gptq.c
  ST_ITEM_DELTAS, // differences between a layer's experts: expert_deltas.c
  ST_ITEM_SCALES  // the scales of another output tensor, or the item's own
} st_item_kind;

typedef struct st_layer_deltas st_layer_deltas;
void st_layer_deltas_free(st_layer_deltas *deltas); // accepts NULL

typedef struct st_item {
  char *name; // of the tensor in the target
  st_tensor_use place;
  uint32_t suffix; // order among a module's tensors: weight, scale, bias
  st_item_kind kind;
  const st_format *format; // NULL: a type known only by its size
  const char *dtype;       // of the target's container
  uint32_t n_dims;
  uint64_t dims[4]; // fastest first
  st_shape shape;   // logical rows and columns
  uint64_t bytes;
  const st_tensor *copied; // ST_ITEM_COPY
  st_item_source *pieces;  // owned; all of one shape
  size_t n_pieces;
  st_permute permute;
  uint32_t head_dim;
  st_heads rows, columns; // of recurrent layers
  st_rates rates;
  float add;    // added to each float: norms that one container stores minus one
  bool rotated; // the source has its weights in a rotated basis
  // The basis, where it is undone; NULL: kept, or none. Not owned.
  const st_rotation *undone;
  bool lossy;     // the caller asked for this format by name
  bool quantized; // by the options' quantizer
  bool divides;   // ST_ITEM_SCALES: reciprocals are written
  // ST_ITEM_TRITS without block scales: one scale, one per piece, or one per row; owned
  float *scales;
  uint64_t n_scales;
  // ST_ITEM_STACK: the number of pieces per expert, whose rows alternate, and whether the item is the blocks' scales
  // only
  uint32_t n_alternating;
  bool scales_alone;
  st_layer_deltas *deltas; // ST_ITEM_DELTAS; owned
  uint32_t part;           // ST_ITEM_GPTQ: which of the four
  size_t of;               // ST_ITEM_SCALES: the index of the tensor whose scales these are
} st_item;

void st_item_free(st_item *item);

// Reads an item's rows across its pieces. Zero-initialize all but the first four members.
typedef struct st_item_reader {
  const st_directory *d;
  const st_item *item;
  const st_quantizer *quantizer; // of floats that become ternary; NULL: none do
  bool round;                    // replace scales that differ within a group by their mean
  size_t open;                   // 1 + the piece whose reader is open; 0: none
  st_row_reader rows;
  float *native; // scales as the source groups them
  size_t native_capacity;
  float *floats;
  size_t floats_capacity;
  double *wide; // a row, where a rotation is undone
  size_t wide_capacity;
  void *ordered; // a row, if its columns are reordered
  size_t ordered_capacity;
} st_item_reader;

void st_item_reader_close(st_item_reader *r);

// Rows [row, row + count), which the item has.
setun_status st_item_floats(st_item_reader *r, uint64_t row, uint64_t count, float *out, setun_error *err);
// The same in the item's format, where it is the source's.
setun_status st_item_bytes(st_item_reader *r, uint64_t row, uint64_t count, void *out, setun_error *err);
// The same as int8 [count, columns] with a scale for every `group` weights of a row.
setun_status st_item_trits(st_item_reader *r, uint64_t row, uint64_t count, uint64_t group, int8_t *trits,
                           float *scales, setun_error *err);

// Weights of a row that share a scale in the source: a block or the whole row.
uint64_t st_source_group(const st_item_source *p);

// Whether the piece's weights are read as trits.
static inline bool st_source_is_ternary(const st_item_source *p) {
  return p->grain != ST_GRAIN_NONE || st_weight_is_ternary(&p->weight);
}

// ---- integers with zero points in directories ---------------------------------------------------------------------

struct st_conversion;
// Whether an item stays integers; makes it such an item; replaces each such item by its four tensors.
bool st_conversion_is_gptq(const struct st_conversion *p, const st_item *item);
setun_status st_conversion_decide_gptq(st_item *item, setun_error *err);
setun_status st_conversion_expand_gptq(struct st_conversion *p, setun_error *err);
setun_status st_item_write_gptq(struct st_conversion *p, const st_item *item, st_output *out, setun_error *err);

// ---- differences between experts ----------------------------------------------------------------------------------

// With the option, measures how much the experts of each layer differ, and adds an item for each layer where deltas are
// shorter. Says what they save. Takes the memory of a layer's experts. Called after all sizes are known.
setun_status st_conversion_expert_deltas(struct st_conversion *p, setun_error *err);
setun_status st_item_write_deltas(struct st_conversion *p, const st_item *item, st_output *out, setun_error *err);

// ---- all items ---------------------------------------------------------------------------------------------------

typedef struct st_conversion {
  const st_directory *d;
  const st_convert_options *o;
  bool from_gguf, to_gguf;
  const st_spec *spec, *target_spec; // NULL: an unknown family (GGUF to GGUF only)
  bool has_hparams;
  st_hparams h;
  st_rotation *rotation; // of the source; NULL: none
  st_bound_list weights; // with hparams; empty where the source's tensors are not those of the family
  bool packed;           // some tensor is ternary or quantized
  bool int8;             // the model prescribes int8 activations
  st_item *items;
  size_t n_items, capacity;
  uint64_t alignment;             // alignment of the tensors in a GGUF file
  uint64_t work_done, work_total; // for progress: weights read
} st_conversion;

// Appends an empty item; NULL: out of memory.
st_item *st_conversion_add(st_conversion *plan);

// names of items from tensors: collect.c
setun_status st_conversion_collect(st_conversion *plan, setun_error *err);
// Converts RoPE scaling rules to tensors of frequency divisors, and such tensors back to a rule, which the conversion
// then has: rope_freqs.c
setun_status st_conversion_rope(st_conversion *plan, setun_error *err);
bool st_conversion_is_rope_rule(const st_conversion *plan, const st_bound *bound);
setun_status st_conversion_rope_rule(st_conversion *plan, st_role role, const st_weight *divisors, setun_error *err);
// A layer's experts in one tensor, where the family's directories store them so: experts_hf.c
bool st_conversion_stacks(const st_conversion *plan, const st_tensor_use *place);
setun_status st_conversion_stack_experts(st_conversion *plan, setun_error *err);
setun_status st_item_write_stack(st_conversion *plan, const st_item *item, st_output *out, setun_error *err);
// Converts recurrent layers' heads and decay rates between the containers: heads.c. Reorders the columns of rows that
// were read, `units` of `unit` bytes each; and converts n decay rates.
void st_conversion_heads(st_conversion *plan);
// Where only the target has q, k, v and z of a recurrent layer in one matrix: its role instead of those of the two that
// the source has, and after sorting, these as one item. Otherwise the role itself, and no change.
st_role st_conversion_joined_role(const st_conversion *plan, st_role role);
setun_status st_conversion_join_mixed(st_conversion *plan, setun_error *err);
setun_status st_item_order_columns(st_item_reader *r, uint64_t rows, uint64_t units, size_t unit, void *x,
                                   setun_error *err);
setun_status st_item_convert_rates(const st_item_reader *r, uint64_t n, float *x, setun_error *err);
// The source's rotated basis: the items in it, whether it is kept, and its declaration in the target: rotation.c
setun_status st_conversion_rotation(st_conversion *plan, setun_error *err);
setun_status st_conversion_rotation_keys(const st_conversion *plan, st_keys *keys, setun_error *err);
setun_status st_conversion_rotation_config(const st_conversion *plan, st_json *config, setun_error *err);
// Reads all weights and checks that they fit their items' formats: validate.c
setun_status st_conversion_validate(st_conversion *plan, st_item *item, setun_error *err);
// Reports progress for `weights` more weights; an error when the caller cancels.
setun_status st_conversion_progress(st_conversion *plan, uint64_t weights, setun_error *err);

// Rows to process at once, so that a few MiB suffice: a multiple of 16 where the format mixes rows.
uint64_t st_item_chunk(const st_item *item);

// The dividing scale of a weight: a float32 whose float32 reciprocal is its scale; the original checkpoint's, if the
// source records it. False: none exists.
bool st_conversion_divisor(const st_conversion *plan, const st_item *item, float scale, float *divisor);

// Appends the bytes of one item to the output: item.c
setun_status st_item_write(st_conversion *plan, const st_item *item, st_output *out, setun_error *err);

// The items in the form that the containers' writers take; NULL: out of memory. Freed with st_free.
st_output_tensor *st_conversion_tensors(const st_conversion *plan);
// The two kinds of targets: gguf_target.c, hf_target.c
setun_status st_write_gguf(st_conversion *plan, const char *path, setun_error *err);
setun_status st_write_huggingface(st_conversion *plan, const char *path, setun_error *err);
// Reads the hyperparameters back from the output and compares them with the source's: what the target's container
// cannot state is refused by name. Does nothing where the source's family is unknown: verify.c
setun_status st_verify_hparams(const st_conversion *plan, const st_directory *written, setun_error *err);

#endif
