// Writing GGUF files: keys, tensor infos, and the tensors' bytes from a source.
#ifndef SETUN_FORMAT_GGUF_WRITER_H
#define SETUN_FORMAT_GGUF_WRITER_H

#include "format/gguf_keys.h"
#include "format/output_tensor.h"

// Alignments of tensors: the default; and that of disk blocks, so that tensors can be mapped and read without the
// page cache.
enum { ST_GGUF_USUAL = 32, ST_GGUF_BLOCKS = 4096 };

// Sets the tensors' offsets, in order, to multiples of `alignment`; *data_bytes is the end of the last one's padding.
// Fails if a sum overflows.
setun_status st_gguf_place(st_output_tensor *tensors, size_t n, uint64_t alignment, uint64_t *data_bytes,
                           setun_error *err);

// Appends keys for Setun's readers: the alignment unless it is the default, the names of the ternary layouts
// (comma-separated), the activations that the model was trained for, and the order of digits where a tensor's format
// has one.
void st_gguf_layout_keys(st_keys *keys, uint64_t alignment, const char *layouts, bool int8,
                         const st_output_tensor *tensors, size_t n);

// Appends everything before the tensors' bytes, padded to `alignment`, which the keys name unless it is the default.
// The tensors' offsets are set already. A format without a GGUF type is an error.
setun_status st_gguf_header(const st_keys *keys, const st_output_tensor *tensors, size_t n, uint64_t alignment,
                            st_buffer *out, setun_error *err);

// Writes the file, which appears when it is complete; on failure the target is unchanged. Sets the tensors' offsets.
setun_status st_gguf_write(const char *path, const st_keys *keys, st_output_tensor *tensors, size_t n,
                           uint64_t alignment, const st_output_source *source, setun_error *err);

#endif
