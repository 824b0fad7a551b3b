// Layouts that are not read and share a GGUF tensor type with one that is, or have one that only they are known by.
#ifndef SETUN_QUANT_GGUF_RIVALS_H
#define SETUN_QUANT_GGUF_RIVALS_H

#include "quant/quant.h"

// Rows of `head` bytes and `block_bytes` for each `block` weights; a block of 0: its size depends on more than its
// shape. `architectures` are those whose files have it, "*" being all: only there it counts when the sizes leave it
// open.
typedef struct st_gguf_rival {
  uint32_t type;
  const char *name, *advice; // what it is and what to do, for messages
  uint32_t head, block, block_bytes;
  const char *architectures[2];
} st_gguf_rival;

// The *n of that type; NULL: none known.
const st_gguf_rival *st_gguf_rivals(uint32_t type, size_t *n);
// False where its size is not known, where it has no such shape, or on overflow.
bool st_gguf_rival_size(const st_gguf_rival *rival, st_shape shape, uint64_t *bytes);

#endif
