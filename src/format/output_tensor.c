// Shared by the containers' writers.
#include "format/output_tensor.h"

#include <inttypes.h>

setun_status st_output_tensor_write(const st_output_source *source, size_t index, const st_output_tensor *tensor,
                                    st_output *out, setun_error *err) {
  uint64_t start = out->length;
  setun_status s = source->write(source->user, index, out, err);
  if (s != SETUN_OK || out->length - start == tensor->bytes) return s;
  return st_fail(err, SETUN_ERROR_STATE, "%s: planned %" PRIu64 " bytes, wrote %" PRIu64, tensor->name, tensor->bytes,
                 out->length - start);
}
