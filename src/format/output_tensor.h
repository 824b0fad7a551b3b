// Tensors of a file that is written: what the writers of containers take, whoever makes their bytes.
#ifndef SETUN_FORMAT_OUTPUT_TENSOR_H
#define SETUN_FORMAT_OUTPUT_TENSOR_H

#include "base/output.h"
#include "format/directory.h"

typedef struct st_output_tensor {
  const char *name;        // borrowed; no two tensors of a file have the same
  const st_format *format; // NULL: a type known by its size only
  const char *dtype;       // that type, as the containers spell it: "I32"
  uint32_t n_dims;
  uint64_t dims[4]; // fastest first; of a ternary matrix those of its weights, however they are packed
  uint64_t bytes;
  uint64_t offset; // from the first tensor's bytes; the writers set it
} st_output_tensor;

// Where the bytes come from.
typedef struct st_output_source {
  // Appends the bytes of tensor `index`, exactly as many as its description says.
  setun_status (*write)(void *user, size_t index, st_output *out, setun_error *err);
  // GGUF: looks at the header as a reader finds it, before any tensor is written; may refuse it. NULL: it is not read.
  setun_status (*verify)(void *user, const st_directory *written, setun_error *err);
  void *user;
} st_output_source;

// Has the source append one tensor; another number of bytes than its description says is an error.
setun_status st_output_tensor_write(const st_output_source *source, size_t index, const st_output_tensor *tensor,
                                    st_output *out, setun_error *err);

#endif
