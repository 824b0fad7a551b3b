// Writing safetensors files.
#ifndef SETUN_FORMAT_SAFETENSORS_WRITER_H
#define SETUN_FORMAT_SAFETENSORS_WRITER_H

#include "format/output_tensor.h"

// Writes the file, which appears when it is complete; on failure the target is unchanged. Tensors are in the given
// order or, if one would then be unaligned (readers map the file), wide numbers first; sets their offsets. A format
// without a dtype is an error. `source` may be NULL when n is 0.
setun_status st_safetensors_write(const char *path, st_output_tensor *tensors, size_t n, const st_output_source *source,
                                  setun_error *err);

#endif
