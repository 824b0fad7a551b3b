// Safetensors files that are written.
#ifndef SETUN_FORMAT_SAFETENSORS_WRITER_H
#define SETUN_FORMAT_SAFETENSORS_WRITER_H

#include "format/output_tensor.h"

// Writes the whole file, which appears when it is complete; on failure the target is as it was. Tensors are in their
// order or, where one would not be aligned so (readers map the file), wide numbers first; sets their offsets. A format
// that has no dtype is an error. `source` may be NULL when n is 0.
setun_status st_safetensors_write(const char *path, st_output_tensor *tensors, size_t n, const st_output_source *source,
                                  setun_error *err);

#endif
