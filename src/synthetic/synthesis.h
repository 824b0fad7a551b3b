// Synthetic models: a GGUF file of a named shape with random weights and a placeholder vocabulary, so that any model's
// speed can be measured without having it. The file is a function from byte ranges to bytes; no weights are stored.
//
// Its matrices are ternary: 3 of 10 weights are +scale, 3 of 10 -scale, the rest 0, with one scale per tensor that
// keeps activations near 1 and, as a power of two, fits every format exactly. Value formats hold the same numbers as
// closely as they can. Embedding, head and routers are random floats (routers.h), norms 1. Equal seeds produce equal
// weights in all formats.
#ifndef SETUN_SYNTHETIC_SYNTHESIS_H
#define SETUN_SYNTHETIC_SYNTHESIS_H

#include "format/gguf_keys.h"
#include "format/output_tensor.h"
#include "model/arch.h"
#include "synthetic/routers.h"

typedef struct st_synthesis_options {
  const char *shape;       // of presets.h
  const st_format *format; // of the layers' matrices: one that is written to GGUF
  const st_format *head;   // of the embedding and the head, of the same kind
  uint64_t seed;
} st_synthesis_options;

// The contents of a synthetic model's tensor.
typedef enum st_synthetic_fill {
  ST_FILL_TRITS,  // trits times a scale
  ST_FILL_RANDOM, // a matrix of random floats
  ST_FILL_ONES,   // a vector of ones
  ST_FILL_MINUS_ONES,
  ST_FILL_SCALE // the scale of another tensor
} st_synthetic_fill;

typedef struct st_synthetic_tensor {
  st_synthetic_fill fill;
  st_role role;
  uint32_t layer; // 0 outside the layers
  st_shape shape;
  size_t of; // ST_FILL_SCALE: the index of the tensor whose scale it is
} st_synthetic_tensor;

typedef struct st_synthesis {
  st_hparams h;
  const st_spec *spec;
  uint64_t seed;
  st_synthetic_routers routers;
  st_buffer header;
  st_output_tensor *tensors; // in the file's order; their names are owned
  st_synthetic_tensor *made; // of each
  size_t n_tensors, capacity, made_capacity;
  uint64_t size, alignment; // of the file
} st_synthesis;

// On success freed with st_synthesis_free.
setun_status st_synthesis_new(const st_synthesis_options *options, st_synthesis **synthesis, setun_error *err);
void st_synthesis_free(st_synthesis *synthesis);

// The file's bytes [offset, offset + n), which must be within its size. Any number of threads may call it at once.
setun_status st_synthesis_read(const st_synthesis *synthesis, uint64_t offset, void *to, size_t n, setun_error *err);

// Writes the complete file or nothing. `threads` as in st_pool_new; `progress` may be NULL.
setun_status st_synthesis_save(const st_synthesis *synthesis, const char *path, int threads, setun_progress_fn progress,
                               void *user, setun_error *err);

// Bytes [from, from + n) of one tensor: rows.c
setun_status st_synthesis_fill(const st_synthesis *synthesis, size_t index, uint64_t from, size_t n, uint8_t *to,
                               setun_error *err);
// The keys of a vocabulary of `n` tokens (at least 512): the 256 bytes, one merge, BOS and EOS, and words that no text
// is tokenized to: vocabulary.c
setun_status st_synthetic_vocabulary(uint32_t n, st_keys *keys, setun_error *err);

#endif
