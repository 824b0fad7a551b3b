// All adapters of a model's matrices: y += scale * B (A x). Made by placement/adapter.c; immutable once complete, and
// shared by all sequences that use them.
#ifndef SETUN_MODEL_LORA_H
#define SETUN_MODEL_LORA_H

#include "backend/backend.h"

#include <stdatomic.h>

typedef struct st_lora_pair {
  st_dmatrix *a, *b; // float32 [rank, columns] and [rows, rank], borrowed; NULL: the matrix has no adapter
  void *codes[2];    // owned by these adapters
  uint32_t rank, rows;
} st_lora_pair;

typedef struct st_lora {
  const st_backend *backend;
  st_lora_pair *pairs; // [n], by st_linear.number
  uint32_t n;
  uint64_t identity;    // of the model; a hash of the adapters and their scales
  uint64_t bytes, macs; // of all pairs: memory, and multiply-adds per token
  atomic_uint users;
  atomic_ullong *room; // the remaining bytes for adapters, to which these are returned; NULL: not counted
} st_lora;

// The adapters that a sequence is computed with. Keys and values with the same `identity` are interchangeable.
typedef struct st_adapting {
  st_lora *lora; // one counted use; NULL: none
  float scale;   // a factor for their effect
  uint64_t identity;
} st_adapting;

// For a model with this identity and these adapters, which may be NULL.
st_adapting st_adapting_of(st_lora *lora, float scale, uint64_t model);

// Acquires or releases one use; the last release frees them. Both accept NULL.
st_lora *st_lora_share(st_lora *lora);
void st_lora_release(st_lora *lora);

#endif
