// Tensors of an output file, as the input of the containers' writers.
#ifndef SETUN_FORMAT_OUTPUT_TENSOR_H
#define SETUN_FORMAT_OUTPUT_TENSOR_H

#include "base/output.h"
#include "format/directory.h"

typedef struct st_output_tensor {
  const char *name;        // borrowed; unique in a file
  const st_format *format; // NULL: a type known only by its size
  const char *dtype;       // its name in the containers: "I32"
  uint32_t n_dims;
  uint64_t dims[4]; // fastest first; for a ternary matrix those of its weights, not of packed bytes
  uint64_t bytes;
  uint64_t offset; // relative to the first tensor's bytes; set by the writers
} st_output_tensor;

// The source of the bytes.
typedef struct st_output_source {
  // Appends the bytes of tensor `index`, exactly as many as its description says.
  setun_status (*write)(void *user, size_t index, st_output *out, setun_error *err);
  // GGUF: checks the header as a reader sees it, before any tensor is written. NULL: no check.
  setun_status (*verify)(void *user, const st_directory *written, setun_error *err);
  void *user;
} st_output_source;

// Lets the source append one tensor; a number of bytes that differs from its description is an error.
setun_status st_output_tensor_write(const st_output_source *source, size_t index, const st_output_tensor *tensor,
                                    st_output *out, setun_error *err);

#endif
