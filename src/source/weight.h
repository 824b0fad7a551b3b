// Weights as the model sees them - one matrix or vector, however many stored tensors it takes - and the reading of
// their rows from the files.
#ifndef SETUN_SOURCE_WEIGHT_H
#define SETUN_SOURCE_WEIGHT_H

#include "format/directory.h"

// How a matrix [rows, columns] is stored. Filled by st_weight_find; points into the directory.
typedef struct st_weight {
  const char *name;        // of the main tensor
  const st_format *format; // what the bytes mean, which the container's dtype alone does not tell for HF u8
  st_shape shape;          // logical; for a stack of experts, of one
  uint64_t first_row;      // of this weight within the stored tensor (an expert of a stack), otherwise 0
  st_shape stored;         // of the whole stored tensor
  const st_tensor *data;
  const st_tensor *scale;  // ST_SCALE_OUTER, or a scale beside (`NAME.scale`, `weight_scale`); NULL: none
  bool scale_divides;      // HF linear_class bitlinear
  bool latent;             // floats to be made ternary by R1.1 when read (absmean of the whole matrix)
  float latent_scale;      // that mean, once known
} st_weight;

// Looks up the weight of a module, "blk.0.attn_q" or "model.layers.0.self_attn.q_proj", whose shape must be
// [rows, columns] (rows 1: a vector). `found` false when there is no such tensor. Errors name the tensor, the expected
// shape or type and what was found.
setun_status st_weight_find(const st_directory *directory, const char *module, st_shape shape, bool *found,
                            st_weight *weight, setun_error *err);

// Reads rows of one weight, strip by strip, through a buffer of its own.
typedef struct st_row_reader {
  const st_directory *directory;
  const st_weight *weight;
  float *scales; // outer ones as multiplying float32, n_scales 1 or rows; NULL: none
  uint64_t n_scales;
  void *bytes;
  size_t capacity;
} st_row_reader;

// Reads and checks the scales (finite, positive count). Closed with st_row_reader_close.
setun_status st_row_reader_open(const st_directory *directory, const st_weight *weight, st_row_reader *reader,
                                setun_error *err);
void st_row_reader_close(st_row_reader *reader);

// Rows [row, row + count) as float32 [count, columns], scales applied.
setun_status st_read_floats(st_row_reader *reader, uint64_t row, uint64_t count, float *out, setun_error *err);
// The same rows of a ternary weight as trits, and their scales: one a row, or ceil(K/block) a row for ST_SCALE_BLOCK.
setun_status st_read_trits(st_row_reader *reader, uint64_t row, uint64_t count, int8_t *trits, float *scales,
                           setun_error *err);
// The same rows as they are stored, for formats made of row blocks: count * bytes a row.
setun_status st_read_bytes(st_row_reader *reader, uint64_t row, uint64_t count, void *out, setun_error *err);

#endif
