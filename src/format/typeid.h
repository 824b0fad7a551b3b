// Which format a GGUF tensor type id means. Private to src/format.
#ifndef SETUN_FORMAT_TYPEID_H
#define SETUN_FORMAT_TYPEID_H

#include "format/builder.h"

// A tensor as its info in the header says, before its type is understood.
typedef struct st_gguf_tensor {
  char *name;
  uint32_t part, type, n_dims;
  uint64_t dims[4]; // checked
  uint64_t offset;  // from the part's data start
  uint64_t room;    // bytes up to the next tensor's offset or, for the last of its part, the end of the file
  bool last;
  uint64_t alignment;
} st_gguf_tensor;

// What type id `type` means in this file: *format, or NULL for a type known by its size only (st_gguf_type_name has its
// name). An id that several projects use is decided by options->assume, the keys setun.layout and setun.t5.digits,
// the distances between the offsets of all the tensors of that type, and the architecture, in this order; the reading
// and its reason become a notice. Evidence that fits two readings alike is an error that says how to choose.
setun_status st_typeid_resolve(st_builder *b, const st_gguf_tensor *tensors, size_t count, uint32_t type,
                               const st_format **format, setun_error *err);

#endif
