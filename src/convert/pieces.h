// One output tensor: the weights that it is made of, and the reading of its rows in the form in which they are written.
#ifndef SETUN_CONVERT_PIECES_H
#define SETUN_CONVERT_PIECES_H

#include "convert/names.h"
#include "quant/canonical.h"
#include "source/weight.h"

// Where rows of q and k change places: GGUF files of some families hold the two halves of each head interleaved.
typedef enum st_permute { ST_PERMUTE_NONE, ST_PERMUTE_INTERLEAVE, ST_PERMUTE_SPLIT } st_permute;

// A weight that an output tensor has its rows from.
typedef struct st_item_source {
  st_weight weight;
  st_grain grain;    // of floats that were recognized as ternary; ST_GRAIN_NONE: they were not, or are no floats
  float grain_scale; // ST_GRAIN_TENSOR: the scale
} st_item_source;

typedef enum st_how {
  ST_HOW_COPY,   // the stored tensor's bytes as they are
  ST_HOW_ROWS,   // rows of bytes as they are, one after the other
  ST_HOW_VALUES, // floats, encoded
  ST_HOW_TRITS,  // trits and scales, packed
  ST_HOW_STACK,  // a layer's experts in one tensor of a Hugging Face directory: experts_hf.c
  ST_HOW_SCALES  // the scales beside another output tensor, or the item's own
} st_how;

typedef struct st_item {
  char *name; // of the tensor in the target
  st_tensor_use place;
  uint32_t suffix; // order among a module's tensors: weight, scale, bias
  st_how how;
  const st_format *format; // NULL: a type known by its size only
  const char *dtype;       // of the target's container
  uint32_t n_dims;
  uint64_t dims[4]; // fastest first
  st_shape shape;   // logical rows and columns
  uint64_t offset, bytes;
  const st_tensor *copied; // ST_HOW_COPY
  st_item_source *pieces;  // owned; all of one shape
  size_t n_pieces;
  st_permute permute;
  uint32_t head_dim;
  float add;    // to each float: norms that one container stores less one
  bool lossy;   // the caller asked for this format by name
  bool divides; // ST_HOW_SCALES: reciprocals are written
  // ST_HOW_TRITS with scales that are no block's: one for all, one a piece, or one a row; owned
  float *scales;
  uint64_t n_scales;
  // ST_HOW_STACK: how many pieces make up an expert, whose rows take turns, and whether only the blocks' scales are
  // meant
  uint32_t turns;
  bool scales_alone;
  size_t of; // ST_HOW_SCALES: the index of the tensor whose scales these are
} st_item;

void st_item_free(st_item *item);

// Reads an item's rows, whichever pieces they are in. Zero-initialize but for the first three.
typedef struct st_item_reader {
  const st_directory *d;
  const st_item *item;
  bool round;  // scales that differ within a group become their mean
  size_t open; // 1 + the piece whose reader is open; 0: none
  st_row_reader rows;
  float *native; // scales as the source groups them
  size_t native_capacity;
  float *floats;
  size_t floats_capacity;
} st_item_reader;

void st_item_reader_close(st_item_reader *r);

// Rows [row, row + count) of the item, all within it.
setun_status st_item_floats(st_item_reader *r, uint64_t row, uint64_t count, float *out, setun_error *err);
setun_status st_item_bytes(st_item_reader *r, uint64_t row, uint64_t count, void *out, setun_error *err);
// As int8 [count, columns] with a scale for every `group` weights of a row.
setun_status st_item_trits(st_item_reader *r, uint64_t row, uint64_t count, uint64_t group, int8_t *trits,
                           float *scales, setun_error *err);

// Weights of a row that share a scale in the source: a block's or the whole row.
uint64_t st_source_group(const st_item_source *p);

// Are the piece's weights trits as they are read?
static inline bool st_source_is_ternary(const st_item_source *p) {
  return p->grain != ST_GRAIN_NONE || st_weight_is_ternary(&p->weight);
}

#endif
