// Adapters of a model's matrices, all together: y += scale * B (A x). Made by placement/adapter.c; immutable once they
// are whole, and shared by whoever computes with them.
#ifndef SETUN_MODEL_LORA_H
#define SETUN_MODEL_LORA_H

#include "backend/backend.h"

#include <stdatomic.h>

typedef struct st_lora_pair {
  st_dmatrix *a, *b; // float32 [rank, columns] and [rows, rank], borrowed; NULL: the matrix has no adapter
  void *codes[2];    // theirs
  uint32_t rank, rows;
} st_lora_pair;

typedef struct st_lora {
  const st_backend *backend;
  st_lora_pair *pairs; // [n], by st_linear.number
  uint32_t n;
  uint64_t identity;    // the model's, and a hash of the adapters and their scales
  uint64_t bytes, macs; // of all pairs: memory, and multiply-adds of one token
  atomic_uint users;
  atomic_ullong *room; // bytes that may still be loaded, which these come back to; NULL: not counted
} st_lora;

// What a sequence is computed with. Its `identity` tells keys and values apart.
typedef struct st_adapting {
  st_lora *lora; // a use of them; NULL: none
  float scale;   // of their effect
  uint64_t identity;
} st_adapting;

// That of a model with such an identity and these adapters, which may be NULL.
st_adapting st_adapting_of(st_lora *lora, float scale, uint64_t model);

// One use more, or less: the last one frees them. Both accept NULL.
st_lora *st_lora_share(st_lora *lora);
void st_lora_release(st_lora *lora);

#endif
