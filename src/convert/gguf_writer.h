// The header of a GGUF file that is written.
#ifndef SETUN_CONVERT_GGUF_WRITER_H
#define SETUN_CONVERT_GGUF_WRITER_H

#include "convert/pieces.h"
#include "format/gguf_keys.h"

// Tensors begin at multiples of it, so that they can be mapped and read without the page cache.
enum { ST_GGUF_USUAL = 32, ST_GGUF_BLOCKS = 4096 }; // alignments: of files that name none; of disks

// Appends everything before the tensors' data: the keys, and of each item its name, dims, type and offset, padded to
// `alignment`, which the keys name unless it is GGUF's usual 32. An item whose format has no GGUF type is an error.
setun_status st_gguf_header(const st_keys *keys, const st_item *items, size_t n, uint64_t alignment, st_buffer *out,
                            setun_error *err);

#endif
