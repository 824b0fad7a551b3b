// GGUF files that are written: keys, tensor infos, and the tensors' bytes as a source gives them.
#ifndef SETUN_FORMAT_GGUF_WRITER_H
#define SETUN_FORMAT_GGUF_WRITER_H

#include "format/gguf_keys.h"
#include "format/output_tensor.h"

// Alignments of tensors: of files that name none; of disks, so that tensors can be mapped and read without the page
// cache.
enum { ST_GGUF_USUAL = 32, ST_GGUF_BLOCKS = 4096 };

// Sets the tensors' offsets, in their order, to multiples of `alignment`; *data_bytes is the end of the last one's
// padding. Errors: a sum that overflows.
setun_status st_gguf_place(st_output_tensor *tensors, size_t n, uint64_t alignment, uint64_t *data_bytes,
                           setun_error *err);

// What Setun's readers look for: the alignment unless it is the usual one, the names of the ternary layouts (with
// commas), the activations that the model was trained for, and the order of digits where a tensor's format asks for
// that.
void st_gguf_layout_keys(st_keys *keys, uint64_t alignment, const char *layouts, bool int8,
                         const st_output_tensor *tensors, size_t n);

// Appends everything before the tensors' bytes, padded to `alignment`, which the keys name unless it is the usual one.
// The tensors have their offsets. A format that has no GGUF type is an error.
setun_status st_gguf_header(const st_keys *keys, const st_output_tensor *tensors, size_t n, uint64_t alignment,
                            st_buffer *out, setun_error *err);

// Writes the whole file, which appears when it is complete; on failure the target is as it was. Places the tensors.
setun_status st_gguf_write(const char *path, const st_keys *keys, st_output_tensor *tensors, size_t n,
                           uint64_t alignment, const st_output_source *source, setun_error *err);

#endif
