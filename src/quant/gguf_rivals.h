// Unsupported layouts that share a GGUF tensor type with a supported one, or have their own type.
#ifndef SETUN_QUANT_GGUF_RIVALS_H
#define SETUN_QUANT_GGUF_RIVALS_H

#include "quant/quant.h"

// Rows of `head` bytes and `block_bytes` for every `block` weights; block 0: the size depends on more than the shape.
// `architectures` are those whose files use it ("*": all): it is considered only there if the sizes leave it open.
typedef struct st_gguf_rival {
  uint32_t type;
  const char *name, *advice; // what it is and what to do, for messages
  uint32_t head, block, block_bytes;
  const char *architectures[2];
} st_gguf_rival;

// The *n layouts of that type; NULL: none known.
const st_gguf_rival *st_gguf_rivals(uint32_t type, size_t *n);
// False if its size is unknown, if it does not allow the shape, or on overflow.
bool st_gguf_rival_size(const st_gguf_rival *rival, st_shape shape, uint64_t *bytes);

#endif
