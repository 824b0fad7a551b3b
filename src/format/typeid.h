// Which format a GGUF tensor type id means. Private to src/format.
#ifndef SETUN_FORMAT_TYPEID_H
#define SETUN_FORMAT_TYPEID_H

#include "format/builder.h"

// A tensor as described in the header, before its type is resolved.
typedef struct st_gguf_tensor {
  char *name;
  uint32_t part, type, n_dims;
  uint64_t dims[4]; // checked
  uint64_t offset;  // relative to the part's data start
  uint64_t room;    // bytes up to the next tensor's offset or, for the part's last one, the end of the file
  bool last;
  uint64_t alignment;
} st_gguf_tensor;

// Resolves type id `type` in this file: *format, or NULL for a type known only by its size (st_gguf_type_name has its
// name). An id that several projects use is decided by options->assume, the keys setun.layout and setun.t5.digits, the
// distances between the offsets of all tensors of that type, and the architecture, in this order; the reading and its
// reason become a notice. Evidence that fits two readings equally is an error that explains how to choose.
setun_status st_typeid_resolve(st_builder *b, const st_gguf_tensor *tensors, size_t count, uint32_t type,
                               const st_format **format, setun_error *err);

#endif
